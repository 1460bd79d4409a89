/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MP table: processors, one ISA bus, one IO-APIC whose pins are the ISA interrupts, and each
 * processor's two local ones: Intel, MultiProcessor Specification 1.4, chapter 4.
 */
#include "vmm/kvm/program/mptable.h"

#include <assert.h>
#include <string.h>

#define LAPIC_AT 0xfee00000u
#define IOAPIC_AT 0xfec00000u
#define APIC_VERSION 0x14
#define ISA_IRQS 16
#define ALL_APICS 0xff

enum { ENTRY_PROCESSOR, ENTRY_BUS, ENTRY_IOAPIC, ENTRY_INTERRUPT, ENTRY_LOCAL };
enum { INT, NMI, SMI, EXT_INT };

struct pointer {
	char signature[4];
	uint32_t table;
	uint8_t length, version, checksum, features[5];
};

struct header {
	char signature[4];
	uint16_t length;
	uint8_t version, checksum;
	char oem[8], product[12];
	uint32_t oem_table;
	uint16_t oem_length, entries;
	uint32_t lapic;
	uint16_t extended_length;
	uint8_t extended_checksum, unused;
};

struct processor {
	uint8_t type, apic, version, flags;
	uint32_t signature, features, unused[2];
};

struct bus {
	uint8_t type, id;
	char name[6];
};

struct ioapic {
	uint8_t type, id, version, flags;
	uint32_t at;
};

struct interrupt {
	uint8_t type, kind;
	uint16_t flags;
	uint8_t bus, irq, apic, pin;
};

static_assert(sizeof(struct pointer) == 16 && sizeof(struct header) == 44 &&
		sizeof(struct processor) == 20 && sizeof(struct bus) == 8 &&
		sizeof(struct ioapic) == 8 && sizeof(struct interrupt) == 8,
	"as the specification has them");

static uint8_t checksum(const void *at, size_t len)
{
	const uint8_t *b = at;
	uint8_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + b[i]);
	return (uint8_t)-sum;
}

static uint8_t *put(uint8_t *to, const void *entry, size_t len)
{
	memcpy(to, entry, len);
	return to + len;
}

static uint8_t *put_interrupts(uint8_t *to, uint8_t ioapic_id)
{
	const struct interrupt local[] = {
		{.type = ENTRY_LOCAL, .kind = EXT_INT, .apic = 0, .pin = 0},
		{.type = ENTRY_LOCAL, .kind = NMI, .apic = ALL_APICS, .pin = 1},
	};

	for (uint8_t i = 0; i < ISA_IRQS; i++) {
		const struct interrupt e = {.type = ENTRY_INTERRUPT,
			.kind = INT,
			.irq = i,
			.apic = ioapic_id,
			.pin = i};

		to = put(to, &e, sizeof(e));
	}
	return put(to, local, sizeof(local));
}

void mptable_write(uint8_t *to, uint64_t at, unsigned vcpus)
{
	const struct bus bus = {.type = ENTRY_BUS, .name = {'I', 'S', 'A', ' ', ' ', ' '}};
	const struct ioapic ioapic = {.type = ENTRY_IOAPIC,
		.id = (uint8_t)vcpus,
		.version = 0x11,
		.flags = 1,
		.at = IOAPIC_AT};
	struct pointer p = {.signature = {'_', 'M', 'P', '_'},
		.table = (uint32_t)(at + sizeof(p)),
		.length = 1,
		.version = 4};
	struct header h = {.signature = {'P', 'C', 'M', 'P'},
		.version = 4,
		.oem = {'p', 'a', 'r', 'b', 'a', 'k', 'e', ' '},
		.product = {'m', 'a', 'c', 'h', 'i', 'n', 'e', ' ', ' ', ' ', ' ', ' '},
		.entries = (uint16_t)(vcpus + 2 + ISA_IRQS + 2),
		.lapic = LAPIC_AT};
	uint8_t *table = to + sizeof(p), *end = table + sizeof(h);

	for (uint8_t i = 0; i < vcpus; i++) {
		const struct processor e = {.type = ENTRY_PROCESSOR,
			.apic = i,
			.version = APIC_VERSION,
			.flags = (uint8_t)(1 | (i == 0 ? 2 : 0)), /* usable; the first */
			.signature = 0x600,
			.features = 0x201};

		end = put(end, &e, sizeof(e));
	}
	end = put(end, &bus, sizeof(bus));
	end = put(end, &ioapic, sizeof(ioapic));
	end = put_interrupts(end, ioapic.id);
	h.length = (uint16_t)(end - table);
	assert((size_t)(end - to) <= MPTABLE_BYTES);
	memcpy(table, &h, sizeof(h));
	h.checksum = checksum(table, h.length);
	memcpy(table, &h, sizeof(h));
	p.checksum = checksum(&p, sizeof(p));
	memcpy(to, &p, sizeof(p));
}
