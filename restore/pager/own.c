/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's own pages: the memory delta of the checkpoint that it was restored from.
 *
 * The pages are given to the machine when it attaches, before the "ok" and before anything of the
 * working set, as pages that it shares with nobody (UFFDIO_COPY, or zero pages). The machine may
 * touch its memory meanwhile, so a fault in one of these pages is answered from the delta too. One
 * function, kind_of(), decides for all answers what a page holds, so no window and no run of the
 * working set maps the template's page where the delta has one. Removed pages stay removed here as
 * elsewhere.
 *
 * A page that was given to the machine goes away only by removal. So when all pages are given, the
 * delta is freed. The map that says which pages these are stays, and a fault that was on its way to
 * one of them is woken. The process that made the machine is then told (own_in): until that moment
 * the machine's memory is not complete, and its checkpoint is still needed.
 *
 * Where the host has no memory for a page just now, that may pass: it is tried again for a while.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "common/clock.h"
#include "common/fault.h"
#include "restore/pager/memory_delta.h"
#include "restore/pager/pager_private.h"
#include "restore/pager/uffd.h"

#define STUCK_MS                                                                                   \
	5000 /* no page can be given for so long: its removals do not end, or the host has no memory */
#define PAUSE_NS 50000 /* what is in the way has to run before the next try */

int pager_own_set(struct pager *p, struct pager_machine *m, struct memory_delta *d, struct err *err)
{
	m->own = d;
	m->own_pages = calloc(p->bytes / IMAGE_PAGE / 64 + 1, sizeof(*m->own_pages));
	m->own_frame = d->img ? malloc(image_frame_bytes(d->img) + 1) : NULL;
	if (!m->own_pages || (d->img && !m->own_frame))
		return err_set(err, ENOMEM, "pager: no memory for a machine's own pages");
	for (size_t i = 0; i < d->n; i++) {
		for (uint64_t at = d->pieces[i].start; at < d->pieces[i].end; at += IMAGE_PAGE)
			bit_set(m->own_pages, at / IMAGE_PAGE);
	}
	return 0;
}

void pager_own_clear(struct pager_machine *m)
{
	memory_delta_free(m->own);
	m->own = NULL;
	free(m->own_frame);
	m->own_frame = NULL;
}

int pager_own_answer(struct pager *p, struct pager_machine *m, uint64_t addr, uint64_t offset,
	enum uffd_result *ret, struct err *err)
{
	uint64_t at, start, len, done;
	int r;

