/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_GUEST_PRIVATE_H
#define PARBAKE_POOL_GUEST_PRIVATE_H

/* The guests of sandboxes in the daemon's loop (pool/guest.c). */

#include <stdbool.h>

#include "common/err.h"

struct pool;
struct pool_sandbox;

/* Take over @channel (owned) as the channel to the agent of @sb. */
int pool_guest_open(struct pool_sandbox *sb, int channel, struct err *err);
/*
 * End the streams of the guest of @sb. Where @keep, the channel's descriptor is kept and returned,
 * else -1 is. May be called from anywhere.
 */
int pool_guest_close(struct pool_sandbox *sb, bool keep);
/* Free the guests that have been closed, now: those who have streams open in them are told. */
void pool_guests_bury(struct pool *p);

#endif
