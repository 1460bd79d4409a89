/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_EXT4_OWNER_H
#define PARBAKE_BAKE_EXT4_OWNER_H

#include <stdint.h>

#include "common/err.h"

/*
 * Whose byte @offset of the ext4 image @fd is, as words for a person: "/etc/passwd", "a free block (of a
 * file that was removed)", "the journal", "the file system's own tables". It reads all inodes: seconds for a
 * large image. Caller frees *@ret. -EBADMSG: not an ext4 that libext2fs can read.
 */
int ext4_owner(int fd, uint64_t offset, char **ret, struct err *err);

#endif