	if (!m->own || !memory_delta_find(m->own, offset, &at)) {
		*ret = uffd_wake(m->uffd, addr, IMAGE_PAGE);
		return 0;
	}
	if (image_page_has_data(m->own->img, at)) {
		image_frame_at(m->own->img, at, &start, &len);
		r = image_read_frame(m->own->img, start, m->own_frame, err);
		if (r < 0) {
			err_prefix(err, "the machine's own pages");
			return r;
		}
		*ret = uffd_copy(m->uffd, addr, m->own_frame + (at - start), IMAGE_PAGE, &done);
	} else {
		*ret = uffd_zeropage(m->uffd, addr, IMAGE_PAGE, &done);
	}
	if (*ret == UFFD_EXISTS)
		*ret = uffd_wake(m->uffd, addr, IMAGE_PAGE);
	else if (*ret == UFFD_DONE)
		STAT_ADD(p, own, 1);
	if (*ret == UFFD_DONE)
		bit_set(m->mapped, offset / IMAGE_PAGE);
	return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

struct install {
	struct pager *pager;
	struct pager_worker *worker;
	struct pager_machine *machine;
	struct err *err;
};

static int refused(enum uffd_result r, uint64_t offset, struct err *err)
{
	if (r == UFFD_GONE)
		return err_set(err, ECONNRESET, "the machine is gone");
	return err_set(err, r == UFFD_NO_MEMORY ? ENOMEM : EPROTO,
		"its own page at %llu could not be given to it (%s)", (unsigned long long)offset,
		uffd_result_name(r));
}

static bool is_given(const struct pager_machine *m, uint64_t offset)
{
	return bit_get(m->mapped, offset / IMAGE_PAGE) || bit_get(m->removed, offset / IMAGE_PAGE);
}

/* [@start, @end) of the region, all of it data (@bytes) or zeros (NULL). */
static int give(struct install *in, const struct pager_region *g, uint64_t start, uint64_t end,
	const uint8_t *bytes)
{
	struct pager_machine *m = in->machine;
	int64_t stuck = 0; /* when to give up; 0: it goes on */

	for (uint64_t at = start; at < end;) {
		uint64_t addr = g->base + (at - g->start), stop = at, done = 0;
		enum uffd_result r;

		if (is_given(m, at)) {
			at += IMAGE_PAGE;
			continue;
		}
		while (stop < end && !is_given(m, stop))
			stop += IMAGE_PAGE;
		r = bytes ? uffd_copy(m->uffd, addr, bytes + (at - start), stop - at, &done)
			  : uffd_zeropage(m->uffd, addr, stop - at, &done);
		for (uint64_t page = at / IMAGE_PAGE; page < (at + done) / IMAGE_PAGE; page++)
			bit_set(m->mapped, page);
		STAT_ADD(in->pager, own, done / IMAGE_PAGE);
		at += done;
		if (done || r == UFFD_DONE) {
			stuck = 0;
		} else if (r == UFFD_EXISTS) {
			uffd_wake(m->uffd, addr, IMAGE_PAGE);
			bit_set(m->mapped, at / IMAGE_PAGE);
		} else if ((r == UFFD_AGAIN || r == UFFD_NO_MEMORY) &&
			!(stuck && clock_now_ns() > stuck)) {
			ssize_t n = pager_machine_read(m);

			/* a removal waits to be read: what is still to be given changes. Or it was
			 * read, and its thread, which a busy host lets wait, has not gone on. Or
			 * memory is short for a moment. */
			if (n < 0)
				return refused(UFFD_GONE, at, in->err);
			if (n == 0)
				nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
			if (!stuck)
				stuck = clock_deadline(STUCK_MS);
		} else {
			return refused(r, at, in->err);
		}
	}
	return 0;
}

static int install_run(void *user, uint64_t offset, uint64_t len, const uint8_t *bytes)
{
	struct install *in = user;
	struct pager_machine *m = in->machine;
	int r = fault_point("restore.pager.own");

	if (r < 0)
		return refused(UFFD_NO_MEMORY, offset, in->err);
	for (unsigned i = 0; r == 0 && i < m->n_regions; i++) {
		const struct pager_region *g = &m->regions[i];
		uint64_t start = offset > g->start ? offset : g->start;
		uint64_t end = offset + len < g->end ? offset + len : g->end;

		if (start < end)
			r = give(in, g, start, end, bytes ? bytes + (start - offset) : NULL);
	}
	if (r == 0)
		r = pager_machine_between(in->pager, in->worker, m)
			? 0
			: err_set(in->err, ECONNRESET, "the machine is gone");
	return r;
}

int pager_own_install(
	struct pager *p, struct pager_worker *w, struct pager_machine *m, struct err *err)
{
	struct install in = {.pager = p, .worker = w, .machine = m, .err = err};
	int r;

	if (!m->own)
		return 0;
	r = memory_delta_walk(m->own, install_run, &in, err);
	if (r < 0) {
		err_prefix(err, "the machine's own pages");
		return r;
	}
	for (size_t i = 0; i < m->own->n; i++) {
		const struct memory_delta_piece *piece = &m->own->pieces[i];

		for (uint64_t at = piece->start; at < piece->end; at += IMAGE_PAGE) {
			if (!is_given(m, at))
				return err_set(err, EPROTO,
					"handshake: its regions leave out a page of its own, at "
					"%llu",
					(unsigned long long)at);
		}
	}
	pager_own_clear(m);
	if (m->own_in >= 0) /* who does not listen any more does not ask */
		send(m->own_in, "1", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close_fd(&m->own_in);
	return 0;
}
