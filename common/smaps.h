/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_SMAPS_H
#define PARBAKE_COMMON_SMAPS_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * What a process has in memory, in bytes. Shared pages count in pss by their share, in rss fully.
 */
struct smaps {
	uint64_t rss, pss, private_bytes; /* of all mappings */
	uint64_t guest_rss, guest_pss, guest_private; /* of those of a memfd: guest memory */
};

/* From /proc/@pid/smaps. -ESRCH: no such process. -EACCES: not this user's to look into. */
int smaps_read(int pid, struct smaps *ret, struct err *err);
/*
 * From /proc/@pid/status, which everybody may read: what is not shared (its own and the guest's together) as
 * guest_private, what maps a memfd, counted fully, in guest_rss and guest_pss.
 */
int smaps_read_rough(int pid, struct smaps *ret, struct err *err);
/* The same of such a file's text. -EINVAL names the line. */
int smaps_parse(const char *text, struct smaps *ret, struct err *err);

#endif
