/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pager's engine: its threads, and the machines that they serve.
 *
 * Each machine has two descriptors in one epoll, its socket and its userfaultfd, both one-shot: the
 * thread that gets an event has that descriptor to itself until it arms the descriptor again. So
 * one machine never occupies more than one thread with faults (a monitor that a guest has taken
 * over can make its own answers slow, but not those of other machines), and within a machine the
 * order is plain. To give a machine its own pages may take long, so such attaches have threads of
 * their own; where there are too many of them, they wait for a thread. Idle workers fill the
 * working set's frames. Each frame is filled once, by whichever thread needs it first (fill.c).
 *
 * A machine leaves when its end of the socket closes: only then is its userfaultfd closed here.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "restore/pager/memory_delta.h"
#include "restore/pager/pager_private.h"
#include "restore/pager/uffd.h"
#include "restore/pager/limits.h"

#define WINDOW_DEFAULT (64 * KIB)
#define WINDOW_MAX (4 * MIB)
#define STOP_WAIT_MS 1000 /* for machines to die of their closed sockets at pager_free() */

/* What epoll gives back: generation, slot, and which of the two descriptors. */
#define EVENT_STOP UINT64_MAX
#define EVENT(m, is_uffd) ((uint64_t)(m)->generation << 32 | (uint64_t)(m)->slot << 1 | (is_uffd))

/* ---- probing ------------------------------------------------------------------------------- */

