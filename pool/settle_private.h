/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_SETTLE_PRIVATE_H
#define PARBAKE_POOL_SETTLE_PRIVATE_H

/* Resumed sandboxes, until they have all of their memory (pool/settle.c). */

#include <stdbool.h>

struct pool_sandbox;

/* It runs, from sb->capture: that goes when it is not needed any more. */
void pool_settle(struct pool_sandbox *sb);
/* It was found running: is there a checkpoint that it may need? */
void pool_settle_adopted(struct pool_sandbox *sb);
/* Its machine is gone: does it rest in what it came from? */
bool pool_settle_ended(struct pool_sandbox *sb);

#endif
