/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_LOOP_H
#define PARBAKE_AGENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * The event loop: descriptors by epoll, timers by its timeout. An idle agent
 * sleeps in one epoll_wait() without a timeout; there are no ticks.
 */
struct watch;
typedef void watch_fn(void *user, uint32_t events);

/* Set up; once. -errno. */
int loop_init(void);

/* Watch @fd (borrowed) for epoll's @events. NULL where it is of a kind that cannot be watched, or is none. */
struct watch *watch_add(int fd, uint32_t events, watch_fn *fn, void *user);
/* Change what is waited for; arms an EPOLLONESHOT watch again. NULL: nothing. */
void watch_set(struct watch *w, uint32_t events);
/* Stop (NULL: nothing). @w is gone; its function is not called again, not even for an event
 * already collected. Call it before closing the descriptor. */
void watch_remove(struct watch *w);

struct timer {
	int64_t at; /* CLOCK_MONOTONIC, ns */
	void (*fn)(void *user);
	void *user;
	TAILQ_ENTRY(timer) link;
	bool armed;
};

/* Call @fn once, @ms from now. Arming an armed timer moves it. */
void timer_arm(struct timer *t, uint64_t ms, void (*fn)(void *user), void *user);
void timer_stop(struct timer *t);

/* Run until loop_quit(). @turn is called before each wait and says whether it has more to do
 * at once (then the wait does not sleep). */
void loop_run(bool (*turn)(void));
void loop_quit(void);

#endif
