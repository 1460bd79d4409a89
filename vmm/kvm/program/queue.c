/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtqueues. The rings lie in guest memory, which the guest's processors write while we read. So a
 * descriptor is copied before it is checked, indices are loaded once, and a chain is followed for
 * as many steps as it may have segments and no more.
 */
#include "vmm/kvm/program/queue.h"

#include <string.h>

#define DESC_NEXT 1
#define DESC_WRITE 2
#define DESC_INDIRECT 4
#define AVAIL_NO_INTERRUPT 1

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

struct used_elem {
	uint32_t id, len;
};

struct rings {
	const struct desc *desc;
	const uint16_t *avail; /* flags, index, ring, used_event */
	uint16_t *used; /* flags, index, ring of struct used_elem, avail_event */
};

static bool find_rings(const struct queue *q, struct rings *r)
{
	uint64_t n = q->s.size;

	if (q->s.desc % 16 || q->s.avail % 2 || q->s.used % 4)
		return false;
	r->desc = memory_at(q->memory, q->s.desc, n * sizeof(struct desc));
	r->avail = memory_at(q->memory, q->s.avail, 6 + 2 * n);
	r->used = memory_at(q->memory, q->s.used, 6 + n * sizeof(struct used_elem));
	return r->desc && r->avail && r->used;
}

static uint16_t load(const uint16_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static int breach(struct queue *q)
{
	q->broken = true;
	return -EPROTO;
}

/* A descriptor is added to the chain. */
static bool add_segment(const struct queue *q, struct chain *c, const struct desc *d)
{
	unsigned n = c->n_out + c->n_in;
	void *at = memory_at(q->memory, d->addr, d->len);

	if (n == QUEUE_SEGMENTS || !at)
		return false;
	c->iov[n] = (struct iovec){at, d->len};
	if (d->flags & DESC_WRITE) {
		c->n_in++;
		c->in_bytes += d->len;
	} else {
		if (c->n_in) /* what is read comes first */
			return false;
		c->n_out++;
		c->out_bytes += d->len;
	}
	return true;
}

static bool follow(const struct queue *q, const struct desc *table, uint32_t n, uint32_t first,
	bool indirect, struct chain *c)
{
	uint32_t at = first;

	for (unsigned steps = 0; steps <= QUEUE_SEGMENTS; steps++) {
		struct desc d;

		if (at >= n)
			return false;
		memcpy(&d, &table[at], sizeof(d));
		__asm__ volatile("" ::: "memory"); /* not read again */
		if (d.flags & DESC_INDIRECT) {
			const struct desc *inner;

			if (indirect || d.flags & DESC_NEXT || steps || d.len % sizeof(d) ||
				d.len == 0 || d.len / sizeof(d) > QUEUE_SIZE_MAX || d.addr % 8)
				return false;
			inner = memory_at(q->memory, d.addr, d.len);
			return inner && follow(q, inner, d.len / (uint32_t)sizeof(d), 0, true, c);
		}
		if (!add_segment(q, c, &d))
			return false;
		if (!(d.flags & DESC_NEXT))
			return true;
		at = d.next;
	}
	return false;
}

/* Is there something new? If not, ask to be told of the next. */
static bool has_next(struct queue *q, const struct rings *r)
{
	uint16_t *event = r->used + 2 + 4 * q->s.size; /* behind the ring */

	if (load(&r->avail[1]) != q->s.next_avail)
		return true;
	if (!q->event_idx)
		return false;
	__atomic_store_n(event, q->s.next_avail, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return load(&r->avail[1]) != q->s.next_avail;
}

int queue_peek(struct queue *q, struct chain *c)
{
	struct rings r;
	uint16_t ahead;

	if (!q->s.ready || q->broken)
		return 0;
	if (!find_rings(q, &r))
		return breach(q);
	if (!has_next(q, &r))
		return 0;
	ahead = (uint16_t)(load(&r.avail[1]) - q->s.next_avail);
	if (ahead > q->s.size)
		return breach(q);
	c->head = load(&r.avail[2 + q->s.next_avail % q->s.size]);
	c->n_out = c->n_in = 0;
	c->out_bytes = c->in_bytes = 0;
	if (!follow(q, r.desc, q->s.size, c->head, false, c))
		return breach(q);
	return 1;
}

bool queue_give(struct queue *q, const struct chain *c, uint32_t written)
{
	struct used_elem elem = {.id = c->head, .len = written};
	uint16_t old = q->s.next_used, now = (uint16_t)(old + 1), event;
	struct rings r;

	if (!find_rings(q, &r)) {
		q->broken = true;
		return false;
	}
	memcpy(r.used + 2 + 4 * (old % q->s.size), &elem, sizeof(elem));
	__atomic_store_n(&r.used[1], now, __ATOMIC_RELEASE);
	q->s.next_avail++;
	q->s.next_used = now;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!q->event_idx)
		return !(load(&r.avail[0]) & AVAIL_NO_INTERRUPT);
	event = load(&r.avail[2 + q->s.size]);
	return (uint16_t)(now - event - 1) < (uint16_t)(now - old);
}

/* ---- a chain's bytes -------------------------------------------------------------------- */

unsigned chain_cut(const struct chain *c, bool in, uint64_t skip, uint64_t len, struct iovec *iov)
{
	const struct iovec *from = c->iov + (in ? c->n_out : 0);
	unsigned n = in ? c->n_in : c->n_out, out = 0;

	for (unsigned i = 0; i < n && len; i++) {
		uint64_t have = from[i].iov_len, take;

		if (skip >= have) {
			skip -= have;
			continue;
		}
		take = have - skip < len ? have - skip : len;
		iov[out++] = (struct iovec){(uint8_t *)from[i].iov_base + skip, take};
		skip = 0;
		len -= take;
	}
	return out;
}

size_t chain_read(const struct chain *c, uint64_t skip, void *buf, size_t len)
{
	struct iovec iov[QUEUE_SEGMENTS];
	unsigned n = chain_cut(c, false, skip, len, iov);
	size_t done = 0;

	for (unsigned i = 0; i < n; i++) {
		memcpy((uint8_t *)buf + done, iov[i].iov_base, iov[i].iov_len);
		done += iov[i].iov_len;
	}
	return done;
}

size_t chain_write(const struct chain *c, uint64_t skip, const void *buf, size_t len)
{
	struct iovec iov[QUEUE_SEGMENTS];
	unsigned n = chain_cut(c, true, skip, len, iov);
	size_t done = 0;

	for (unsigned i = 0; i < n; i++) {
		memcpy(iov[i].iov_base, (const uint8_t *)buf + done, iov[i].iov_len);
		done += iov[i].iov_len;
	}
	return done;
}
