/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One machine as the pager serves it: handshake, working set, faults, removed pages.
 *
 * What a page holds is decided, and answered, in one turn: only the holder of `turn` reads the
 * machine's userfaultfd and answers on it. The kernel lets a thread in madvise(MADV_DONTNEED) go on
 * only once its REMOVE event was read, so between a decision and its answer nothing can be removed;
 * and as all events of a batch are applied before its faults are served, an answer never brings
 * back what was removed. A removed page reads as zero for ever after. An answer refused with EAGAIN
 * means that an event waits: it is read, and the decision is made anew.
 *
 * Fail closed: a machine that cannot be given what its snapshot holds gets nothing. The pager shuts
 * its end of the machine's socket. The machine watches the other end, and kills itself. The
 * userfaultfd stays open until that other end is closed. The faulting thread is never woken.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/sock.h"
#include "restore/pager/pager_private.h"
#include "restore/pager/uffd.h"

#define BATCHES 8 /* read in one turn before others have theirs */
#define TURN_NS 10000000 /* to take in a removal of all memory takes a tenth of that */
#define AGAINS                                                                                     \
	64 /* answers refused with EAGAIN in one turn, before its faults are sent round again */

struct pager_machine *pager_machine_new(int sock)
{
	struct pager_machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_init(&m->turn, NULL);
	m->sock = sock;
	m->uffd = m->own_in = -1;
	return m;
}

void pager_machine_free(struct pager_machine *m)
{
	if (m->sock >= 0)
		close(m->sock);
	if (m->uffd >= 0)
		close(m->uffd);
	pthread_mutex_destroy(&m->turn);
	free(m->mapped);
	free(m->removed);
	pager_own_clear(m);
	close_fd(&m->own_in);
	free(m->own_pages);
	free(m);
}

/* The machine must not run on. */
static void doom(struct pager *p, struct pager_machine *m, const struct err *err)
{
	m->ended = true;
	log_error("pager: a machine is ended: %s", err->text);
	pager_set_error(p, err);
	shutdown(m->sock, SHUT_WR);
}

/* ---- handshake ----------------------------------------------------------------------------- */

static int parse_region(
	const json_t *obj, uint64_t memory_bytes, struct pager_region *ret, struct err *err)
{
	uint64_t base, size, offset, page;
	int r;

	if (!json_is_object(obj))
		return err_set(err, EINVAL, "a region is not an object");
	if ((r = json_get_u64(obj, "base_host_virt_addr", 1, INT64_MAX, &base, err)) < 0 ||
		(r = json_get_u64(obj, "size", IMAGE_PAGE, memory_bytes, &size, err)) < 0 ||
		(r = json_get_u64(obj, "offset", 0, memory_bytes, &offset, err)) < 0 ||
		(r = json_get_u64(obj, "page_size", IMAGE_PAGE, IMAGE_PAGE, &page, err)) < 0)
		return r;
	if (base % IMAGE_PAGE || size % IMAGE_PAGE || offset % IMAGE_PAGE)
		return err_set(err, EINVAL, "a region is not whole pages");
	if (offset > memory_bytes - size)
		return err_set(err, EINVAL, "a region ends past the memory");
	if (base > INT64_MAX - size)
		return err_set(err, EINVAL, "a region's addresses wrap");
	*ret = (struct pager_region){.base = base, .start = offset, .end = offset + size};
	return 0;
}

static bool overlap(const struct pager_region *a, const struct pager_region *b)
{
	return (a->start < b->end && b->start < a->end) ||
		(a->base < b->base + (b->end - b->start) &&
			b->base < a->base + (a->end - a->start));
}

int pager_regions_parse(const void *text, size_t len, uint64_t memory_bytes,
	struct pager_region ret[static LIMIT_REGIONS], unsigned *ret_n, struct err *err)
{
	cleanup_json json_t *list = NULL;
	size_t n;
	int r = json_parse("handshake", text, len, &list, err);

