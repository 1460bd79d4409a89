/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_MACHINE_PRIVATE_H
#define PARBAKE_POOL_MACHINE_PRIVATE_H

/* A machine from the daemon's end: a keeper, whatever it is used for (pool/machine.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct keeper;
struct loop_timer;
struct pool;
struct pool_handout;
struct pool_sandbox;
struct pool_version;

enum pool_use {
	POOL_USE_MAKING_SHELL,
	POOL_USE_MAKING_SPARE,
	POOL_USE_SHELL,
	POOL_USE_SPARE,
	POOL_USE_HANDOUT, /* being handed out */
	POOL_USE_SANDBOX,
	POOL_USE_ADOPTED, /* who it is has been asked */
	POOL_USE_DYING,
};

/* A keeper from our end, whatever it is used for. */
struct pool_machine {
	struct pool *pool;
	struct pool_version *version; /* NULL: adopted, not known yet */
	struct pool_machine *next, *prev; /* of all in the pool */
	struct keeper *keeper;
	enum pool_use use;
	int64_t began;
	int64_t measured_ns; /* when its memory was last asked for; 0: not yet */
	struct loop_timer *timer; /* by when it must be made, or have answered */
	struct pool_handout *job; /* while POOL_USE_HANDOUT */
	struct pool_sandbox *sb; /* while POOL_USE_SANDBOX */
	char *path; /* of an adopted one's socket */
	void (*gone)(void *user, int error, const char *text); /* while POOL_USE_DYING; or NULL */
	void *user;
};

/* Make one for @v, or from a capture, for something of @key's ("": nobody's). */
int pool_machine_make(struct pool_version *v, const char *key, const char *capture,
	bool same_identity, enum pool_use use, struct pool_machine **ret, struct err *err);
int pool_machine_adopt(
	struct pool *p, const char *path, struct pool_machine **ret, struct err *err);
/* Kill it; @gone (may be NULL) when it is. Whoever had it must have let go. */
void pool_machine_end(
	struct pool_machine *m, void (*gone)(void *user, int error, const char *text), void *user);
/* Let go of the connection alone: one with a lease goes on. */
void pool_machine_free(struct pool_machine *m);

#endif
