/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_ARTIFACT_H
#define PARBAKE_COMMON_ARTIFACT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

/*
 * Files of the cache that others are made of (expanded disks, translations, results of stages): each has a record of
 * what it held when it was made, PATHS_CACHE/verified/SUB-NAME, and is compared with that before it is used, once for
 * the file as it lies there (device, inode, size, times) and once a boot. So a create reads nothing of it.
 * All functions may be called from any thread.
 */

/* SUB/NAME of the cache is whole and will not change: record what it holds. */
int artifact_seal(const char *sub, const char *name, struct err *err);
/*
 * Does @fd, SUB/NAME of the cache opened for reading, hold what it held when it was sealed? @anew: read it, even if
 * that was seen before. *@ret_bytes (may be NULL): of data that were read for it. Marks it as used now. -ENOENT: it
 * has no record; -EBADMSG: it is damaged, and the error says which file to remove.
 */
int artifact_check(
	const char *sub, const char *name, int fd, bool anew, uint64_t *ret_bytes, struct err *err);
/* The same by name, read anew: 1: it is good; 0: there is none, or no record of it (it is made anew when it is needed). */
int artifact_verify(const char *sub, const char *name, uint64_t *ret_bytes, struct err *err);

#endif
