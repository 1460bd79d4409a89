/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_ARTIFACT_H
#define PARBAKE_COMMON_ARTIFACT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

/*
 * Sealed files of the cache, from which machines and other files are made (expanded disks,
 * translations, results of stages). Each has a record of what it held when it was made,
 * PATHS_CACHE/verified/SUB-NAME. Before use it is compared with that record, once for each state of
 * the file (device, inode, size, times) and once a boot of the host. So a create need not read the
 * file. All functions may be called from any thread.
 */

/* Record what SUB/NAME of the cache holds: the file is whole and will not change. */
int artifact_seal(const char *sub, const char *name, struct err *err);
/*
 * Does @fd, SUB/NAME of the cache opened for reading, hold what it held when it was sealed? @anew:
 * read the file even if it was compared before. *@ret_bytes (may be NULL): the bytes of data that
 * were read. Marks the file as used now. -ENOENT: it has no record; -EBADMSG: it is damaged, and
 * the error says which file to remove.
 */
int artifact_check(
	const char *sub, const char *name, int fd, bool anew, uint64_t *ret_bytes, struct err *err);
/*
 * The same for a file by name, which is read anew. 1: the file is good; 0: there is no such file,
 * or no record of it (it is made anew when it is needed).
 */
int artifact_verify(const char *sub, const char *name, uint64_t *ret_bytes, struct err *err);

#endif
