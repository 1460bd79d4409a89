/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_LOOP_H
#define PARBAKE_COMMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"

/*
 * The daemon's event loop: descriptors (epoll), timers and signals in one thread. All of it belongs
 * to the thread that runs it. A callback may add and remove watches and timers, its own included:
 * what was removed is not called any more, even where its event had come already.
 */
struct loop;
struct loop_watch;
struct loop_timer;

int loop_new(struct loop **ret, struct err *err);
/* Watches and timers that are left are removed; their users are not told. */
void loop_free(struct loop *l);

/* Run until loop_stop(). 0, or -errno where waiting itself failed. */
int loop_run(struct loop *l, struct err *err);
/* One round: waits at most until @deadline (clock.h) for the first event, runs what has come. Tests. */
int loop_once(struct loop *l, int64_t deadline, struct err *err);
void loop_stop(struct loop *l);

/* Call @fn with what poll(2) would say (POLLIN | POLLOUT | POLLHUP | POLLERR). @fd is borrowed
 * and must be removed here before it is closed. @events 0: hang-up and errors alone. Aborts
 * without memory; NULL, with @err, where the descriptor cannot be polled. */
struct loop_watch *loop_add(struct loop *l, int fd, short events,
	void (*fn)(void *user, short revents), void *user, struct err *err);
void loop_set(struct loop_watch *w, short events);
void loop_remove(struct loop_watch *w); /* NULL is allowed */

/* Call @fn once at @at (CLOCK_MONOTONIC ns; in the past: in the next round). The timer is gone when
 * @fn runs. */
struct loop_timer *loop_timer(struct loop *l, int64_t at, void (*fn)(void *user), void *user);
/* The same at a time on CLOCK_BOOTTIME: it comes on time even where the host slept meanwhile. */
struct loop_timer *loop_timer_boot(struct loop *l, int64_t at, void (*fn)(void *user), void *user);
/* Cancel a timer of either kind, before it has run. NULL is allowed. */
void loop_timer_cancel(struct loop_timer *t);
/* Call @fn once, in the next round: to leave a callback before something is freed. Cancelled as a timer. */
struct loop_timer *loop_defer(struct loop *l, void (*fn)(void *user), void *user);

#endif
