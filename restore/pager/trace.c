/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pager's trace: what it did and when, for measuring the parts of a create. Each handshake with
 * its working set and each fault is kept until the trace is fetched. Only a pager that was started
 * with the option does this; any other pager does not even read the clock.
 *
 * As JSON a trace is {"lost":N,"entries":[[begin,end,offset,pages,machine,kind,flags],…]}.
 */
#include <stdlib.h>

#include "common/clock.h"
#include "restore/pager/pager_private.h"
#include "restore/pager/limits.h"

enum { FLAG_MINOR = 1, FLAG_WRITE = 2, FLAG_FILLED = 4, FLAGS = 7 };
enum { AT_BEGIN, AT_END, AT_OFFSET, AT_PAGES, AT_MACHINE, AT_KIND, AT_FLAGS, N_FIELDS };

void pager_trace_clear(struct pager_trace *t)
{
	free(t->entries);
	*t = (struct pager_trace){0};
}

int64_t pager_trace_now(const struct pager *p)
{
	return p->opt.trace ? clock_now_ns() : 0;
}

static bool make_room(struct pager *p)
{
	size_t max = p->max_traced ? p->max_traced * 2 : 1024;
	struct pager_trace_entry *more;

	if (p->traced.n < p->max_traced)
		return true;
	if (p->traced.n >= LIMIT_PAGER_TRACE)
		return false;
	more = reallocarray(p->traced.entries, max, sizeof(*more));
	if (!more)
		return false;
	p->traced.entries = more;
	p->max_traced = max;
	return true;
}

void pager_trace_add(struct pager *p, struct pager_trace_entry e)
{
	e.end = clock_now_ns();
	pthread_mutex_lock(&p->record_lock);
	if (make_room(p))
		p->traced.entries[p->traced.n++] = e;
	else
		p->traced.lost++;
	pthread_mutex_unlock(&p->record_lock);
}

int pager_traced(struct pager *p, struct pager_trace *ret, struct err *err)
{
	if (!p->opt.trace)
		return err_set(err, EINVAL, "this pager does not trace");
	pthread_mutex_lock(&p->record_lock);
	*ret = p->traced;
	p->traced = (struct pager_trace){0};
	p->max_traced = 0;
	pthread_mutex_unlock(&p->record_lock);
	return 0;
}

json_t *pager_trace_to_json(const struct pager_trace *t)
{
	json_t *entries = json_array(), *obj;

	for (size_t i = 0; i < t->n; i++) {
		const struct pager_trace_entry *e = &t->entries[i];
		int flags = (e->minor ? FLAG_MINOR : 0) | (e->write ? FLAG_WRITE : 0) |
			(e->filled ? FLAG_FILLED : 0);

		json_array_append_new(entries,
			json_pack("[I, I, I, I, I, i, i]", (json_int_t)e->begin, (json_int_t)e->end,
				(json_int_t)e->offset, (json_int_t)e->pages, (json_int_t)e->machine,
				(int)e->kind, flags));
	}
	obj = json_pack("{s:I, s:o}", "lost", (json_int_t)t->lost, "entries", entries);
	if (!obj)
		abort(); /* no memory */
	return obj;
}

static int parse_entry(const json_t *list, struct pager_trace_entry *ret, struct err *err)
{
	static const json_int_t max[N_FIELDS] = {
		[AT_BEGIN] = INT64_MAX,
		[AT_END] = INT64_MAX,
		[AT_OFFSET] = LIMIT_MEMORY_MAX,
		[AT_PAGES] = UINT32_MAX,
		[AT_MACHINE] = UINT32_MAX,
		[AT_KIND] = PAGER_TRACE_KINDS - 1,
		[AT_FLAGS] = FLAGS,
	};
	json_int_t field[N_FIELDS];

	if (json_array_size(list) != N_FIELDS)
		return err_set(
			err, EPROTO, "a pager's trace: an entry is not %d numbers", N_FIELDS);
	for (size_t i = 0; i < N_FIELDS; i++) {
		const json_t *one = json_array_get(list, i);

		field[i] = json_integer_value(one);
		if (!json_is_integer(one) || field[i] < 0 || field[i] > max[i])
			return err_set(err, EPROTO, "a pager's trace: a number is out of range");
	}
	*ret = (struct pager_trace_entry){
		.begin = field[AT_BEGIN],
		.end = field[AT_END],
		.offset = (uint64_t)field[AT_OFFSET],
		.pages = (uint32_t)field[AT_PAGES],
		.machine = (uint32_t)field[AT_MACHINE],
		.kind = (enum pager_trace_kind)field[AT_KIND],
		.minor = field[AT_FLAGS] & FLAG_MINOR,
		.write = field[AT_FLAGS] & FLAG_WRITE,
		.filled = field[AT_FLAGS] & FLAG_FILLED,
	};
	return 0;
}

int pager_trace_from_json(const json_t *obj, struct pager_trace *ret, struct err *err)
{
	cleanup_pager_trace struct pager_trace t = {0};
	const json_t *entries = json_object_get(obj, "entries");
	size_t n = json_array_size(entries);
	int r = json_get_u64(obj, "lost", 0, INT64_MAX, &t.lost, err);

	if (r < 0)
		return r;
	if (!json_is_array(entries) || n > LIMIT_PAGER_TRACE)
		return err_set(err, EPROTO, "a pager's trace: not a list of at most %d entries",
			LIMIT_PAGER_TRACE);
	t.entries = calloc(n ?: 1, sizeof(*t.entries));
	if (!t.entries)
		return err_set(err, ENOMEM, "no memory for a pager's trace");
	for (; t.n < n; t.n++) {
		r = parse_entry(json_array_get(entries, t.n), &t.entries[t.n], err);
		if (r < 0)
			return r;
	}
	*ret = t;
	t = (struct pager_trace){0};
	return 0;
}