/* One page that a sealed file holds, one that it lacks, through a private mapping. */
static int self_test(int uffd, struct err *err)
{
	cleanup_fd int fd = memfd_create("parbake-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t page = IMAGE_PAGE;
	uint64_t done;
	char *map;
	int r = 0;

	if (fd < 0 || ftruncate(fd, 2 * IMAGE_PAGE) < 0 || pwrite(fd, "x", 1, 0) != 1 ||
		fcntl(fd, F_ADD_SEALS,
			0x10 /* F_SEAL_FUTURE_WRITE */ | F_SEAL_GROW | F_SEAL_SHRINK) < 0)
		return err_sys(err, errno, "userfaultfd: make a sealed memfd to try it with");
	map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(err, errno, "userfaultfd: map a sealed memfd privately");
	r = uffd_register(uffd, map, 2 * page);
	if (r < 0)
		r = err_sys(err, -r, "userfaultfd: register a private mapping of shared memory");
	else if (uffd_continue(uffd, (uintptr_t)map, page, &done) != UFFD_DONE ||
		uffd_zeropage(uffd, (uintptr_t)map + page, page, &done) != UFFD_DONE)
		r = err_set(err, EOPNOTSUPP,
			"userfaultfd: this kernel cannot map a page of a private mapping; "
			"Linux 5.14 or newer is needed");
	else if (map[0] != 'x' || map[page] != 0)
		r = err_set(err, EOPNOTSUPP, "userfaultfd: this kernel mapped a wrong page");
	munmap(map, 2 * page);
	return r;
}

int pager_probe(const char **ret_how, struct err *err)
{
	cleanup_fd int fd = -1;
	const char *off = getenv("PARBAKE_NO_UFFD");

	if (off && off[0] && strcmp(off, "0") != 0)
		return err_set(err, EOPNOTSUPP, "userfaultfd: PARBAKE_NO_UFFD is set");
	fd = uffd_create(ret_how, err);
	if (fd < 0)
		return fd;
	return self_test(fd, err);
}

/* ---- machines ------------------------------------------------------------------------------ */

void pager_set_error(struct pager *p, const struct err *err)
{
	pthread_mutex_lock(&p->lock);
	memcpy(&p->last_error, err, sizeof(*err));
	pthread_mutex_unlock(&p->lock);
}

void pager_get_error(struct pager *p, struct err *ret)
{
	pthread_mutex_lock(&p->lock);
	memcpy(ret, &p->last_error, sizeof(*ret));
	pthread_mutex_unlock(&p->lock);
}

int pager_event_fd(const struct pager *p)
{
	return p->idle_fd;
}

static struct pager_machine *machine_get(struct pager *p, uint64_t event)
{
	uint32_t slot = (uint32_t)event >> 1;
	struct pager_machine *m = NULL;

	pthread_mutex_lock(&p->lock);
	if (slot < p->n_slots && p->slots[slot] && p->slots[slot]->generation == event >> 32) {
		m = p->slots[slot];
		m->refs++;
	}
	pthread_mutex_unlock(&p->lock);
	return m;
}

static void machine_put(struct pager *p, struct pager_machine *m, bool leave)
{
	bool last;

	pthread_mutex_lock(&p->lock);
	if (leave && p->slots[m->slot] == m) {
		p->slots[m->slot] = NULL;
		p->n_machines--;
		m->refs--;
	}
	last = --m->refs == 0;
	pthread_mutex_unlock(&p->lock);
	if (last) {
		/* the machine holds the same open file: a close alone would leave it in the epoll
		 */
		epoll_ctl(p->epoll, EPOLL_CTL_DEL, m->sock, NULL);
		epoll_ctl(p->epoll, EPOLL_CTL_DEL, m->uffd, NULL);
		pager_machine_free(m);
	}
	if (leave && eventfd_write(p->idle_fd, 1) < 0)
		abort(); /* an eventfd of ours: a bug */
}

/* A number for it. Under no lock. */
static int machine_enter(struct pager *p, struct pager_machine *m, struct err *err)
{
	uint32_t slot = 0;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	while (slot < p->n_slots && p->slots[slot])
		slot++;
	if (slot >= LIMIT_PAGER_MACHINES) {
		r = err_set(err, EMFILE, "pager: %d machines at once is the limit",
			LIMIT_PAGER_MACHINES);
	} else if (slot == p->n_slots) {
		uint32_t n = p->n_slots ? p->n_slots * 2 : 16;
		struct pager_machine **more =
			reallocarray(p->slots, n, sizeof(struct pager_machine *));

		if (more) {
			memset(more + p->n_slots, 0, (n - p->n_slots) * sizeof(*more));
			p->slots = more;
			p->n_slots = n;
		} else {
			r = err_set(err, ENOMEM, "pager: no memory for a machine");
		}
	}
	if (r == 0) {
		m->slot = slot;
		m->generation = ++p->generation & INT32_MAX; /* never EVENT_STOP */
		m->refs = 2; /* the slot's and the caller's */
		p->slots[slot] = m;
		p->n_machines++;
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int arm(struct pager *p, struct pager_machine *m, bool is_uffd, int op)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = EVENT(m, is_uffd)};

	return epoll_ctl(p->epoll, op, is_uffd ? m->uffd : m->sock, &ev) < 0 ? -errno : 0;
}

int pager_machine_serve(struct pager *p, struct pager_machine *m, struct err *err)
{
	int r = arm(p, m, true, EPOLL_CTL_ADD);

	return r < 0 ? err_sys(err, -r, "pager: wait for a machine's faults") : 0;
}

int pager_attach(struct pager *p, int sock, struct memory_delta *own, int own_in, struct err *err)
{
	struct pager_machine *m = NULL;
	int r = 0;

	if (p->way != PAGER_UFFD)
		r = err_set(err, EOPNOTSUPP, "pager: without userfaultfd nothing attaches");
	else if (!(m = pager_machine_new(sock)))
		r = err_set(err, ENOMEM, "pager: no memory for a machine");
	if (r < 0) {
		close(sock);
		close_fd(&own_in);
		memory_delta_free(own);
		return r;
	}
	m->own_in = own_in;
	fcntl(sock, F_SETFL, O_NONBLOCK);
	r = own ? pager_own_set(p, m, own, err) : 0;
	if (r == 0)
		r = machine_enter(p, m, err);
	if (r < 0) {
		pager_machine_free(m);
		return r;
	}
	STAT_ADD(p, machines, 1);
	r = arm(p, m, false, EPOLL_CTL_ADD);
	machine_put(p, m, r < 0);
	return r < 0 ? err_sys(err, -r, "pager: wait for a machine") : 0;
}

/* The machine's socket is readable; the reference is given back. */
static void serve_socket(struct pager *p, struct pager_worker *w, struct pager_machine *m)
{
	bool stays = pager_machine_socket(p, w, m);

	if (stays)
		arm(p, m, false, EPOLL_CTL_MOD);
	machine_put(p, m, !stays);
}

struct apart {
	struct pager_worker worker;
	struct pager_machine *machine;
};

/* The next that waits; NULL: none, and the caller's thread counts no more. */
static struct pager_machine *apart_next(struct pager *p)
{
	struct pager_machine *m;

	pthread_mutex_lock(&p->lock);
	m = p->stopping ? NULL : STAILQ_FIRST(&p->apart);
	if (m) {
		STAILQ_REMOVE_HEAD(&p->apart, apart);
	} else {
		p->n_apart--;
		pthread_cond_broadcast(&p->apart_done);
	}
	pthread_mutex_unlock(&p->lock);
	return m;
}

static void *apart_main(void *arg)
{
	struct apart *a = arg;
	struct pager *p = a->worker.pager;

	for (struct pager_machine *m = a->machine; m; m = apart_next(p))
		serve_socket(p, &a->worker, m);
	free(a->worker.frame);
	free(a);
	return NULL;
}

/* With the lock, so that it does not end before it counts. */
static bool apart_start(struct pager *p, struct pager_machine *m)
{
	struct apart *a = calloc(1, sizeof(*a));
	pthread_attr_t attr;
	pthread_t id;
	struct err err;
	bool started;

	if (!a)
		return false;
	a->machine = m;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	started = pager_worker_init(&a->worker, p, &err) == 0 &&
		pthread_create(&id, &attr, apart_main, a) == 0;
	pthread_attr_destroy(&attr);
	if (started)
		return true;
	free(a->worker.frame);
	free(a);
	return false;
}

/* In a thread of its own, or in one of those there are, after others. False: there is not even one. */
static bool serve_socket_apart(struct pager *p, struct pager_machine *m)
{
	bool served;

	pthread_mutex_lock(&p->lock);
	served = p->n_apart < PAGER_APART_MAX && apart_start(p, m);
	if (served) {
		p->n_apart++;
	} else if (p->n_apart) {
		STAILQ_INSERT_TAIL(&p->apart, m, apart);
		served = true;
	}
	pthread_mutex_unlock(&p->lock);
	return served;
}

static void dispatch(struct pager *p, struct pager_worker *w, uint64_t event)
{
	struct pager_machine *m = machine_get(p, event);

	if (!m)
		return;
	if (event & 1) {
		if (pager_machine_faults(p, w, m))
			arm(p, m, true, EPOLL_CTL_MOD); /* fails where it has left meanwhile */
		machine_put(p, m, false);
	} else if (!m->own || !serve_socket_apart(p, m)) {
		serve_socket(p, w, m);
	}
}

static void *worker_main(void *arg)
{
	struct pager_worker *w = arg;
	struct pager *p = w->pager;
	bool fetching = p->way == PAGER_UFFD && !p->opt.no_premap;

	for (;;) {
		struct epoll_event ev;
		int n = epoll_wait(p->epoll, &ev, 1, fetching ? 0 : -1);

		if (n > 0 && ev.data.u64 == EVENT_STOP)
			return NULL;
		if (n > 0)
			dispatch(p, w, ev.data.u64);
		else if (fetching)
			fetching = pager_prefetch_one(p, w);
	}
}

/* ---- the whole ----------------------------------------------------------------------------- */

static unsigned default_threads(unsigned asked)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (asked)
		return asked < PAGER_WORKERS_MAX ? asked : PAGER_WORKERS_MAX;
	return cores < 1 ? 1 : cores > 4 ? 4 : (unsigned)cores;
}

