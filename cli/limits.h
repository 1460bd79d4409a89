/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_LIMITS_H
#define PARBAKE_CLI_LIMITS_H

#include "common/limits.h"

/* The bounds of the commands. What exceeds one is refused with an error that names it. */
#define LIMIT_LOCK_BYTES (16 * MIB)
#define LIMIT_CLIENT_PART                                                                          \
	(15 * MIB) /* of an answer that a command reads in parts: a line, a frame */
#define LIMIT_BENCH_CLIENTS 256 /* creates at once */
#define LIMIT_BENCH_OPEN 1024 /* requests of an open loop that are not answered yet */

#endif