	if (r < 0)
		return r;
	n = json_array_size(list);
	if (n == 0 || n > LIMIT_REGIONS)
		return err_set(
			err, EINVAL, "handshake: not a list of 1 to %d regions", LIMIT_REGIONS);
	for (size_t i = 0; i < n; i++) {
		r = parse_region(json_array_get(list, i), memory_bytes, &ret[i], err);
		if (r < 0) {
			err_prefix(err, "handshake");
			return r;
		}
		for (size_t j = 0; j < i; j++) {
			if (overlap(&ret[i], &ret[j]))
				return err_set(err, EINVAL, "handshake: regions overlap");
		}
	}
	*ret_n = (unsigned)n;
	return 0;
}

/* 1: done, 0: nothing there yet, -errno. */
static int handshake(struct pager *p, struct pager_machine *m, struct err *err)
{
	char text[PAGER_HANDSHAKE];
	int fds[1] = {-1};
	size_t n_fds = 1, words = p->bytes / IMAGE_PAGE / 64 + 1;
	ssize_t n = sock_recv_fds(m->sock, text, sizeof(text), fds, &n_fds);
	int r;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n < 0 ? err_sys(err, (int)-n, "handshake")
			     : err_set(err, ECONNRESET, "handshake: the machine is gone");
	if (n_fds == 1)
		m->uffd = fds[0];
	if (n_fds != 1)
		return err_set(err, EPROTO, "handshake: no userfaultfd came with it");
	if ((r = uffd_check(m->uffd, err)) < 0 ||
		(r = pager_regions_parse(
			 text, (size_t)n, p->bytes, m->regions, &m->n_regions, err)) < 0)
		return r;
	fcntl(m->uffd, F_SETFL, O_NONBLOCK);
	m->mapped = calloc(words, sizeof(*m->mapped));
	m->removed = calloc(words, sizeof(*m->removed));
	if (!m->mapped || !m->removed)
		return err_set(err, ENOMEM, "handshake: no memory for the machine's tables");
	return 1;
}

/* ---- events -------------------------------------------------------------------------------- */

static const struct pager_region *region_at(const struct pager_machine *m, uint64_t addr)
{
	for (unsigned i = 0; i < m->n_regions; i++) {
		const struct pager_region *g = &m->regions[i];

		if (addr >= g->base && addr - g->base < g->end - g->start)
			return g;
	}
	return NULL;
}

static void bits_fill(uint64_t *map, uint64_t from, uint64_t to, bool value)
{
	while (from < to) {
		uint64_t end = (from / 64 + 1) * 64, bits;

		if (end > to)
			end = to;
		bits = (end - from == 64 ? UINT64_MAX : (1ULL << (end - from)) - 1) << from % 64;
		map[from / 64] = value ? map[from / 64] | bits : map[from / 64] & ~bits;
		from = end;
	}
}

static void remove_pages(struct pager_machine *m, uint64_t from, uint64_t to)
{
	for (unsigned i = 0; i < m->n_regions; i++) {
		const struct pager_region *g = &m->regions[i];
		uint64_t a = from > g->base ? from - g->base : 0;
		uint64_t b = to > g->base ? to - g->base : 0;

		if (b > g->end - g->start)
			b = g->end - g->start;
		a = (g->start + a) / IMAGE_PAGE;
		b = (g->start + b + IMAGE_PAGE - 1) / IMAGE_PAGE;
		if (a >= b)
			continue;
		bits_fill(m->removed, a, b, true);
		bits_fill(m->mapped, a, b, false);
		m->any_removed = true;
	}
}

ssize_t pager_machine_read(struct pager_machine *m)
{
	struct uffd_msg msgs[PAGER_MSGS];
	ssize_t n = uffd_read(m->uffd, msgs, PAGER_MSGS);

	for (ssize_t i = 0; i < n; i++) {
		if (msgs[i].event == UFFD_EVENT_REMOVE)
			remove_pages(m, msgs[i].arg.remove.start, msgs[i].arg.remove.end);
	}
	for (ssize_t i = 0; i < n; i++) {
		if (msgs[i].event != UFFD_EVENT_PAGEFAULT)
			continue;
		if (m->n_queue < PAGER_QUEUE)
			m->queue[m->n_queue++] = msgs[i];
		else /* no room: it faults again, and is read later */
			uffd_wake(m->uffd, msgs[i].arg.pagefault.address & -(uint64_t)IMAGE_PAGE,
				IMAGE_PAGE);
	}
	return n;
}

