/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_DISK_PRIVATE_H
#define PARBAKE_POOL_DISK_PRIVATE_H

/*
 * The host's disk: how much of it the sandboxes and snapshots of a key take, and how much they may
 * (pool/disk.c). One thread: the loop's.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct config_key;
struct pool;

/* The bytes that the files of the checkpoint in directory @dir take on the disk; 0: none is there. */
uint64_t pool_disk_of_capture(const char *dir);
/*
 * May the key @c have something more on the host's disk? It may as long as it has less there than
 * max_disk of its section; without that, and where there are other keys, as long as it has less
 * there than is free in the file system of the state directory. Its paused sandboxes count with
 * their checkpoints, those that run with what their disks have grown by when they were last
 * measured, and, if @snapshots, its snapshots too (then files are read). -EDQUOT where it may not.
 */
int pool_disk_check(struct pool *p, const struct config_key *c, bool snapshots, struct err *err);

#endif
