/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_LIMITS_H
#define PARBAKE_POOL_LIMITS_H

#include "common/limits.h"

/* The bounds of the pool. What exceeds one is refused with an error that names it. */
#define LIMIT_POOL_TEMPLATES 256 /* with a zygote at once */
#define LIMIT_POOL_WAKE_MS 300000LL /* the lease of a sandbox that a request woke, at least */
#define LIMIT_POOL_KEYS 1024
#define LIMIT_POOL_READY 1024 /* standbys, and spares, of one template */

#endif
