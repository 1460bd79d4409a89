/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: epoll, and two heaps of timers. The first heap, by CLOCK_MONOTONIC, sets how long
 * epoll waits. The second is by CLOCK_BOOTTIME, which goes on while the host sleeps; the wait of
 * epoll does not, so this heap has a timerfd.
 *
 * A round is: wait, call the watches whose events came, call the timers that were due when the wait
 * ended. Callbacks may add and remove watches and timers, so what a round has collected must stay
 * valid until its end. A removed watch leaves epoll at once and is skipped from then on, but is
 * freed only when no round is under way. Due timers are moved from the heap to a list first. So a
 * timer that a callback makes waits for the next round, however long ago its time was, and
 * cancelling takes a timer from wherever it is.
 */
#include "common/loop.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/timerfd.h>

#include "common/clock.h"

/* of one round; the rest come in the next, and those that had none go first */
#define EVENTS_MAX 64

struct loop_watch {
	struct loop *l;
	int fd;
	void (*fn)(void *user, short revents); /* NULL: removed */
	void *user;
	LIST_ENTRY(loop_watch) link; /* loop.watches; removed: loop.removed */
};

struct loop_timer {
	struct loop *l;
	struct heap *heap;
	int64_t at;
	uint64_t number; /* of two at one time the older goes first */
	void (*fn)(void *user);
	void *user;
	size_t place; /* in the heap; NOWHERE: in the list of those due */
	TAILQ_ENTRY(loop_timer) due;
};

#define NOWHERE SIZE_MAX

struct heap {
	struct loop_timer **at;
	size_t n, cap;
};

struct loop {
	int epoll;
	bool stopped, in_round;
	LIST_HEAD(, loop_watch) watches, removed;
	struct heap now, boot; /* on CLOCK_MONOTONIC, on CLOCK_BOOTTIME */
	int boot_fd; /* timerfd, set to the first of boot; -1: there was none yet */
	int64_t boot_set; /* what it is set to; CLOCK_NEVER: nothing */
	TAILQ_HEAD(, loop_timer) due;
	uint64_t made; /* timers, ever */
};

int loop_new(struct loop **ret, struct err *err)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return err_set(err, ENOMEM, "no memory for an event loop");
	l->boot_fd = -1;
	l->boot_set = CLOCK_NEVER;
	TAILQ_INIT(&l->due);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0) {
		free(l);
		return err_sys(err, errno, "make an event loop");
	}
	*ret = l;
	return 0;
}

static void bury(struct loop *l)
{
	struct loop_watch *w;

	while ((w = LIST_FIRST(&l->removed))) {
		LIST_REMOVE(w, link);
		free(w);
	}
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	assert(!l->in_round);
	while (!LIST_EMPTY(&l->watches))
		loop_remove(LIST_FIRST(&l->watches));
	bury(l);
	while (!TAILQ_EMPTY(&l->due))
		loop_timer_cancel(TAILQ_FIRST(&l->due));
	while (l->now.n)
		loop_timer_cancel(l->now.at[l->now.n - 1]);
	while (l->boot.n)
		loop_timer_cancel(l->boot.at[l->boot.n - 1]);
	free(l->now.at);
	free(l->boot.at);
	close_fd(&l->boot_fd);
	close_fd(&l->epoll);
	free(l);
}

/* ---- descriptors --------------------------------------------------------------------------- */

/* poll(2)'s bits are epoll's (<bits/poll.h>, <sys/epoll.h>). */
_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLHUP == POLLHUP &&
		EPOLLERR == POLLERR && EPOLLRDHUP == POLLRDHUP && EPOLLPRI == POLLPRI,
	"one set of bits");

static struct epoll_event wanted(struct loop_watch *w, short events)
{
	return (struct epoll_event){.events = (uint32_t)(unsigned short)events, .data.ptr = w};
}

struct loop_watch *loop_add(struct loop *l, int fd, short events,
	void (*fn)(void *user, short revents), void *user, struct err *err)
{
	struct loop_watch *w = calloc(1, sizeof(*w));
	struct epoll_event event = wanted(w, events);

	if (!w)
		abort();
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
		err_sys(err, errno, "watch descriptor %d", fd);
		free(w);
		return NULL;
	}
	*w = (struct loop_watch){.l = l, .fd = fd, .fn = fn, .user = user};
	LIST_INSERT_HEAD(&l->watches, w, link);
	return w;
}

void loop_set(struct loop_watch *w, short events)
{
	struct epoll_event event = wanted(w, events);
	int r = epoll_ctl(w->l->epoll, EPOLL_CTL_MOD, w->fd, &event);

	assert(r == 0); /* it was closed before it was removed */
	(void)r;
}

void loop_remove(struct loop_watch *w)
{
	struct loop *l;
	int r;

	if (!w)
		return;
	l = w->l;
	r = epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	assert(r == 0);
	(void)r;
	w->fn = NULL;
	LIST_REMOVE(w, link);
	LIST_INSERT_HEAD(&l->removed, w, link);
	if (!l->in_round)
		bury(l);
}

/* ---- timers -------------------------------------------------------------------------------- */

