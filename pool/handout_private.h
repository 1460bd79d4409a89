/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_HANDOUT_PRIVATE_H
#define PARBAKE_POOL_HANDOUT_PRIVATE_H

/* Hand-outs: one create, resume or fork, from its request to its answer (pool/handout.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/json.h"
#include "pool/pool.h"

struct loop_timer;
struct try_ending;
struct pool_machine;
struct pool_transition;

/*
 * One create, resume or fork from its request to its answer. It waits for a slot, takes a machine (a spare,
 * a shell, one made for it), hands it out; where one fails that had been waiting, takes the next.
 */
struct pool_handout {
	struct pool *pool;
	struct pool_handout *next, *prev; /* of all */
	struct pool_handout *queue_next; /* of those that wait for a slot */
	bool queued, slot;
	struct pool_sandbox *sb; /* not listed yet (create, fork), or RESUMING */
	struct pool_machine *machine;
	char *capture; /* to restore from; NULL: from the template */
	bool same_identity;
	uint64_t timeout_ms;
	int64_t began, deadline;
	unsigned tries;
	char *text; /* why the last try failed */
	int error;
	struct loop_timer *deadline_timer, *slot_timer, *try_timer;
	struct try_ending *ending; /* it has failed, and its machine is not gone yet; or NULL */
	/* Its end. 0: the sandbox runs; else it has no machine, and is the callee's to keep or remove. The
	 * job is freed after it. @reply: of the hand-out, NULL where it failed. */
	void (*done)(struct pool_handout *j, int error, const char *text, const json_t *reply);
	struct pool_transition *fork; /* the one that it is part of; NULL: none */
	pool_fn *fn;
	void *user;
};

/* Take over @j (filled in up to `slot`, with done, fn, user). done() comes from the loop, later. */
void pool_handout_submit(struct pool_handout *j);
/* Begin what may begin. */
void pool_handout_pump(struct pool *p);
/* The machine that is being handed out has ended. */
void pool_handout_machine_ended(struct pool_handout *j, const char *text);
/* End it now, its machine too, and free it; nobody is told. */
void pool_handout_cancel(struct pool_handout *j);
/* The same; its fn is told @error, later, and @gone is called when the machine is gone, later too. */
void pool_handout_abort(struct pool_handout *j, int error, const char *text,
	void (*gone)(void *user, int error, const char *text), void *user);
/* Fail every hand-out that still waits for a slot. */
void pool_handout_fail_waiting(struct pool *p, int error, const char *text);

#endif
