/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoll, and a heap of timers from which it takes its patience.
 *
 * A round is: wait, call the watches whose events came, call the timers that were due when waiting
 * ended. Callbacks add and remove as they like, so what a round holds must outlive that: a removed
 * watch leaves epoll at once and is skipped from then on, but freed only when no round is under way;
 * due timers leave the heap for a list first, so one made meanwhile waits for the next round however
 * long ago its time was, and cancelling takes it from wherever it is.
 */
#include "common/loop.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "common/clock.h"

/* of one round; the rest come in the next, and those that had none go first */
#define EVENTS_MAX 64

struct loop_watch {
	struct loop *l;
	int fd;
	void (*fn)(void *user, short revents); /* NULL: removed */
	void *user;
	struct loop_watch *next, *prev; /* in loop.watches; next: in loop.removed */
};

struct loop_timer {
	struct loop *l;
	int64_t at;
	uint64_t number; /* of two at one time the older goes first */
	void (*fn)(void *user);
	void *user;
	size_t place; /* in the heap; NOWHERE: in the list of those due */
	struct loop_timer *next, *prev;
};

#define NOWHERE SIZE_MAX

struct loop {
	int epoll;
	bool stopped, in_round;
	struct loop_watch *watches, *removed;
	struct loop_timer **heap;
	size_t n_heap, cap_heap;
	struct loop_timer *due, *due_last;
	uint64_t made; /* timers, ever */
};

int loop_new(struct loop **ret, struct err *err)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return err_set(err, ENOMEM, "no memory for an event loop");
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
	for (struct loop_watch *w = l->removed, *next; w; w = next) {
		next = w->next;
		free(w);
	}
	l->removed = NULL;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	assert(!l->in_round);
	while (l->watches)
		loop_remove(l->watches);
	bury(l);
	while (l->due)
		loop_timer_cancel(l->due);
	while (l->n_heap)
		loop_timer_cancel(l->heap[l->n_heap - 1]);
	free(l->heap);
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
	*w = (struct loop_watch){.l = l, .fd = fd, .fn = fn, .user = user, .next = l->watches};
	if (w->next)
		w->next->prev = w;
	l->watches = w;
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
	if (w->next)
		w->next->prev = w->prev;
	if (w->prev)
		w->prev->next = w->next;
	else
		l->watches = w->next;
	w->next = l->removed;
	l->removed = w;
	if (!l->in_round)
		bury(l);
}

/* ---- timers -------------------------------------------------------------------------------- */

static bool before(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void put(struct loop *l, size_t place, struct loop_timer *t)
{
	l->heap[place] = t;
	t->place = place;
}

/* @t belongs at @place or above it. */
static void rise(struct loop *l, size_t place, struct loop_timer *t)
{
	while (place && before(t, l->heap[(place - 1) / 2])) {
		put(l, place, l->heap[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	put(l, place, t);
}

/* @t belongs at @place or below it. */
static void sink(struct loop *l, size_t place, struct loop_timer *t)
{
	for (;;) {
		size_t child = 2 * place + 1;

		if (child >= l->n_heap)
			break;
		if (child + 1 < l->n_heap && before(l->heap[child + 1], l->heap[child]))
			child++;
		if (!before(l->heap[child], t))
			break;
		put(l, place, l->heap[child]);
		place = child;
	}
	put(l, place, t);
}

static void heap_remove(struct loop *l, struct loop_timer *t)
{
	struct loop_timer *last = l->heap[--l->n_heap];
	size_t place = t->place;

	t->place = NOWHERE;
	if (last == t)
		return;
	if (place && before(last, l->heap[(place - 1) / 2]))
		rise(l, place, last);
	else
		sink(l, place, last);
}

struct loop_timer *loop_timer(struct loop *l, int64_t at, void (*fn)(void *user), void *user)
{
	struct loop_timer *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	if (l->n_heap == l->cap_heap) {
		l->cap_heap = l->cap_heap ? 2 * l->cap_heap : 16;
		l->heap = reallocarray(l->heap, l->cap_heap, sizeof(struct loop_timer *));
		if (!l->heap)
			abort();
	}
	*t = (struct loop_timer){
		.l = l, .at = at > 0 ? at : 0, .number = l->made++, .fn = fn, .user = user};
	rise(l, l->n_heap++, t);
	return t;
}

struct loop_timer *loop_defer(struct loop *l, void (*fn)(void *user), void *user)
{
	return loop_timer(l, 0, fn, user);
}

static void due_remove(struct loop *l, struct loop_timer *t)
{
	if (t->prev)
		t->prev->next = t->next;
	else
		l->due = t->next;
	if (t->next)
		t->next->prev = t->prev;
	else
		l->due_last = t->prev;
}

void loop_timer_cancel(struct loop_timer *t)
{
	if (!t)
		return;
	if (t->place == NOWHERE)
		due_remove(t->l, t);
	else
		heap_remove(t->l, t);
	free(t);
}

/* Those whose time has come move from the heap to the list. */
static void collect_due(struct loop *l)
{
	int64_t now = l->n_heap ? clock_now_ns() : 0;

	while (l->n_heap && l->heap[0]->at <= now) {
		struct loop_timer *t = l->heap[0];

		heap_remove(l, t);
		t->next = NULL;
		t->prev = l->due_last;
		if (t->prev)
			t->prev->next = t;
		else
			l->due = t;
		l->due_last = t;
	}
}

static void run_due(struct loop *l)
{
	while (l->due) {
		struct loop_timer *t = l->due;
		void (*fn)(void *user) = t->fn;
		void *user = t->user;

		due_remove(l, t);
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
		int64_t until = l->n_heap && l->heap[0]->at < deadline ? l->heap[0]->at : deadline;

		n = epoll_wait(l->epoll, events, EVENTS_MAX, clock_left_ms(until));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, errno, "wait for events");
	collect_due(l);
	l->in_round = true;
	for (int i = 0; i < n; i++) {
		struct loop_watch *w = events[i].data.ptr;

		if (w->fn)
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
