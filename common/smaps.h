/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_SMAPS_H
#define PARBAKE_COMMON_SMAPS_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * A process's memory, in bytes. A shared page counts in pss by its share, and in rss fully. Any
 * thread.
 */
struct smaps {
	uint64_t rss, pss, private_bytes; /* of all mappings */
	uint64_t guest_rss, guest_pss, guest_private; /* of those of a memfd: guest memory */
};

/* From /proc/@pid/smaps. -ESRCH: no such process. -EACCES: not this user's to look into. */
int smaps_read(int pid, struct smaps *ret, struct err *err);
/*
 * From /proc/@pid/status, which everybody may read: guest_private has all memory that is not shared
 * (the process's own and the guest's together); guest_rss and guest_pss have the mappings of a
 * memfd, counted fully.
 */
int smaps_read_rough(int pid, struct smaps *ret, struct err *err);
/* The same of such a file's text. -EINVAL names the line. */
int smaps_parse(const char *text, struct smaps *ret, struct err *err);

#endif
