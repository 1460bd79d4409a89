/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_RELAY_LIMITS_H
#define PARBAKE_POOL_RELAY_LIMITS_H

#include "common/limits.h"

/* The bounds of the ports of sandboxes. What exceeds one is refused with an error that names it. */
#define LIMIT_RELAY_HEADERS 64 /* of the answer of a server in a sandbox */
#define LIMIT_RELAY_HEAD (64 * KIB) /* of its head */
#define LIMIT_RELAY_SANDBOX                                                                        \
	64 /* requests at once for one sandbox's servers; its agent has 128 streams */

#endif