/* ---- answers ------------------------------------------------------------------------------- */

static enum pager_kind kind_of(
	const struct pager *p, const struct pager_machine *m, uint64_t offset)
{
	if (bit_get(m->removed, offset / IMAGE_PAGE))
		return PAGE_REMOVED;
	if (m->own_pages && bit_get(m->own_pages, offset / IMAGE_PAGE))
		return PAGE_OWN;
	return image_page_has_data(p->img, offset) ? PAGE_DATA : PAGE_HOLE;
}

/*
 * Map [@start, @end) of the region: pages of the file, or zero pages. Pages that are there already
 * are stepped over and their waiters woken. DONE, or what stopped it; *@ret_mapped counts pages.
 */
static enum uffd_result map_range(struct pager_machine *m, const struct pager_region *g,
	uint64_t start, uint64_t end, bool zero, uint64_t *ret_mapped)
{
	uint64_t at = start;

	while (at < end) {
		uint64_t addr = g->base + (at - g->start), done;
		enum uffd_result r = zero ? uffd_zeropage(m->uffd, addr, end - at, &done)
					  : uffd_continue(m->uffd, addr, end - at, &done);

		if (done == 0 && r == UFFD_EXISTS) {
			r = uffd_wake(m->uffd, addr, IMAGE_PAGE);
			bit_set(m->mapped, at / IMAGE_PAGE);
			at += IMAGE_PAGE;
			if (r != UFFD_DONE)
				return r;
			continue;
		}
		if (done == 0)
			return r == UFFD_DONE ? UFFD_BROKEN : r;
		for (uint64_t page = at / IMAGE_PAGE; page < (at + done) / IMAGE_PAGE; page++)
			bit_set(m->mapped, page);
		*ret_mapped += done / IMAGE_PAGE;
		at += done;
	}
	return UFFD_DONE;
}

/* May the neighbour at @offset be mapped in the same answer as a page that is zero, or data? */
static bool joins(struct pager *p, const struct pager_machine *m, uint64_t offset, bool zero)
{
	if (bit_get(m->mapped, offset / IMAGE_PAGE))
		return false;
	switch (kind_of(p, m, offset)) {
	case PAGE_DATA:
		return !zero && pager_filled(p, offset);
	case PAGE_OWN:
		return false;
	default:
		return zero;
	}
}

/* The window around @offset: pages of its kind, next to each other, not mapped yet. */
static void window(struct pager *p, const struct pager_machine *m, const struct pager_region *g,
	uint64_t offset, bool zero, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t low = offset / p->window * p->window, high = low + p->window;
	uint64_t start = offset, end = offset + IMAGE_PAGE;

	if (low < g->start)
		low = g->start;
	if (high > g->end)
		high = g->end;
	while (start > low && joins(p, m, start - IMAGE_PAGE, zero))
		start -= IMAGE_PAGE;
	while (end < high && joins(p, m, end, zero))
		end += IMAGE_PAGE;
	*ret_start = start;
	*ret_end = end;
}

static void count_fault(struct pager *p, const struct uffd_msg *msg, enum pager_kind kind)
{
	STAT_ADD(p, faults, 1);
	if (msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR)
		STAT_ADD(p, minor, 1);
	else
		STAT_ADD(p, missing, 1);
	if (kind == PAGE_HOLE)
		STAT_ADD(p, hole, 1);
	else if (kind == PAGE_REMOVED)
		STAT_ADD(p, removed, 1);
}

/* One answer to the fault at @offset. */
static enum uffd_result answer(struct pager *p, struct pager_machine *m,
	const struct pager_region *g, uint64_t offset, enum pager_kind kind, uint64_t *ret_pages)
{
	uint64_t start, end, pages = 0;
	bool zero = kind != PAGE_DATA;
	enum uffd_result r;

	window(p, m, g, offset, zero, &start, &end);
	r = map_range(m, g, start, end, zero, &pages);
	if (zero)
		STAT_ADD(p, zeroed, pages);
	else
		STAT_ADD(p, continued, pages);
	*ret_pages = pages;
	return r;
}

