/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_LIMITS_H
#define PARBAKE_RESTORE_PAGER_LIMITS_H

#include "common/limits.h"

/* The bounds of a pager. What exceeds one is refused with an error that names it. */
#define LIMIT_PAGER_MACHINES 4096
#define LIMIT_PAGER_CLIENTS                                                                        \
	(LIMIT_PAGER_MACHINES + 256) /* connections to one pager: each keeper has one */
#define LIMIT_PAGER_TRACE 65536 /* entries of a pager's trace kept until they are fetched */
#define LIMIT_PAGER_REPLY_MS 60000 /* a pager that says nothing for so long is broken */

#endif
