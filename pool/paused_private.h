/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PAUSED_PRIVATE_H
#define PARBAKE_POOL_PAUSED_PRIVATE_H

/* The files of paused sandboxes (pool/paused.c). */

#include "common/err.h"

struct pool_sandbox;

/* Write STATE/paused/ID.json, off the loop, then call @done. */
void pool_paused_note(
	struct pool_sandbox *sb, void (*done)(void *user, int error, const char *text), void *user);
/* Remove one checkpoint of it. */
void pool_paused_clear_one(struct pool_sandbox *sb, unsigned generation);
/* Remove it, and all checkpoints that @sb may have. 0, or -errno where its record stays. */
int pool_paused_clear(struct pool_sandbox *sb, struct err *err);

#endif