static bool before(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void put(struct heap *h, size_t place, struct loop_timer *t)
{
	h->at[place] = t;
	t->place = place;
}

/* @t belongs at @place or above it. */
static void rise(struct heap *h, size_t place, struct loop_timer *t)
{
	while (place && before(t, h->at[(place - 1) / 2])) {
		put(h, place, h->at[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	put(h, place, t);
}

/* @t belongs at @place or below it. */
static void sink(struct heap *h, size_t place, struct loop_timer *t)
{
	for (;;) {
		size_t child = 2 * place + 1;

		if (child >= h->n)
			break;
		if (child + 1 < h->n && before(h->at[child + 1], h->at[child]))
			child++;
		if (!before(h->at[child], t))
			break;
		put(h, place, h->at[child]);
		place = child;
	}
	put(h, place, t);
}

static void heap_remove(struct loop_timer *t)
{
	struct heap *h = t->heap;
	struct loop_timer *last = h->at[--h->n];
	size_t place = t->place;

	t->place = NOWHERE;
	if (last == t)
		return;
	if (place && before(last, h->at[(place - 1) / 2]))
		rise(h, place, last);
	else
		sink(h, place, last);
}

static struct loop_timer *add_timer(
	struct loop *l, struct heap *h, int64_t at, void (*fn)(void *user), void *user)
{
	struct loop_timer *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	if (h->n == h->cap) {
		h->cap = h->cap ? 2 * h->cap : 16;
		h->at = reallocarray(h->at, h->cap, sizeof(struct loop_timer *));
		if (!h->at)
			abort();
	}
	*t = (struct loop_timer){.l = l,
		.heap = h,
		.at = at > 0 ? at : 0,
		.number = l->made++,
		.fn = fn,
		.user = user};
	rise(h, h->n++, t);
	return t;
}

struct loop_timer *loop_timer(struct loop *l, int64_t at, void (*fn)(void *user), void *user)
{
	return add_timer(l, &l->now, at, fn, user);
}

struct loop_timer *loop_timer_boot(struct loop *l, int64_t at, void (*fn)(void *user), void *user)
{
	return add_timer(l, &l->boot, at, fn, user);
}

struct loop_timer *loop_defer(struct loop *l, void (*fn)(void *user), void *user)
{
	return loop_timer(l, 0, fn, user);
}

void loop_timer_cancel(struct loop_timer *t)
{
	if (!t)
		return;
	if (t->place == NOWHERE)
		TAILQ_REMOVE(&t->l->due, t, due);
	else
		heap_remove(t);
	free(t);
}

/* Those whose time has come move from the heap to the list. */
static void collect_due(struct loop *l, struct heap *h, int64_t now)
{
	while (h->n && h->at[0]->at <= now) {
		struct loop_timer *t = h->at[0];

		heap_remove(t);
		TAILQ_INSERT_TAIL(&l->due, t, due);
	}
}

/*
 * The timerfd rings when the first of boot is due. It is in epoll without a watch: that it rang is enough. -errno
 * where there can be none: then such a timer is late by what the host sleeps.
 */
static int set_boot(struct loop *l)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int64_t at = l->boot.n ? l->boot.at[0]->at : CLOCK_NEVER;
	struct itimerspec t = {0};

	if (at == l->boot_set)
		return 0;
	if (l->boot_fd < 0) {
		l->boot_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
		if (l->boot_fd < 0)
			return -errno;
		if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->boot_fd, &event) < 0) {
			close_fd(&l->boot_fd);
			return -errno;
		}
	}
	if (at != CLOCK_NEVER) {
		at = at > 0 ? at : 1; /* 0 would disarm it */
		t.it_value = (struct timespec){at / 1000000000, at % 1000000000};
	}
	if (timerfd_settime(l->boot_fd, TFD_TIMER_ABSTIME, &t, NULL) < 0)
		return -errno;
	l->boot_set = l->boot.n ? l->boot.at[0]->at : CLOCK_NEVER;
	return 0;
}

static void run_due(struct loop *l)
{
	struct loop_timer *t;

	while ((t = TAILQ_FIRST(&l->due))) {
		void (*fn)(void *user) = t->fn;
		void *user = t->user;

		TAILQ_REMOVE(&l->due, t, due);
		free(t);
		fn(user);
	}
}

/* ---- rounds -------------------------------------------------------------------------------- */

int loop_once(struct loop *l, int64_t deadline, struct err *err)
{
	struct epoll_event events[EVENTS_MAX];
	int n;

	assert(!l->in_round);
	do {
		int64_t until =
			l->now.n && l->now.at[0]->at < deadline ? l->now.at[0]->at : deadline;

		if (set_boot(l) < 0) {
			int64_t left = l->boot.at[0]->at - clock_boot_ns();
			int64_t first = clock_now_ns() + (left > 0 ? left : 0);

			until = first < until ? first : until;
		}
		n = epoll_wait(l->epoll, events, EVENTS_MAX, clock_left_ms(until));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, errno, "wait for events");
	collect_due(l, &l->now, l->now.n ? clock_now_ns() : 0);
	collect_due(l, &l->boot, l->boot.n ? clock_boot_ns() : 0);
	l->in_round = true;
	for (int i = 0; i < n; i++) {
		struct loop_watch *w = events[i].data.ptr;

		if (w && w->fn)
			w->fn(w->user, (short)events[i].events);
	}
	run_due(l);
	l->in_round = false;
	bury(l);
	return 0;
}

int loop_run(struct loop *l, struct err *err)
{
	int r = 0;

	while (!l->stopped && r == 0)
		r = loop_once(l, CLOCK_NEVER, err);
	l->stopped = false;
	return r;
}

void loop_stop(struct loop *l)
{
	l->stopped = true;
}
