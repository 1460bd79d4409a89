/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The working set, used and recorded. Used: the recorded ranges become a list of frames in the
 * order they will be needed (idle workers fill them from the first moment, before any machine
 * attaches), and a plan of what to map when a machine attaches, sorted, so that neighbours are
 * mapped by one call. Recorded: a pager that records keeps the order in which pages were first
 * faulted.
 */
#include <stdlib.h>
#include <string.h>

#include "restore/pager/pager_private.h"

static int compare_ranges(const void *a, const void *b)
{
	const struct snapshot_range *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int check(const struct pager *p, const struct snapshot_ranges *wset, struct err *err)
{
	for (size_t i = 0; i < wset->n; i++) {
		const struct snapshot_range *r = &wset->ranges[i];

		if (r->offset % IMAGE_PAGE || r->bytes % IMAGE_PAGE || r->bytes == 0 ||
			r->bytes > p->bytes || r->offset > p->bytes - r->bytes)
			return err_set(err, EINVAL,
				"working set: range %zu (%llu bytes at %llu) is not whole pages of "
				"the memory",
				i, (unsigned long long)r->bytes, (unsigned long long)r->offset);
	}
	return 0;
}

/* Frames of the data in [@start, @end), each once. @seen is by first page. */
static int add_frames(struct pager *p, uint64_t start, uint64_t end, uint64_t *seen, size_t *room,
	struct err *err)
{
	for (uint64_t at = start, next; at < end; at = next) {
		uint64_t frame, bytes;
		bool data;

		next = image_run_end(p->img, at, end, &data);
		if (!data)
			continue;
		image_frame_at(p->img, at, &frame, &bytes);
		next = frame + bytes;
		if (bit_get(seen, frame / IMAGE_PAGE))
			continue;
		bit_set(seen, frame / IMAGE_PAGE);
		if (p->n_prefetch == *room) {
			uint64_t *more =
				reallocarray(p->prefetch, *room ? *room * 2 : 256, sizeof(*more));

			if (!more)
				return err_set(err, ENOMEM, "pager: no memory for the working set");
			p->prefetch = more;
			*room = *room ? *room * 2 : 256;
		}
		p->prefetch[p->n_prefetch++] = frame;
	}
	return 0;
}

static int add_run(struct pager *p, struct pager_run run, size_t *room, struct err *err)
{
	if (p->n_plan && p->plan[p->n_plan - 1].end == run.start &&
		p->plan[p->n_plan - 1].hole == run.hole) {
		p->plan[p->n_plan - 1].end = run.end;
		return 0;
	}
	if (p->n_plan == *room) {
		struct pager_run *more =
			reallocarray(p->plan, *room ? *room * 2 : 256, sizeof(*more));

		if (!more)
			return err_set(err, ENOMEM, "pager: no memory for the working set");
		p->plan = more;
		*room = *room ? *room * 2 : 256;
	}
	p->plan[p->n_plan++] = run;
	return 0;
}

/* The sorted ranges, without overlap, cut into runs of data and of holes. */
static int add_runs(struct pager *p, const struct snapshot_range *sorted, size_t n, struct err *err)
{
	uint64_t done = 0;
	size_t room = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t at = sorted[i].offset > done ? sorted[i].offset : done;
		uint64_t end = sorted[i].offset + sorted[i].bytes;

		while (at < end) {
			bool data;
			uint64_t next = image_run_end(p->img, at, end, &data);
			int r;

			r = add_run(p, (struct pager_run){.start = at, .end = next, .hole = !data},
				&room, err);
			if (r < 0)
				return r;
			at = next;
		}
		done = at > done ? at : done;
	}
	return 0;
}

int pager_plan(struct pager *p, const struct snapshot_ranges *wset, struct err *err)
{
	cleanup_free uint64_t *seen = NULL;
	cleanup_free struct snapshot_range *sorted = NULL;
	size_t room = 0;
	int r;

	if (!wset || wset->n == 0)
		return 0;
	r = check(p, wset, err);
	if (r < 0)
		return r;
	seen = calloc(p->bytes / IMAGE_PAGE / 64 + 1, sizeof(*seen));
	sorted = calloc(wset->n, sizeof(*sorted));
	if (!seen || !sorted)
		return err_set(err, ENOMEM, "pager: no memory for the working set");
	for (size_t i = 0; i < wset->n && r == 0; i++)
		r = add_frames(p, wset->ranges[i].offset,
			wset->ranges[i].offset + wset->ranges[i].bytes, seen, &room, err);
	if (r < 0)
		return r;
	memcpy(sorted, wset->ranges, wset->n * sizeof(*sorted));
	qsort(sorted, wset->n, sizeof(*sorted), compare_ranges);
	return add_runs(p, sorted, wset->n, err);
}

bool pager_prefetch_one(struct pager *p, struct pager_worker *w)
{
	size_t i = atomic_load_explicit(&p->next_prefetch, memory_order_relaxed);

	if (i >= p->n_prefetch)
		return false;
	i = atomic_fetch_add_explicit(&p->next_prefetch, 1, memory_order_relaxed);
	if (i < p->n_prefetch) {
		struct err err;

		if (pager_fill(p, w, p->prefetch[i], &err) < 0)
			pager_set_error(
				p, &err); /* a machine that needs it meets the failure itself */
	}
	return true;
}

void pager_record(struct pager *p, uint64_t page)
{
	pthread_mutex_lock(&p->record_lock);
	if (!bit_get(p->recorded, page)) {
		if (p->n_order == p->max_order) {
			size_t max = p->max_order ? p->max_order * 2 : 4096;
			uint64_t *more = reallocarray(p->order, max, sizeof(*more));

			if (more) {
				p->order = more;
				p->max_order = max;
			}
		}
		if (p->n_order < p->max_order) {
			bit_set(p->recorded, page);
			p->order[p->n_order++] = page;
		}
	}
	pthread_mutex_unlock(&p->record_lock);
}

int pager_recorded(struct pager *p, struct snapshot_ranges *ret, struct err *err)
{
	struct snapshot_ranges set = {0};

	if (!p->opt.record)
		return err_set(err, EINVAL, "this pager does not record");
	pthread_mutex_lock(&p->record_lock);
	set.ranges = calloc(p->n_order ?: 1, sizeof(*set.ranges));
	for (size_t i = 0; set.ranges && i < p->n_order; i++) {
		uint64_t offset = p->order[i] * IMAGE_PAGE;
		struct snapshot_range *last = set.n ? &set.ranges[set.n - 1] : NULL;

		bit_clear(p->recorded, p->order[i]);
		if (last && last->offset + last->bytes == offset)
			last->bytes += IMAGE_PAGE;
		else
			set.ranges[set.n++] =
				(struct snapshot_range){.offset = offset, .bytes = IMAGE_PAGE};
	}
	if (set.ranges)
		p->n_order = 0;
	pthread_mutex_unlock(&p->record_lock);
	if (!set.ranges)
		return err_set(err, ENOMEM, "pager: no memory for the recorded pages");
	*ret = set;
	return 0;
}
