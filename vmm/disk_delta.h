/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_DISK_DELTA_H
#define PARBAKE_VMM_DISK_DELTA_H

#include <stdint.h>

#include "common/err.h"
#include "store/snapshot.h"

/*
 * Disk deltas (store/snapshot.h): what was written over a disk, as ranges, and a file that holds their bytes
 * one behind the other; a hole of it was written with zeros. Files are raw, sparse, new ones to be written.
 */

/*
 * What the overlay @overlay_fd (of a machine that is paused or gone) holds: ranges to *@ret, joined where they
 * meet, the caller's to clear; their bytes to @fd, *@ret_bytes of them. The overlay is checked as by
 * machine_overlay_walk().
 */
int disk_delta_of_overlay(int overlay_fd, uint64_t disk_bytes, int fd, struct snapshot_ranges *ret,
	uint64_t *ret_bytes, struct err *err);
/* The delta @over put over the delta @under. Both have rising ranges that are apart. */
int disk_delta_merge(const struct snapshot_ranges *under, int under_fd,
	const struct snapshot_ranges *over, int over_fd, int fd, struct snapshot_ranges *ret,
	uint64_t *ret_bytes, struct err *err);

#endif
