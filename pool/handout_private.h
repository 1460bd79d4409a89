/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_HANDOUT_PRIVATE_H
#define PARBAKE_POOL_HANDOUT_PRIVATE_H

/*
 * Hand-outs: each brings one create, resume or fork from its request to its answer
 * (pool/handout.c).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/json.h"
#include "pool/pool.h"

struct loop_timer;
struct try_ending;
struct pool_machine;
struct pool_transition;

/*
 * One create, resume or fork, from its request to its answer. It waits for a slot, takes a machine
 * (a spare, a standby, or one made for it) and hands it out. Where a machine from the stock fails, it
 * takes the next.
 */
struct pool_handout {
	struct pool *pool;
	LIST_ENTRY(pool_handout) link;
	TAILQ_ENTRY(pool_handout) queue;
	bool queued, slot;
	struct pool_sandbox *sb; /* not listed yet (create, fork), or RESUMING */
	struct pool_machine *machine;
	char *capture; /* the checkpoint to restore from; NULL: the template's snapshot */
	bool same_identity;
	uint64_t timeout_ms;
	int64_t began, deadline;
	unsigned tries;
	char *text; /* why the last try failed */
	int error;
	struct loop_timer *deadline_timer, *slot_timer, *try_timer;
	struct try_ending *ending; /* it has failed, and its machine is not gone yet; or NULL */
	/* The hand-out has ended. @error 0: the sandbox runs. Otherwise the sandbox has no
	 * machine, and is the callee's to keep or to remove. @reply: what the keeper answered,
	 * NULL where it failed. The hand-out is freed after this call. */
	void (*done)(struct pool_handout *j, int error, const char *text, const json_t *reply);
	struct pool_transition *fork; /* the fork that this hand-out is part of; NULL: none */
	pool_fn *fn;
	void *user;
};

/*
 * Take over @j, which is filled in up to `slot` and has done, fn and user. done() is called from
 * the loop, later.
 */
void pool_handout_submit(struct pool_handout *j);
/* Begin the waiting hand-outs for which there are slots. */
void pool_handout_pump(struct pool *p);
/* The machine that is being handed out has ended. */
void pool_handout_machine_ended(struct pool_handout *j, const char *text);
/* End the hand-out and its machine now, and free it; nobody is told. */
void pool_handout_cancel(struct pool_handout *j);
/*
 * The same, but its fn is told @error, later, and @gone is called later too, when the machine is
 * gone.
 */
void pool_handout_abort(struct pool_handout *j, int error, const char *text,
	void (*gone)(void *user, int error, const char *text), void *user);
/* Fail every hand-out that still waits for a slot. */
void pool_handout_fail_waiting(struct pool *p, int error, const char *text);

#endif
