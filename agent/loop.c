/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll set and a sorted list of timers. A watch removed while a batch of
 * events is being handled may still be named by a later event of that batch, so it
 * is only marked, and freed when the batch is done.
 */
#include "agent/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "agent/agent.h"

struct watch {
	int fd;
	watch_fn *fn;
	void *user;
	bool dead;
	struct watch *next_dead;
};

#define LOOP_BATCH 64

static int loop_fd = -1;
static struct watch *loop_dead;
static struct timer *loop_timers;
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

	*w = (struct watch){.fd = fd, .fn = fn, .user = user};
	if (epoll_ctl(loop_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		free(w);
		return NULL;
	}
	return w;
}

void watch_set(struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	epoll_ctl(loop_fd, EPOLL_CTL_MOD, w->fd, &ev);
}

void watch_remove(struct watch *w)
{
	if (!w)
		return;
	epoll_ctl(loop_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->dead = true;
	w->next_dead = loop_dead;
	loop_dead = w;
}

void timer_stop(struct timer *t)
{
	if (!t->armed)
		return;
	for (struct timer **p = &loop_timers; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->armed = false;
}

void timer_arm(struct timer *t, uint64_t ms, void (*fn)(void *user), void *user)
{
	const uint64_t year_ms = UINT64_C(365) * 24 * 3600 * 1000;
	struct timer **p = &loop_timers;

	timer_stop(t);
	if (ms > year_ms) /* so that the sum below cannot overflow */
		ms = year_ms;
	*t = (struct timer){
		.at = agent_now() + (int64_t)ms * MS_NS, .fn = fn, .user = user, .armed = true};
	while (*p && (*p)->at <= t->at)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}

static void loop_expire(void)
{
	int64_t now;

	if (!loop_timers)
		return;
	now = agent_now();
	while (loop_timers && loop_timers->at <= now) {
		struct timer *t = loop_timers;

		loop_timers = t->next;
		t->armed = false;
		t->fn(t->user);
	}
}

static int loop_timeout_ms(void)
{
	int64_t left;

	if (!loop_timers)
		return -1;
	left = loop_timers->at - agent_now();
	if (left <= 0)
		return 0;
	left = (left + MS_NS - 1) / MS_NS;
	return left > 3600000 ? 3600000 : (int)left;
}

static void loop_bury(void)
{
	while (loop_dead) {
		struct watch *w = loop_dead;

		loop_dead = w->next_dead;
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
		loop_expire();
		loop_bury();
	}
}
