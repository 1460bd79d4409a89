/* SPDX-License-Identifier: Apache-2.0 */
/* virtio 1.2, 5.2: the disk. Requests are done one after the other, at once. */
#include <errno.h>
#include <string.h>

#include "vmm/kvm/program/disk.h"
#include "vmm/kvm/program/virtio.h"

#define F_SEG_MAX (1ull << 2)
#define F_FLUSH (1ull << 9)
#define F_DISCARD (1ull << 13)
#define F_WRITE_ZEROES (1ull << 14)

#define SECTOR 512ull
#define REQUEST_MAX (32ull << 20) /* bytes of one read or write */
#define RANGE_SECTORS (1u << 22) /* of one range that is discarded or zeroed: 2 GiB */
#define RANGES 16

enum { IN, OUT, FLUSH = 4, GET_ID = 8, DISCARD = 11, WRITE_ZEROES = 13 };
enum { OK, IOERR, UNSUPPORTED };

struct request {
	uint32_t type, unused;
	uint64_t sector;
};

struct range {
	uint64_t sector;
	uint32_t sectors, flags;
};

static struct blk *blk_of(struct virtio *v)
{
	return (struct blk *)v; /* its first member */
}

static bool place(const struct disk *d, uint64_t sector, uint64_t bytes, uint64_t *ret)
{
	*ret = sector * SECTOR;
	return sector <= d->bytes / SECTOR && bytes <= d->bytes - *ret;
}

/* The host fails, not the guest: its owner is to know, once. */
static void tell(struct blk *b, int r)
{
	if (r < 0 && r != -EINVAL && b->failed && !b->told) {
		b->told = true;
		b->failed(-r);
	}
}

static uint8_t read_or_write(
	struct blk *b, const struct request *req, const struct chain *c, uint32_t *ret_written)
{
	struct disk *d = b->disk;
	bool in = req->type == IN;
	/* what is behind the header; what is before the status */
	uint64_t bytes = in ? c->in_bytes - 1 : c->out_bytes - sizeof(*req), at;
	struct iovec iov[QUEUE_SEGMENTS];
	unsigned n;
	int r;

	if (bytes % SECTOR || bytes > REQUEST_MAX || !place(d, req->sector, bytes, &at))
		return IOERR;
	n = chain_cut(c, in, in ? 0 : sizeof(*req), bytes, iov);
	r = in ? disk_read(d, at, iov, n) : disk_write(d, at, iov, n);
	tell(b, r);
	if (in && r == 0)
		*ret_written = (uint32_t)bytes;
	return r < 0 ? IOERR : OK;
}

static uint8_t zero_ranges(struct blk *b, const struct request *req, const struct chain *c)
{
	struct range ranges[RANGES];
	size_t len = chain_read(c, sizeof(*req), ranges, sizeof(ranges));

	if (len == 0 || len % sizeof(ranges[0]) || c->out_bytes != sizeof(*req) + len)
		return IOERR;
	for (size_t i = 0; i < len / sizeof(ranges[0]); i++) {
		uint64_t bytes = ranges[i].sectors * SECTOR, at;
		int r;

		if (ranges[i].sectors > RANGE_SECTORS ||
			!place(b->disk, ranges[i].sector, bytes, &at))
			return IOERR;
		r = disk_zero(b->disk, at, bytes, req->type == DISCARD);
		tell(b, r);
		if (r < 0)
			return IOERR;
	}
	return OK;
}

static uint8_t get_id(const struct chain *c, uint32_t *ret_written)
{
	static const char id[20] = "parbake";

	if (c->in_bytes - 1 < sizeof(id))
		return IOERR;
	*ret_written = (uint32_t)chain_write(c, 0, id, sizeof(id));
	return OK;
}

static uint8_t serve(struct blk *b, const struct chain *c, uint32_t *ret_written)
{
	struct request req;

	if (chain_read(c, 0, &req, sizeof(req)) != sizeof(req))
		return IOERR;
	switch (req.type) {
	case IN:
	case OUT:
		return read_or_write(b, &req, c, ret_written);
	case FLUSH: /* an overlay lives as long as its machine, in the page cache */
		return OK;
	case GET_ID:
		return get_id(c, ret_written);
	case DISCARD:
	case WRITE_ZEROES:
		return zero_ranges(b, &req, c);
	default:
		return UNSUPPORTED;
	}
}

static void blk_notify(struct virtio *v, unsigned n)
{
	struct chain c;

	while (virtio_peek(v, n, &c)) {
		uint32_t written = 0;
		uint8_t status;

		if (c.in_bytes == 0) { /* no room for a status */
			virtio_give(v, n, &c, 0);
			continue;
		}
		status = serve(blk_of(v), &c, &written);
		chain_write(&c, c.in_bytes - 1, &status, sizeof(status));
		virtio_give(v, n, &c, written + 1);
	}
}

struct config {
	uint64_t capacity;
	uint32_t size_max, seg_max;
	uint8_t geometry[4];
	uint32_t block_size;
	uint8_t topology[8];
	uint8_t writeback, unused0;
	uint16_t queues;
	uint32_t discard_sectors, discard_ranges, discard_alignment;
	uint32_t zero_sectors, zero_ranges;
	uint8_t zero_may_unmap, unused1[3];
};

static void blk_read_config(struct virtio *v, uint32_t at, uint8_t *buf, uint32_t len)
{
	const struct config config = {.capacity = blk_of(v)->disk->bytes / SECTOR,
		.seg_max = QUEUE_SEGMENTS - 4,
		.queues = 1,
		.discard_sectors = RANGE_SECTORS,
		.discard_ranges = RANGES,
		.discard_alignment = DISK_CLUSTER / SECTOR,
		.zero_sectors = RANGE_SECTORS,
		.zero_ranges = RANGES,
		.zero_may_unmap = 1};

	if (at < sizeof(config))
		memcpy(buf, (const uint8_t *)&config + at,
			len < sizeof(config) - at ? len : sizeof(config) - at);
}

const struct virtio_ops blk_ops = {
	.name = "blk",
	.id = 2,
	.n_queues = 1,
	.features = F_SEG_MAX | F_FLUSH | F_DISCARD | F_WRITE_ZEROES,
	.notify = blk_notify,
	.read_config = blk_read_config,
};
