/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_TRANSITION_PRIVATE_H
#define PARBAKE_POOL_TRANSITION_PRIVATE_H

/*
 * Transitions: pauses, forks and snapshots on their way, and resumes that wait for them
 * (pool/transition.c, fork.c, snapshot.c, publish.c).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/err.h"
#include "common/json.h"
#include "pool/pool.h"
#include "pool/sandbox_private.h"

struct pool_publish;

/*
 * A transition needs its sandbox for itself, so a sandbox has at most one. A transition outlives
 * its sandbox while work of its own on the disk is pending; it has no sandbox then.
 */
struct pool_transition {
	struct pool *pool;
	LIST_ENTRY(pool_transition) link;
	struct pool_sandbox *sb; /* NULL: it has ended, or is not needed any more */
	unsigned pending; /* pieces of work and hand-outs that will call back */
	/* the sandbox ended: answer whoever waits for the transition */
	void (*lost)(struct pool_transition *c, int error, const char *text);
	/* the keeper has answered: the checkpoint is written, or failed */
	void (*captured)(struct pool_transition *c, int error, const char *text);
	pool_fn *fn;
	void *user;

	int channel; /* pause: the guest's channel, given back where the pause fails; -1: none */
	pool_fn *kill_fn; /* pause: the sandbox is to be killed once it is paused */
	void *kill_user;
	bool kill;

	char *capture; /* fork, snapshot: the directory of the checkpoint */
	bool own; /* the checkpoint was made for this transition: it is removed where it is not needed */
	unsigned count; /* fork */
	uint64_t timeout_ms;

	char id[POOL_ID_SIZE]; /* snapshot */
	char *name;
	bool only_new; /* a template of that name that is in the store stays */
	char replaced[DIGEST_TEXT_SIZE]; /* with only_new: unless it is this version; "": none */
	json_t *record;
	char *from; /* the checkpoint to copy */
	void (*done)(void *user, const char *snapshot_id, int error, const char *text);
	int error; /* of a work */
	struct err err;
	struct pool_publish *publish;
};

/*
 * Begin a transition of the sandbox @id, which must be RUNNING (or PAUSED, where @or_paused).
 * -ENOENT, -EEXIST (it is paused already) or -EBUSY with why not.
 */
int pool_transition_begin(struct pool *p, const char *id, bool or_paused,
	struct pool_transition **ret, struct err *err);
/*
 * Write a checkpoint of the sandbox, which runs, into @dir, then call captured(). @stop: the
 * machine ends with it.
 */
void pool_transition_capture(struct pool_transition *c, const char *dir, bool stop);
/* The transition does not need its sandbox any more. */
void pool_transition_release(struct pool_transition *c);
void pool_transition_free(struct pool_transition *c);
/* The transition of @sb has failed, as @sb is ending. */
void pool_transition_lost(struct pool_sandbox *sb, const char *text);
/* The state of @sb has changed: whoever waits for it to run asks again. */
void pool_waiters_wake(struct pool_sandbox *sb);
/*
 * The machine of @sb has ended, and @sb is paused in a whole checkpoint: a pause on its way has
 * succeeded, any other transition has failed.
 */
void pool_transition_rested(struct pool_sandbox *sb);
void pool_transition_free_all(struct pool *p);
/*
 * Is @sb PAUSING, with its machine about to end? Then it is killed once it is paused, and @fn is
 * told.
 */
bool pool_transition_kill(struct pool_sandbox *sb, pool_fn *fn, void *user);

/*
 * A process of its own puts the checkpoint @dir into the store (publish.c); @done from the loop.
 * @only_new: EEXIST where the name is taken, unless it is the version @replaced ("": none) that has
 * it.
 */
int pool_publish_start(struct pool *p, const char *dir, const char *name, bool only_new,
	const char *replaced, void (*done)(void *user, int error, const char *text), void *user,
	struct pool_publish **ret, struct err *err);
/* Run `parbake gc` for the store, likewise in a process of its own. */
int pool_publish_gc(struct pool *p, void (*done)(void *user, int error, const char *text),
	void *user, struct pool_publish **ret, struct err *err);
/* Kill the process. NULL is allowed. */
void pool_publish_free(struct pool_publish *w);
/* The record of snapshot @id, and where its checkpoint is. -ENOENT. Caller frees both. */
int pool_snapshot_find(
	struct pool *p, const char *id, json_t **ret_record, char **ret_capture, struct err *err);

#endif