static int start_workers(struct pager *p, struct err *err)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = EVENT_STOP};
	unsigned n = default_threads(p->opt.threads);

	p->epoll = epoll_create1(EPOLL_CLOEXEC);
	p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->idle_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->epoll < 0 || p->stop_fd < 0 || p->idle_fd < 0 ||
		epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->stop_fd, &ev) < 0)
		return err_sys(err, errno, "pager: make its event loop");
	p->workers = calloc(n, sizeof(*p->workers));
	if (!p->workers)
		return err_set(err, ENOMEM, "pager: no memory for its threads");
	while (p->way == PAGER_UFFD && p->n_workers < n) {
		struct pager_worker *w = &p->workers[p->n_workers];
		int r = pager_worker_init(w, p, err);

		if (r < 0)
			return r;
		r = pthread_create(&w->thread, NULL, worker_main, w);
		if (r != 0) {
			free(w->frame);
			return err_sys(err, r, "pager: start a thread");
		}
		p->n_workers++;
	}
	return 0;
}

static int check_options(struct pager *p, const struct pager_options *opt, struct err *err)
{
	if (opt)
		p->opt = *opt;
	p->window = p->opt.window_bytes ?: WINDOW_DEFAULT;
	if (p->opt.record)
		p->window = IMAGE_PAGE; /* else neighbours would hide */
	if (p->window % IMAGE_PAGE || p->window > WINDOW_MAX)
		return err_set(err, EINVAL, "pager: a window is whole pages, at most %lu bytes",
			WINDOW_MAX);
	if (p->bytes == 0 || p->bytes % IMAGE_PAGE || p->bytes > LIMIT_MEMORY_MAX)
		return err_set(err, EINVAL, "pager: a memory image of %llu bytes",
			(unsigned long long)p->bytes);
	if (p->opt.record) {
		p->recorded = calloc(p->bytes / IMAGE_PAGE / 64 + 1, sizeof(*p->recorded));
		if (!p->recorded)
			return err_set(err, ENOMEM, "pager: no memory to record faults");
	}
	return 0;
}

