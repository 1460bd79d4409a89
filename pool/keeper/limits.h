/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_KEEPER_LIMITS_H
#define PARBAKE_POOL_KEEPER_LIMITS_H

#include "common/limits.h"

/* The bounds of keepers. What exceeds one is refused with an error that names it. */
#define LIMIT_KEEPER_RECORD (32 * KIB) /* of the record that a keeper holds, as text */
#define LIMIT_KEEPER_FILES                                                                         \
	1024 /* descriptors of a keeper; and of all that are on their way (unix(7)) */
#define LIMIT_PAUSE_TRIES 10 /* of a pause at a lease's end; then the sandbox is killed */
#define LIMIT_PAUSE_RETRY_MS 30000 /* between two */
#define LIMIT_KILL_MS 10000 /* after SIGKILL; a machine that is not gone by then is reported so */
#define LIMIT_CAPTURE_HANG_MS 30000 /* beyond that: a keeper that hangs in the kernel is killed */

#endif
