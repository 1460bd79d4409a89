/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_DISK_H
#define PARBAKE_VMM_KVM_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/err.h"
#include "vmm/qcow2.h"

/*
 * A machine's disk: a raw base that nobody changes, and over it the machine's own qcow2 overlay, of the form that
 * machine_overlay_init() makes and machine_overlay_walk() accepts (vmm/overlay.c, docs/format.md). One caller at a time.
 */
#define DISK_CLUSTER ((unsigned)QCOW2_CLUSTER)
#define DISK_ENTRIES QCOW2_ENTRIES
#define DISK_TABLES 8 /* L2 tables that are kept at hand */
#define DISK_L1_MAX 2048 /* a disk of 1 TiB */

struct disk_table {
	uint64_t at; /* in the overlay; 0: none */
	uint64_t used; /* when */
	uint64_t entries[DISK_ENTRIES]; /* as in the file: big-endian */
};

struct disk {
	int base_fd, overlay_fd;
	uint64_t bytes, base_bytes;
	uint64_t end; /* of the overlay: where the next cluster goes */
	bool detect_zeros; /* whole clusters of zeros that are written stay out of the overlay */
	uint64_t refcounts; /* the overlay's table of reference counts; one cluster */
	uint64_t block, block_at; /* the block of them last used: its number + 1, and where it is */
	uint64_t l1_at, l1_entries, clock;
	uint64_t l1[DISK_L1_MAX];
	struct disk_table tables[DISK_TABLES];
	uint8_t bounce[DISK_CLUSTER];
};

/* Open a disk. The descriptors are borrowed. -EBADMSG: the overlay is not of that form. */
int disk_open(struct disk *d, int base_fd, int overlay_fd, bool detect_zeros, struct err *err);
/*
 * Read or write the bytes from @at on, as many as @iov has, all within the disk. 0 or -errno; a
 * call that failed may have done any part of its work. @iov is changed.
 */
int disk_read(struct disk *d, uint64_t at, struct iovec *iov, unsigned n);
int disk_write(struct disk *d, uint64_t at, struct iovec *iov, unsigned n);
/*
 * Make these bytes read as zeros from now on. Where @hint, it is enough that the whole clusters
 * among them do.
 */
int disk_zero(struct disk *d, uint64_t at, uint64_t len, bool hint);

#endif
