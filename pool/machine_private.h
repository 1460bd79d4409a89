/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_MACHINE_PRIVATE_H
#define PARBAKE_POOL_MACHINE_PRIVATE_H

/*
 * Machines, as the daemon sees them: a machine is a keeper, whatever it is used for
 * (pool/machine.c).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/err.h"

struct keeper;
struct loop_timer;
struct pool;
struct pool_handout;
struct pool_sandbox;
struct pool_version;

enum pool_use {
	POOL_USE_MAKING_STANDBY,
	POOL_USE_MAKING_SPARE,
	POOL_USE_STANDBY,
	POOL_USE_SPARE,
	POOL_USE_HANDOUT, /* being handed out */
	POOL_USE_SANDBOX,
	POOL_USE_ADOPTED, /* adopted: it has been asked which sandbox it has */
	POOL_USE_FOREIGN, /* not adopted: another version of parbake has its sandbox, which goes on */
	POOL_USE_DYING,
};

/* A keeper as the daemon sees it, whatever it is used for. One thread: the loop's. */
struct pool_machine {
	struct pool *pool;
	struct pool_version *version; /* NULL: adopted, not known yet */
	LIST_ENTRY(pool_machine) link;
	struct keeper *keeper;
	enum pool_use use;
	int64_t began;
	int64_t measured_ns; /* when its memory was last asked for; 0: not yet */
	struct loop_timer *timer; /* at its deadline for being made, or for answering */
	struct pool_handout *handout; /* while POOL_USE_HANDOUT */
	struct pool_sandbox *sb; /* while POOL_USE_SANDBOX */
	char *path; /* of an adopted one's socket */
	void (*gone)(void *user, int error, const char *text); /* while POOL_USE_DYING; or NULL */
	void *user;
};

/*
 * Make a machine of @v, or from the checkpoint @capture (NULL: none), to be used for something of
 * key @key ("": nobody's).
 */
int pool_machine_make(struct pool_version *v, const char *key, const char *capture,
	bool same_identity, enum pool_use use, struct pool_machine **ret, struct err *err);
int pool_machine_adopt(
	struct pool *p, const char *path, struct pool_machine **ret, struct err *err);
/*
 * Kill the machine. @gone (may be NULL) is called when it is gone. Whoever had the machine must
 * have let go of it.
 */
void pool_machine_end(
	struct pool_machine *m, void (*gone)(void *user, int error, const char *text), void *user);
/* Close the connection alone, and free @m: a keeper with a lease goes on. */
void pool_machine_free(struct pool_machine *m);

#endif
