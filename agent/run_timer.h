/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_RUN_TIMER_H
#define PARBAKE_AGENT_RUN_TIMER_H

#include "agent/loop.h"

/*
 * A timer of the time in which the machine ran. The clock does not tell that: the host may let a busy machine run
 * a fifth of the time, and what an interpreter does in a second then takes five. So the agent wakes up every few
 * milliseconds while such a timer is armed and counts each step once, however long it took.
 */
struct run_timer {
	struct timer step;
	uint64_t left_ms; /* of the machine's time */
	int64_t end; /* CLOCK_MONOTONIC, ns: it ends here at the latest */
	void (*fn)(void *user);
	void *user;
};

/* Call @fn once, when the machine has run for @ms more, or after @max_ms of the clock. Arming an armed one
 * begins anew. */
void run_timer_arm(
	struct run_timer *t, uint64_t ms, uint64_t max_ms, void (*fn)(void *user), void *user);
void run_timer_stop(struct run_timer *t);

#endif
