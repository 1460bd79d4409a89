/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_DISK_DELTA_H
#define PARBAKE_VMM_DISK_DELTA_H

#include <stdint.h>

#include "common/err.h"
#include "store/snapshot.h"

/*
 * Disk deltas (store/snapshot.h): what was written over a disk, as ranges, and a file that holds
 * their bytes one behind the other; a hole of that file was written with zeros. The files are raw
 * and sparse; @fd is a new one, to be written. Any thread.
 */

/*
 * Make a delta of what the overlay @overlay_fd (of a machine that is paused or gone) holds. Its
 * ranges go to *@ret, joined where they meet, which the caller clears. Their bytes, *@ret_bytes of
 * them, go to @fd. The overlay is checked as by machine_overlay_walk().
 */
int disk_delta_of_overlay(int overlay_fd, uint64_t disk_bytes, int fd, struct snapshot_ranges *ret,
	uint64_t *ret_bytes, struct err *err);
/* Put the delta @over over the delta @under. Both have rising ranges that are apart. */
int disk_delta_merge(const struct snapshot_ranges *under, int under_fd,
	const struct snapshot_ranges *over, int over_fd, int fd, struct snapshot_ranges *ret,
	uint64_t *ret_bytes, struct err *err);

#endif
