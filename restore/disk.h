/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_DISK_H
#define PARBAKE_RESTORE_DISK_H

#include "common/digest.h"
#include "common/err.h"
#include "common/progress.h"
#include "store/snapshot.h"

/*
 * Expanded disks. disk_open() gives the template's disk as an immutable raw file in
 * PATHS_CACHE/disks: the root disk of @root_fd expanded, the ranges of @c's delta (@delta_fd; -1
 * where it has none) put over it. The file is made once, its digests are checked, and then it gets
 * its name, with mode 0400. Any number of processes may call this at once. *@ret_fd is opened for
 * reading, caller closes. -EBADMSG: an image is damaged or not what the config says. Any thread.
 * @progress may be NULL.
 */
int disk_open(int root_fd, int delta_fd, const struct snapshot_config *c, struct progress *progress,
	int *ret_fd, struct err *err);

/* The name in PATHS_CACHE/disks of the disk that @c describes: 64 hexadecimal digits. */
void disk_name(const struct snapshot_config *c, char ret[static DIGEST_HEX_SIZE]);
/*
 * Read the disk that the cache has anew, and check it. 1: it is good, and *@ret_bytes of data were
 * read; 0: there is none; -EBADMSG: it is damaged, and the error says what to remove.
 */
int disk_verify(const struct snapshot_config *c, uint64_t *ret_bytes, struct err *err);

#endif
