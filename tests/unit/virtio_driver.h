/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_VIRTIO_DRIVER_H
#define PARBAKE_TESTS_VIRTIO_DRIVER_H

/* A guest's side of virtio devices, as small as can be: registers, and queues in a memory of its own. */
#include <stdlib.h>
#include <string.h>

#include "vmm/kvm/program/virtio.h"

#define DRIVER_MEMORY (1u << 20)
#define DRIVER_QUEUE 8 /* entries */
#define DRIVER_DATA 0x40000u /* where buffers may lie */

struct driver {
	struct memory memory;
	struct virtio *v;
	unsigned interrupts;
	uint16_t avail[VIRTIO_QUEUES_MAX], used[VIRTIO_QUEUES_MAX];
};

struct driver_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

static void driver_raised(void *user, unsigned irq)
{
	(void)irq;
	((struct driver *)user)->interrupts++;
}

static inline uint32_t driver_get(struct driver *d, uint32_t at)
{
	uint32_t value;

	virtio_read(d->v, at, (uint8_t *)&value, sizeof(value));
	return value;
}

static inline void driver_set(struct driver *d, uint32_t at, uint32_t value)
{
	virtio_write(d->v, at, (const uint8_t *)&value, sizeof(value));
}

/* Queue @q's rings: 4 KiB for each, from 0x1000 on. */
static inline uint32_t driver_ring(unsigned q)
{
	return 0x1000 + q * 0x1000;
}

static inline void *driver_at(struct driver *d, uint64_t at)
{
	return d->memory.base + at;
}

static inline void driver_begin(struct driver *d, struct virtio *v, const struct virtio_ops *ops)
{
	*d = (struct driver){.v = v};
	d->memory =
		(struct memory){.base = aligned_alloc(4096, DRIVER_MEMORY), .bytes = DRIVER_MEMORY};
	memset(d->memory.base, 0, DRIVER_MEMORY);
	virtio_init(v, ops, &d->memory, 5, driver_raised, d);
}

static inline void driver_end(struct driver *d)
{
	free(d->memory.base);
}

/* As Linux does it: reset, features (all but @without), queues, go. */
static inline void driver_start(struct driver *d, uint64_t without)
{
	uint64_t features = 0;

	driver_set(d, 0x070, 0);
	driver_set(d, 0x070, 3);
	for (uint32_t page = 0; page < 2; page++) {
		driver_set(d, 0x014, page);
		features |= (uint64_t)driver_get(d, 0x010) << 32 * page;
	}
	features &= ~without;
	for (uint32_t page = 0; page < 2; page++) {
		driver_set(d, 0x024, page);
		driver_set(d, 0x020, (uint32_t)(features >> 32 * page));
	}
	driver_set(d, 0x070, 11);
	for (unsigned q = 0; q < d->v->ops->n_queues; q++) {
		uint32_t at = driver_ring(q);

		driver_set(d, 0x030, q);
		driver_set(d, 0x038, DRIVER_QUEUE);
		driver_set(d, 0x080, at);
		driver_set(d, 0x090, at + 0x400);
		driver_set(d, 0x0a0, at + 0x800);
		driver_set(d, 0x044, 1);
		d->avail[q] = d->used[q] = 0;
	}
	driver_set(d, 0x070, 15);
}

static inline void driver_put_desc(struct driver *d, unsigned q, unsigned i, uint64_t addr,
	uint32_t len, uint16_t flags, uint16_t next)
{
	struct driver_desc *table = driver_at(d, driver_ring(q));

	table[i] = (struct driver_desc){addr, len, flags, next};
}

/* The chain that begins at descriptor @head is the device's; then ring. */
static inline void driver_offer(struct driver *d, unsigned q, uint16_t head)
{
	uint16_t *avail = driver_at(d, driver_ring(q) + 0x400);

	avail[2 + d->avail[q]++ % DRIVER_QUEUE] = head;
	avail[1] = d->avail[q];
	driver_set(d, 0x050, q);
}

/* Has the device given back another one? Its written length then. */
static inline int driver_take(struct driver *d, unsigned q, uint32_t *ret_len)
{
	const uint16_t *used = driver_at(d, driver_ring(q) + 0x800);
	const uint32_t *elem = driver_at(d, driver_ring(q) + 0x804);

	if (used[1] == d->used[q])
		return 0;
	if (ret_len)
		*ret_len = elem[d->used[q] % DRIVER_QUEUE * 2 + 1];
	d->used[q]++;
	return 1;
}

/* One buffer, for the device to write (@in) or read. */
static inline void driver_offer_one(
	struct driver *d, unsigned q, uint16_t i, uint64_t addr, uint32_t len, int in)
{
	driver_put_desc(d, q, i, addr, len, in ? 2 : 0, 0);
	driver_offer(d, q, i);
}

#endif
