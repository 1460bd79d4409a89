/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_LEASE_PRIVATE_H
#define PARBAKE_POOL_LEASE_PRIVATE_H

/* The daemon's mirror of the leases that keepers hold (pool/lease.c). */

#include <stdint.h>

#include "common/err.h"

struct pool;
struct pool_sandbox;

/*
 * Take in a lease's end, CLOCK_BOOTTIME ns, as the keeper answered it to hand_out, describe or
 * renew.
 */
void pool_lease_set(struct pool_sandbox *sb, int64_t end_ns);
/*
 * The directory of the checkpoint that the lease's end makes; NULL where the lease's end kills the
 * sandbox. Caller frees.
 */
char *pool_lease_pause_dir(const struct pool_sandbox *sb);
/*
 * A timeout of 0 becomes the default. -EINVAL where the timeout is longer than the configuration
 * allows.
 */
int pool_lease_check(const struct pool *p, uint64_t *timeout_ms, struct err *err);

#endif
