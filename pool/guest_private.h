/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_GUEST_PRIVATE_H
#define PARBAKE_POOL_GUEST_PRIVATE_H

/* The guests of sandboxes in the daemon's loop (pool/guest.c). */

#include <stdbool.h>

#include "common/err.h"

struct pool;
struct pool_sandbox;

/* Take over @channel (owned). */
int pool_guest_open(struct pool_sandbox *sb, int channel, struct err *err);
/* End its streams; the descriptor is kept and returned where @keep (else -1). May be called anywhere. */
int pool_guest_close(struct pool_sandbox *sb, bool keep);
/* Free what has been closed, now: their streams are told. */
void pool_guests_bury(struct pool *p);

#endif
