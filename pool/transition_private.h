/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_TRANSITION_PRIVATE_H
#define PARBAKE_POOL_TRANSITION_PRIVATE_H

/* Pauses, resumes, forks and snapshots on their way (pool/transition.c, fork.c, snapshot.c, publish.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/json.h"
#include "pool/pool.h"
#include "pool/sandbox_private.h"

struct pool_publish;

/*
 * Something on its way that needs the sandbox for itself: at most one at a time. It outlives its sandbox
 * while a work of its own is on the disk (pending), then without it.
 */
struct pool_transition {
	struct pool *pool;
	struct pool_transition *next, *prev; /* of all */
	struct pool_sandbox *sb; /* NULL: lost, or it is not needed any more */
	unsigned pending; /* works and jobs that will come back */
	/* the sandbox ended: answer whoever waits for it */
	void (*lost)(struct pool_transition *c, int error, const char *text);
	/* its keeper answered: captured */
	void (*captured)(struct pool_transition *c, int error, const char *text);
	pool_fn *fn;
	void *user;

	int channel; /* pause: the guest's, for when it fails; -1: none */
	pool_fn *kill_fn; /* pause: it is to be killed when it is paused */
	void *kill_user;
	bool kill;

	char *capture; /* fork, snapshot: what it makes, or another's */
	bool own; /* it is not another's: it goes where it is not wanted */
	unsigned count; /* fork */
	uint64_t timeout_ms;

	char id[POOL_ID_SIZE]; /* snapshot */
	char *name;
	bool only_new; /* what is in the store under that name stays */
	json_t *record;
	char *from; /* the checkpoint to copy */
	void (*done)(void *user, const char *snapshot_id, int error, const char *text);
	int error; /* of a work */
	struct err err;
	struct pool_publish *publish;
};

/* Begin one: -ENOENT, -EBUSY with why not. @state: that it must be in (or PAUSED, where @or_paused). */
int pool_transition_begin(struct pool *p, const char *id, bool or_paused,
	struct pool_transition **ret, struct err *err);
/* Capture its sandbox, which runs, into c->capture; then captured(). */
void pool_transition_capture(struct pool_transition *c, const char *dir, bool stop);
/* It does not need the sandbox any more. */
void pool_transition_release(struct pool_transition *c);
void pool_transition_free(struct pool_transition *c);
/* A pause, snapshot or fork has failed, as its sandbox is ending. */
void pool_transition_lost(struct pool_sandbox *sb, const char *text);
/* Its state has changed: whoever wanted it to run asks again. */
void pool_waiters_wake(struct pool_sandbox *sb);
/* It ended, and rests in a whole capture. */
void pool_transition_rested(struct pool_sandbox *sb);
void pool_transition_free_all(struct pool *p);
/* Is it PAUSING with its machine on its way out? Then @fn gets its kill. */
bool pool_transition_kill(struct pool_sandbox *sb, pool_fn *fn, void *user);

/* A process of its own puts the checkpoint @dir into the store (publish.c); @done from the loop. */
int pool_publish_start(struct pool *p, const char *dir, const char *name, bool only_new,
	void (*done)(void *user, int error, const char *text), void *user,
	struct pool_publish **ret, struct err *err);
/* `parbake gc` of the store, likewise. */
int pool_publish_gc(struct pool *p, void (*done)(void *user, int error, const char *text),
	void *user, struct pool_publish **ret, struct err *err);
/* Kill it. NULL is allowed. */
void pool_publish_free(struct pool_publish *w);
/* The record of snapshot @id, and where its checkpoint is. -ENOENT. Caller frees both. */
int pool_snapshot_find(
	struct pool *p, const char *id, json_t **ret_record, char **ret_capture, struct err *err);

/* Remove its record and its checkpoint; what is not there is no error. */
int pool_snapshot_clear(struct pool *p, const char *id, struct err *err);

#endif
