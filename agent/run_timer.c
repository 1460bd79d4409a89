/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step's length bounds the error: a host that stops the machine in the middle of a step stretches that step, and no
 * more. max_ms bounds the whole by the clock, for a machine that gets next to no time.
 */
#include "agent/run_timer.h"

#include "agent/agent.h"

#define RUN_TIMER_STEP_MS 4u /* about what a host gives a machine at a time */

static void run_timer_step(void *user)
{
	struct run_timer *t = user;

	if (t->left_ms > RUN_TIMER_STEP_MS && agent_now() < t->end) {
		t->left_ms -= RUN_TIMER_STEP_MS;
		timer_arm(&t->step, RUN_TIMER_STEP_MS, run_timer_step, t);
	} else {
		t->fn(t->user);
	}
}

void run_timer_arm(
	struct run_timer *t, uint64_t ms, uint64_t max_ms, void (*fn)(void *user), void *user)
{
	t->left_ms = ms;
	t->end = agent_now() + (int64_t)max_ms * MS_NS;
	t->fn = fn;
	t->user = user;
	timer_arm(&t->step, RUN_TIMER_STEP_MS, run_timer_step, t);
}

void run_timer_stop(struct run_timer *t)
{
	timer_stop(&t->step);
}
