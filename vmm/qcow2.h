/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_QCOW2_H
#define PARBAKE_VMM_QCOW2_H

#include <assert.h>
#include <stdint.h>

/*
 * qcow2, version 3 (QEMU: docs/interop/qcow2.txt), in the one form that overlays have here: clusters of 64 KiB, 16-bit
 * reference counts, an L1 table of one cluster. All numbers in the file are big-endian.
 */
#define QCOW2_MAGIC 0x514649fbu
#define QCOW2_VERSION 3
#define QCOW2_CLUSTER_BITS 16
#define QCOW2_CLUSTER (1ull << QCOW2_CLUSTER_BITS)
#define QCOW2_ENTRIES (QCOW2_CLUSTER / 8) /* of a table of one cluster */
#define QCOW2_REFCOUNT_ORDER 4 /* 16 bits */
#define QCOW2_OFFSET_MASK 0x00fffffffffffe00ull
/* of an entry of an L2 table */
#define QCOW2_ZERO 1ull
#define QCOW2_COMPRESSED (1ull << 62)
#define QCOW2_COPIED (1ull << 63) /* nobody else refers to it */

struct qcow2_header {
	uint32_t magic, version;
	uint64_t backing_offset;
	uint32_t backing_len, cluster_bits;
	uint64_t size;
	uint32_t crypt, l1_entries;
	uint64_t l1_offset, refcount_offset;
	uint32_t refcount_clusters, snapshots;
	uint64_t snapshots_offset;
	uint64_t incompatible, compatible, autoclear;
	uint32_t refcount_order, header_len;
	uint8_t compression, padding[7];
} __attribute__((packed));
static_assert(sizeof(struct qcow2_header) == 112, "as in the file");

#endif
