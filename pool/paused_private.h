/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PAUSED_PRIVATE_H
#define PARBAKE_POOL_PAUSED_PRIVATE_H

/* The files of paused sandboxes (pool/paused.c). */

#include "common/err.h"

struct pool_sandbox;

/*
 * Write the record of @sb to STATE/paused/ID.json in another thread, then call @done in the loop.
 */
void pool_paused_write(
	struct pool_sandbox *sb, void (*done)(void *user, int error, const char *text), void *user);
/* Remove the checkpoint of generation @generation of @sb. */
void pool_paused_clear_one(struct pool_sandbox *sb, unsigned generation);
/*
 * Remove the record of @sb, and all checkpoints that it may have. 0, or -errno where the record
 * stays.
 */
int pool_paused_clear(struct pool_sandbox *sb, struct err *err);

#endif