static void trace_fault(struct pager *p, const struct pager_machine *m, const struct uffd_msg *msg,
	enum pager_kind kind, struct pager_trace_entry *e)
{
	e->kind = kind == PAGE_HOLE    ? PAGER_TRACE_HOLE
		: kind == PAGE_REMOVED ? PAGER_TRACE_REMOVED
				       : PAGER_TRACE_DATA;
	e->machine = m->generation;
	e->minor = msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR;
	e->write = msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE;
	pager_trace_add(p, *e);
}

static void serve_fault(struct pager *p, struct pager_worker *w, struct pager_machine *m,
	const struct uffd_msg *msg)
{
	uint64_t addr = msg->arg.pagefault.address & -(uint64_t)IMAGE_PAGE;
	const struct pager_region *g = region_at(m, addr);
	uint64_t offset = g ? g->start + (addr - g->base) : 0, pages = 0;
	struct pager_trace_entry traced = {.begin = pager_trace_now(p), .offset = offset};
	enum pager_kind kind = PAGE_HOLE;
	struct err err;

	if (!g) {
		err_set(&err, EPROTO, "it faulted at %#" PRIx64 ", outside its regions", addr);
		doom(p, m, &err);
		return;
	}
	for (;;) {
		enum uffd_result r;

		kind = kind_of(p, m, offset);
		traced.filled |= kind == PAGE_DATA && !pager_filled(p, offset);
		if (kind == PAGE_DATA && pager_fill(p, w, offset, &err) < 0) {
			doom(p, m, &err);
			return;
		}
		if (kind != PAGE_OWN)
			r = answer(p, m, g, offset, kind, &pages);
		else if (pager_own_answer(p, m, addr, offset, &r, &err) < 0) {
			doom(p, m, &err);
			return;
		}
		traced.pages += (uint32_t)pages;
		if (r == UFFD_DONE)
			break;
		if (r == UFFD_GONE) {
			m->ended = true; /* its socket closes in a moment */
			return;
		}
		if (r == UFFD_BROKEN) {
			err_set(&err, EPROTO, "a page at %" PRIu64 " could not be mapped", offset);
			doom(p, m, &err);
			return;
		}
		if (r == UFFD_AGAIN) {
			ssize_t n = pager_machine_read(m);

			/* one that goes on removing pages must not keep us from its siblings */
			if (n == 0)
				sched_yield();
			if (n >= 0 && ++m->refusals < AGAINS && clock_now_ns() < m->turn_ends)
				continue;
		}
		/* not now: it is woken, faults again, and comes back in its turn */
		uffd_wake(m->uffd, addr, IMAGE_PAGE);
		return;
	}
	count_fault(p, msg, kind);
	if (p->opt.trace)
		trace_fault(p, m, msg, kind, &traced);
	if (p->opt.record && kind != PAGE_REMOVED && kind != PAGE_OWN)
		pager_record(p, offset / IMAGE_PAGE);
}

static void serve_queue(struct pager *p, struct pager_worker *w, struct pager_machine *m)
{
	while (m->n_queue && !m->ended) {
		struct uffd_msg msg = m->queue[0];

		memmove(m->queue, m->queue + 1, --m->n_queue * sizeof(msg));
		serve_fault(p, w, m, &msg);
	}
}

static void turn_begin(struct pager_machine *m)
{
	m->refusals = 0;
	m->turn_ends = clock_now_ns() + TURN_NS;
}

bool pager_machine_faults(struct pager *p, struct pager_worker *w, struct pager_machine *m)
{
	bool again;

	pthread_mutex_lock(&m->turn);
	turn_begin(m);
	for (int i = 0; i < BATCHES && !m->ended; i++) {
		ssize_t n = pager_machine_read(m);

		if (n < 0)
			m->ended = true;
		if (n <= 0 && m->n_queue == 0)
			break;
		serve_queue(p, w, m);
		if (n < PAGER_MSGS || clock_now_ns() >= m->turn_ends)
			break;
	}
	again = !m->ended;
	pthread_mutex_unlock(&m->turn);
	return again;
}

/* ---- attaching ----------------------------------------------------------------------------- */