int pager_new(struct image *img, const struct snapshot_ranges *wset, enum pager_way way,
	const struct pager_options *opt, struct pager **ret, struct err *err)
{
	struct pager *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_set(err, ENOMEM, "pager: no memory");
	p->img = img;
	p->way = way;
	p->bytes = image_raw_bytes(img);
	p->memfd = p->epoll = p->stop_fd = p->idle_fd = -1;
	STAILQ_INIT(&p->apart);
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->record_lock, NULL);
	pthread_cond_init(&p->apart_done, NULL);
	for (int i = 0; i < PAGER_SHARDS; i++) {
		pthread_mutex_init(&p->shards[i].lock, NULL);
		pthread_cond_init(&p->shards[i].changed, NULL);
	}
	if ((r = check_options(p, opt, err)) < 0 || (r = pager_memory_make(p, err)) < 0 ||
		(r = pager_memory_seal(p, err)) < 0 || (r = pager_plan(p, wset, err)) < 0 ||
		(way == PAGER_PRIVATE &&
			(r = pager_fill_all(p, default_threads(p->opt.threads), err)) < 0) ||
		(r = start_workers(p, err)) < 0) {
		pager_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

/* Tell every machine that is left to die, and wait a little until it has. */
static void end_machines(struct pager *p)
{
	int64_t deadline = clock_deadline(STOP_WAIT_MS);

	for (uint32_t i = 0; i < p->n_slots; i++) {
		if (p->slots[i])
			shutdown(p->slots[i]->sock, SHUT_WR);
	}
	for (uint32_t i = 0; i < p->n_slots; i++) {
		struct pollfd pfd = {.events = POLLRDHUP};

		if (!p->slots[i])
			continue;
		pfd.fd = p->slots[i]->sock;
		poll(&pfd, 1, clock_left_ms(deadline));
		pager_machine_free(p->slots[i]);
	}
}

void pager_free(struct pager *p)
{
	if (!p)
		return;
	if (p->n_workers && eventfd_write(p->stop_fd, 1) < 0)
		abort(); /* an eventfd of ours: a bug */
	for (unsigned i = 0; i < p->n_workers; i++) {
		pthread_join(p->workers[i].thread, NULL);
		free(p->workers[i].frame);
	}
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	while (p->n_apart)
		pthread_cond_wait(&p->apart_done, &p->lock);
	pthread_mutex_unlock(&p->lock);
	end_machines(p);
	close_fd(&p->epoll);
	close_fd(&p->stop_fd);
	close_fd(&p->idle_fd);
	if (p->map)
		munmap(p->map, p->bytes);
	close_fd(&p->memfd);
	for (int i = 0; i < PAGER_SHARDS; i++) {
		pthread_mutex_destroy(&p->shards[i].lock);
		pthread_cond_destroy(&p->shards[i].changed);
	}
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->record_lock);
	pthread_cond_destroy(&p->apart_done);
	free((void *)p->frames);
	free(p->workers);
	free(p->slots);
	free(p->plan);
	free(p->prefetch);
	free(p->recorded);
	free(p->order);
	pager_trace_clear(&p->traced);
	free(p);
}

int pager_memory_fd(const struct pager *p)
{
	return p->memfd;
}

void pager_get_stats(struct pager *p, struct pager_stats *ret)
{
#define STAT(field) atomic_load_explicit(&p->n.field, memory_order_relaxed)
	*ret = (struct pager_stats){
		.faults = STAT(faults),
		.faults_minor = STAT(minor),
		.faults_missing = STAT(missing),
		.faults_hole = STAT(hole),
		.faults_removed = STAT(removed),
		.frames_filled = STAT(frames),
		.bytes_filled = STAT(bytes),
		.pages_continued = STAT(continued),
		.pages_zeroed = STAT(zeroed),
		.pages_premapped = STAT(premapped),
		.pages_own = STAT(own),
		.machines_total = STAT(machines),
	};
#undef STAT
	pthread_mutex_lock(&p->lock);
	ret->machines = p->n_machines;
	pthread_mutex_unlock(&p->lock);
}
