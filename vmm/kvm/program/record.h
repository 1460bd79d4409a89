/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_RECORD_H
#define PARBAKE_VMM_KVM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "vmm/kvm/control.h"

/*
 * A state record: all of a machine but its memory and disk. Little-endian, as the processor has it.
 *
 *     struct record_head, then sections: struct record_section and its bytes, padded to 8
 *
 * A record is read as hostile: lengths and numbers are checked before they are used. The digest
 * finds damage, and does not say who wrote the record; its owner has to know that (docs/format.md).
 */
#define RECORD_MAGIC "PBKVMREC"
#define RECORD_VERSION ((uint32_t)KVM_STATE_VERSION)
#define RECORD_MAX (1u << 20)
#define RECORD_SECTIONS_MAX 512

enum record_type {
	RECORD_CPUID = 1,
	RECORD_CLOCK,
	RECORD_IRQCHIP, /* 0 … 2: two PICs, the IO-APIC */
	RECORD_SERIAL,
	RECORD_DEVICE, /* by enum vm_device */
	/* of processor N: */
	RECORD_SREGS,
	RECORD_REGS,
	RECORD_XSAVE,
	RECORD_XCRS,
	RECORD_DEBUGREGS,
	RECORD_LAPIC,
	RECORD_MSRS,
	RECORD_EVENTS,
	RECORD_MP_STATE,
};

struct record_head {
	char magic[8];
	uint32_t version, sections;
	uint64_t bytes; /* of the whole */
	uint64_t digest; /* of the whole, with this as 0 */
	uint64_t memory_bytes;
	uint32_t vcpus;
	uint32_t tsc_khz; /* the rate of the guest's time stamp counter */
};

struct record_section {
	uint32_t type, index;
	uint64_t bytes; /* without the padding */
};

struct record {
	uint8_t *buf; /* RECORD_MAX bytes, aligned to 8 */
	size_t len;
	bool full; /* a section had no room */
};

/* Write: begin, then sections in any order, then end. */
void record_begin(struct record *r, uint8_t *buf);
/* Room for a section, zeroed; never NULL (where the record is full, it is the last section's room again). */
void *record_add(struct record *r, enum record_type type, uint32_t index, size_t bytes);
/* The section added last becomes @bytes long, which is less. */
void record_cut(struct record *r, size_t bytes);
int record_end(
	struct record *r, uint64_t memory_bytes, uint32_t vcpus, uint32_t tsc_khz, struct err *err);

/* Read: check @len bytes at @buf, which stay the caller's. -EBADMSG. */
int record_open(struct record *r, uint8_t *buf, size_t len, struct err *err);
const struct record_head *record_head(const struct record *r);
/* The section of that type and index and, unless @bytes is 0, of that size; else NULL. */
const void *record_find(const struct record *r, enum record_type type, uint32_t index, size_t bytes,
	size_t *ret_bytes);

#endif