/* One run of the plan in one region: what is not there already. False: leave the rest to faults. */
static bool premap_run(struct pager *p, struct pager_machine *m, const struct pager_region *g,
	const struct pager_run *run, uint64_t *ret_pages)
{
	uint64_t start = run->start > g->start ? run->start : g->start;
	uint64_t end = run->end < g->end ? run->end : g->end, pages = 0;
	enum uffd_result r = UFFD_DONE;

	for (uint64_t at = start, stop; r == UFFD_DONE && at < end; at = stop) {
		stop = at + IMAGE_PAGE;
		if (bit_get(m->mapped, at / IMAGE_PAGE))
			continue;
		while (stop < end && !bit_get(m->mapped, stop / IMAGE_PAGE))
			stop += IMAGE_PAGE;
		r = map_range(m, g, at, stop, run->hole, &pages);
	}
	STAT_ADD(p, premapped, pages);
	*ret_pages += pages;
	if (run->hole)
		STAT_ADD(p, zeroed, pages);
	else
		STAT_ADD(p, continued, pages);
	return r == UFFD_DONE;
}

/* The machine may run on meanwhile (it need not wait for our "ok"): its faults come first. */
bool pager_machine_between(struct pager *p, struct pager_worker *w, struct pager_machine *m)
{
	if (pager_machine_read(m) < 0)
		return false;
	turn_begin(m);
	serve_queue(p, w, m);
	return !m->ended;
}

/* The plan knows nothing of removed pages. */
static bool serve_between(struct pager *p, struct pager_worker *w, struct pager_machine *m)
{
	return pager_machine_between(p, w, m) && !m->any_removed;
}

/* Map the working set; *@ret_pages: how many. What is refused on the way is left to faults; only a
 * damaged frame is a failure. */
static int premap(struct pager *p, struct pager_worker *w, struct pager_machine *m,
	uint64_t *ret_pages, struct err *err)
{
	bool going = !m->any_removed;

	/* help whoever fills, then wait for what others have in hand: all in the order it is needed
	 */
	while (going && pager_prefetch_one(p, w))
		going = serve_between(p, w, m);
	for (size_t i = 0; i < p->n_prefetch && going; i++) {
		int r;

		if (pager_filled(p, p->prefetch[i]))
			continue;
		r = pager_fill(p, w, p->prefetch[i], err);
		if (r < 0)
			return r;
		going = serve_between(p, w, m);
	}
	for (size_t i = 0; i < p->n_plan && going; i++) {
		for (unsigned g = 0; g < m->n_regions && going; g++)
			going = premap_run(p, m, &m->regions[g], &p->plan[i], ret_pages);
		going = going && serve_between(p, w, m);
	}
	return 0;
}

static int attach(struct pager *p, struct pager_worker *w, struct pager_machine *m, struct err *err)
{
	struct pager_trace_entry traced = {.begin = pager_trace_now(p), .machine = m->generation};
	uint64_t pages = 0;
	int r = handshake(p, m, err);

	if (r <= 0)
		return r;
	r = pager_own_install(p, w, m, err);
	if (r == 0 && !p->opt.no_premap)
		r = premap(p, w, m, &pages, err);
	if (r < 0)
		return r;
	traced.pages = (uint32_t)pages;
	if (p->opt.trace)
		pager_trace_add(p, traced);
	serve_queue(p, w, m);
	if (m->ended)
		return 0;
	m->serving = true;
	r = sock_send_fds(m->sock, "ok\n", 3, NULL, 0);
	if (r < 0)
		return err_sys(err, -r, "answer the handshake");
	return pager_machine_serve(p, m, err);
}

bool pager_machine_socket(struct pager *p, struct pager_worker *w, struct pager_machine *m)
{
	struct err err;
	bool again = true;
	char byte;

	pthread_mutex_lock(&m->turn);
	if (!m->serving && !m->ended) {
		int r = attach(p, w, m, &err);

		if (r == -ECONNRESET || r == -EPIPE)
			again = false;
		else if (r < 0)
			doom(p, m, &err);
	} else {
		ssize_t n = recv(m->sock, &byte, 1, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			again = false;
		else if (n > 0 && !m->ended) {
			err_set(&err, EPROTO, "it wrote to its pager after the handshake");
			doom(p, m, &err);
		}
	}
	pthread_mutex_unlock(&m->turn);
	return again;
}
