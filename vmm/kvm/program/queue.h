/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_QUEUE_H
#define PARBAKE_VMM_KVM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "vmm/kvm/program/memory.h"

/*
 * A split virtqueue (virtio 1.2, 2.7), as the device sees it. The guest may write anything into it at any time: each
 * number is read once and checked before it is used. A chain is looked at (queue_peek) and, once the device is done
 * with it, given back (queue_give); between the two nothing is kept, so a queue's whole state is struct queue_state.
 */
#define QUEUE_SIZE_MAX 256
#define QUEUE_SEGMENTS 130 /* of a chain; more is a breach */

/* As it stands in a state record. */
struct queue_state {
	uint64_t desc, avail, used; /* the guest's addresses */
	uint16_t size; /* a power of two, ≤ QUEUE_SIZE_MAX */
	uint16_t next_avail, next_used;
	uint8_t ready;
	uint8_t unused;
};

struct queue {
	const struct memory *memory;
	struct queue_state s;
	bool event_idx; /* negotiated */
	bool broken; /* the guest has broken the rules: the queue is not served any more */
};

struct chain {
	uint16_t head;
	unsigned n_out, n_in; /* segments that the device reads; that it writes, behind them */
	uint64_t out_bytes, in_bytes;
	struct iovec iov[QUEUE_SEGMENTS];
};

/* The next chain: 1 with it in @c, 0 where there is none, -EPROTO where what is there breaks the rules. */
int queue_peek(struct queue *q, struct chain *c);
/*
 * Give the chain back to the guest, after @written bytes were written into it. True: the guest
 * wants to be interrupted.
 */
bool queue_give(struct queue *q, const struct chain *c, uint32_t written);

/*
 * Copy between @buf and a chain's segments, from byte @skip of the segments on. Return how many
 * bytes there were.
 */
size_t chain_read(const struct chain *c, uint64_t skip, void *buf, size_t len);
size_t chain_write(const struct chain *c, uint64_t skip, const void *buf, size_t len);
/*
 * The part [@skip, @skip + @len) of the segments that the device reads (@in: that it writes) to @iov, of which there is
 * room for QUEUE_SEGMENTS. Returns how many.
 */
unsigned chain_cut(const struct chain *c, bool in, uint64_t skip, uint64_t len, struct iovec *iov);

#endif
