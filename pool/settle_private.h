/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_SETTLE_PRIVATE_H
#define PARBAKE_POOL_SETTLE_PRIVATE_H

/* Resumed sandboxes, until they have all of their memory (pool/settle.c). */

#include <stdbool.h>

struct pool_sandbox;

/*
 * @sb has been resumed and runs from the checkpoint sb->capture: remove that checkpoint when it is
 * not needed any more.
 */
void pool_settle(struct pool_sandbox *sb);
/* @sb was adopted running: is there a checkpoint that it may still need? */
void pool_settle_adopted(struct pool_sandbox *sb);
/* The machine of @sb is gone. Is @sb paused again, in the checkpoint that it was resumed from? */
bool pool_settle_ended(struct pool_sandbox *sb);

#endif
