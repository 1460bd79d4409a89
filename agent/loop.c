/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll set and a sorted list of timers. A watch removed while a batch of
 * events is being handled may still be named by a later event of that batch, so it
 * is only marked, and leaves the lists and is freed when the batch is done.
 *
 * The kernel may refuse a watch for want of memory, or because a user's number of them is bounded
 * (fs.epoll.max_user_watches): a guest can bring both about, and must not end its agent so. A watch that is
 * refused is asked for by poll(2), again and again, until epoll takes it.
 */
#include "agent/loop.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "agent/agent.h"

struct watch {
	int fd;
	watch_fn *fn;
	void *user;
	uint32_t events;
	bool dead;
	SLIST_ENTRY(watch) dead_link;
	bool refused; /* epoll does not have it */
	LIST_ENTRY(watch) refused_link;
};

#define LOOP_BATCH 64
#define LOOP_REFUSED_MS 10 /* between two looks at what epoll refuses */

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI &&
		EPOLLERR == POLLERR && EPOLLHUP == POLLHUP,
	"both speak of events alike");

static int loop_fd = -1;
static SLIST_HEAD(, watch) loop_dead;
static LIST_HEAD(, watch) loop_refused;
static TAILQ_HEAD(, timer) loop_timers = TAILQ_HEAD_INITIALIZER(loop_timers); /* by time */
static bool loop_stop;

int loop_init(void)
{
	loop_fd = epoll_create1(EPOLL_CLOEXEC);
	return loop_fd < 0 ? -errno : 0;
}

struct watch *watch_add(int fd, uint32_t events, watch_fn *fn, void *user)
{
	struct watch *w = agent_alloc(sizeof(*w));
	struct epoll_event ev = {.events = events, .data.ptr = w};

	*w = (struct watch){.fd = fd, .fn = fn, .user = user, .events = events};
	if (epoll_ctl(loop_fd, EPOLL_CTL_ADD, fd, &ev) == 0)
		return w;
	if (errno != ENOMEM && errno != ENOSPC) {
		free(w);
		return NULL;
	}
	w->refused = true;
	LIST_INSERT_HEAD(&loop_refused, w, refused_link);
	return w;
}

/* Will epoll have it now? */
static bool refused_retry(struct watch *w)
{
	struct epoll_event ev = {.events = w->events, .data.ptr = w};

	if (epoll_ctl(loop_fd, EPOLL_CTL_ADD, w->fd, &ev) < 0)
		return false;
	w->refused = false;
	return true;
}

/* What epoll would have said of them. A callback may add and remove watches. */
static void refused_look(void)
{
	struct watch *w;

	LIST_FOREACH(w, &loop_refused, refused_link) {
		struct pollfd p = {.fd = w->fd, .events = (short)(w->events & 0xfff)};

		/* one that has fired and is not armed again is not asked for at all */
		if (w->dead || !w->refused || w->events == EPOLLONESHOT || refused_retry(w) ||
			poll(&p, 1, 0) <= 0)
			continue;
		if (w->events & EPOLLONESHOT)
			w->events = EPOLLONESHOT;
		w->fn(w->user, (uint32_t)p.revents);
	}
}

void watch_set(struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (!w) /* of what cannot be watched: it is always ready, and its owner has been told so */
		return;
	w->events = events;
	if (!w->refused)
		epoll_ctl(loop_fd, EPOLL_CTL_MOD, w->fd, &ev);
}

void watch_remove(struct watch *w)
{
	if (!w)
		return;
	if (!w->refused)
		epoll_ctl(loop_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->dead = true;
	SLIST_INSERT_HEAD(&loop_dead, w, dead_link);
}

void timer_stop(struct timer *t)
{
	if (!t->armed)
		return;
	TAILQ_REMOVE(&loop_timers, t, link);
	t->armed = false;
}

void timer_arm(struct timer *t, uint64_t ms, void (*fn)(void *user), void *user)
{
	const uint64_t year_ms = UINT64_C(365) * 24 * 3600 * 1000;
	struct timer *later;

	timer_stop(t);
	if (ms > year_ms) /* so that the sum below cannot overflow */
		ms = year_ms;
	*t = (struct timer){
		.at = agent_now() + (int64_t)ms * MS_NS, .fn = fn, .user = user, .armed = true};
	TAILQ_FOREACH(later, &loop_timers, link)
		if (later->at > t->at)
			break;
	if (later)
		TAILQ_INSERT_BEFORE(later, t, link);
	else
		TAILQ_INSERT_TAIL(&loop_timers, t, link);
}

static void loop_expire(void)
{
	struct timer *t;
	int64_t now;

	if (TAILQ_EMPTY(&loop_timers))
		return;
	now = agent_now();
	while ((t = TAILQ_FIRST(&loop_timers)) && t->at <= now) {
		timer_stop(t);
		t->fn(t->user);
	}
}

static int loop_timeout_ms(void)
{
	int64_t left;

	if (!LIST_EMPTY(&loop_refused))
		return LOOP_REFUSED_MS;
	if (TAILQ_EMPTY(&loop_timers))
		return -1;
	left = TAILQ_FIRST(&loop_timers)->at - agent_now();
	if (left <= 0)
		return 0;
	left = (left + MS_NS - 1) / MS_NS;
	return left > 3600000 ? 3600000 : (int)left;
}

static void loop_bury(void)
{
	struct watch *w, *next;

	for (w = LIST_FIRST(&loop_refused); w; w = next) {
		next = LIST_NEXT(w, refused_link);
		if (w->dead || !w->refused)
			LIST_REMOVE(w, refused_link);
	}
	while ((w = SLIST_FIRST(&loop_dead))) {
		SLIST_REMOVE_HEAD(&loop_dead, dead_link);
		free(w);
	}
}

void loop_quit(void)
{
	loop_stop = true;
}

void loop_run(bool (*turn)(void))
{
	struct epoll_event events[LOOP_BATCH];

	while (!loop_stop) {
		bool more = turn();
		int n;

		if (loop_stop)
			break;
		n = epoll_wait(loop_fd, events, LOOP_BATCH, more ? 0 : loop_timeout_ms());
		for (int i = 0; i < n; i++) {
			struct watch *w = events[i].data.ptr;

			if (!w->dead)
				w->fn(w->user, events[i].events);
		}
		refused_look();
		loop_expire();
		loop_bury();
	}
}
