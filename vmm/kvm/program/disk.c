/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qcow2, version 3, in the one form that is made here: clusters of 64 KiB, one level-1 table of one cluster, 16-bit
 * reference counts, no backing name. A new cluster goes to the end of the file: it is counted, its bytes are written,
 * and then the entry that makes it the disk's, so that a write that fails leaves the disk as it was.
 *
 * The file is ours alone, but may be the copy of one that a broken-out guest has written: offsets in it are checked to
 * be clusters of the file. What two entries share, or a table that is data as well, harms nobody but that guest.
 */
#include "vmm/kvm/program/disk.h"

#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "vmm/qcow2.h"

#define COUNTS (DISK_CLUSTER / 2) /* of a block of reference counts */
#define PIECES 130

/* A cluster of the file that was there, or 0. */
static bool valid(const struct disk *d, uint64_t at)
{
	return at && at % DISK_CLUSTER == 0 && at < d->end;
}

static int check_header(struct disk *d, const struct qcow2_header *h, struct err *err)
{
	uint64_t covers = (uint64_t)DISK_ENTRIES * DISK_CLUSTER;

	d->bytes = be64toh(h->size);
	d->l1_entries = be32toh(h->l1_entries);
	d->l1_at = be64toh(h->l1_offset);
	d->refcounts = be64toh(h->refcount_offset);
	if (be32toh(h->magic) != QCOW2_MAGIC || be32toh(h->version) != QCOW2_VERSION ||
		be32toh(h->cluster_bits) != QCOW2_CLUSTER_BITS ||
		be32toh(h->refcount_order) != QCOW2_REFCOUNT_ORDER || h->backing_offset ||
		h->crypt || h->snapshots || h->incompatible || be32toh(h->refcount_clusters) != 1)
		return err_set(err, EBADMSG, "disk overlay: not of our form");
	if (d->bytes == 0 || d->bytes % 512 || d->l1_entries > DISK_L1_MAX ||
		d->l1_entries != (d->bytes + covers - 1) / covers || !valid(d, d->l1_at) ||
		!valid(d, d->refcounts))
		return err_set(err, EBADMSG, "disk overlay: its tables do not fit its disk");
	return 0;
}

int disk_open(struct disk *d, int base_fd, int overlay_fd, bool detect_zeros, struct err *err)
{
	struct stat base, overlay;
	struct qcow2_header h;
	int r;

	d->base_fd = base_fd;
	d->overlay_fd = overlay_fd;
	d->detect_zeros = detect_zeros;
	if (fstat(base_fd, &base) < 0 || fstat(overlay_fd, &overlay) < 0)
		return err_sys(err, errno, "the disk");
	d->base_bytes = (uint64_t)base.st_size;
	d->end = ((uint64_t)overlay.st_size + DISK_CLUSTER - 1) / DISK_CLUSTER * DISK_CLUSTER;
	r = file_pread_full(overlay_fd, &h, sizeof(h), 0);
	if (r < 0)
		return err_sys(err, -r, "read the disk overlay");
	r = check_header(d, &h, err);
	if (r < 0)
		return r;
	r = file_pread_full(overlay_fd, d->l1, d->l1_entries * 8, (off_t)d->l1_at);
	return r < 0 ? err_sys(err, -r, "read the disk overlay") : 0;
}

/* ---- files ------------------------------------------------------------------------------ */

/* Cut the first @len bytes off @iov (*@n of them) into @cut. Returns how many pieces. */
static unsigned cut(struct iovec **iov, unsigned *n, uint64_t len, struct iovec cut_off[PIECES])
{
	unsigned out = 0;

	while (len && *n && out < PIECES) {
		uint64_t take = (*iov)->iov_len < len ? (*iov)->iov_len : len;

		if (take)
			cut_off[out++] = (struct iovec){(*iov)->iov_base, take};
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + take;
		(*iov)->iov_len -= take;
		len -= take;
		if (!(*iov)->iov_len) {
			(*iov)++;
			(*n)--;
		}
	}
	return out;
}

static void fill_zeros(const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		memset(iov[i].iov_base, 0, iov[i].iov_len);
}

/* All of it; behind a file's end are zeros. @iov is used up. */
static int transfer(int fd, bool write, struct iovec *iov, unsigned n, uint64_t at)
{
	struct iovec gone[PIECES];

	while (n) {
		ssize_t done = write ? pwritev(fd, iov, (int)n, (off_t)at)
				     : preadv(fd, iov, (int)n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		if (done == 0 && write)
			return -EIO;
		if (done == 0) {
			fill_zeros(iov, n);
			return 0;
		}
		at += (uint64_t)done;
		cut(&iov, &n, (uint64_t)done, gone);
	}
	return 0;
}

/* ---- tables ----------------------------------------------------------------------------- */

static int write_be64(const struct disk *d, uint64_t at, uint64_t value)
{
	uint64_t big = htobe64(value);

	return file_pwrite_full(d->overlay_fd, &big, sizeof(big), (off_t)at);
}

/* Where the count of cluster @n is. A block that is missing is made: it is counted in itself or in the one before. */
static int find_count(struct disk *d, uint64_t n, uint64_t *ret)
{
	uint64_t block = n / COUNTS, big, at;
	int r;

	if (block >= DISK_ENTRIES)
		return -EFBIG;
	if (d->block != block + 1) {
		r = file_pread_full(
			d->overlay_fd, &big, sizeof(big), (off_t)(d->refcounts + block * 8));
		if (r < 0)
			return r;
		at = be64toh(big) & QCOW2_OFFSET_MASK;
		if (at && !valid(d, at))
			return -EIO;
		if (!at) {
			uint16_t one = htobe16(1);

			at = d->end;
			if (at / DISK_CLUSTER / COUNTS != block)
				return -EIO;
			r = ftruncate(d->overlay_fd, (off_t)(at + DISK_CLUSTER)) < 0 ? -errno : 0;
			if (r == 0)
				r = file_pwrite_full(d->overlay_fd, &one, sizeof(one),
					(off_t)(at + at / DISK_CLUSTER % COUNTS * 2));
			if (r == 0)
				r = write_be64(d, d->refcounts + block * 8, at);
			if (r < 0)
				return r;
			d->end += DISK_CLUSTER;
		}
		d->block = block + 1;
		d->block_at = at;
	}
	*ret = d->block_at + n % COUNTS * 2;
	return 0;
}

/* A new cluster at the end of the file, counted. Its bytes are zeros, or become what is written there. */
static int new_cluster(struct disk *d, uint64_t *ret)
{
	uint16_t one = htobe16(1);
	uint64_t at, count;
	int r = find_count(d, d->end / DISK_CLUSTER, &count);

	if (r < 0)
		return r;
	/* the block may have been made where this was to go */
	at = d->end;
	r = find_count(d, at / DISK_CLUSTER, &count);
	if (r == 0)
		r = file_pwrite_full(d->overlay_fd, &one, sizeof(one), (off_t)count);
	if (r < 0)
		return r;
	d->end += DISK_CLUSTER;
	*ret = at;
	return 0;
}

static struct disk_table *oldest(struct disk *d)
{
	struct disk_table *t = &d->tables[0];

	for (unsigned i = 1; i < DISK_TABLES; i++) {
		if (d->tables[i].used < t->used)
			t = &d->tables[i];
	}
	return t;
}

static int make_table(struct disk *d, uint64_t l1_index, uint64_t *ret)
{
	uint64_t at;
	int r = new_cluster(d, &at);

	if (r == 0 && ftruncate(d->overlay_fd, (off_t)d->end) < 0)
		r = -errno;
	if (r == 0)
		r = write_be64(d, d->l1_at + l1_index * 8, at | QCOW2_COPIED);
	if (r < 0)
		return r;
	d->l1[l1_index] = htobe64(at | QCOW2_COPIED);
	*ret = at;
	return 0;
}

/* The L2 table over @at of the disk; NULL in *@ret where there is none and none is to be made. */
static int get_table(struct disk *d, uint64_t at, bool make, struct disk_table **ret)
{
	uint64_t index = at / DISK_CLUSTER / DISK_ENTRIES;
	uint64_t where = be64toh(d->l1[index]) & QCOW2_OFFSET_MASK;
	struct disk_table *t = NULL;
	int r;

	*ret = NULL;
	if (!where && !make)
		return 0;
	if (where && !valid(d, where))
		return -EIO;
	if (!where && (r = make_table(d, index, &where)) < 0)
		return r;
	for (unsigned i = 0; i < DISK_TABLES && !t; i++) {
		if (d->tables[i].at == where)
			t = &d->tables[i];
	}
	if (!t) {
		t = oldest(d);
		t->at = 0;
		r = transfer(
			d->overlay_fd, false, &(struct iovec){t->entries, DISK_CLUSTER}, 1, where);
		if (r < 0)
			return r;
		t->at = where;
	}
	t->used = ++d->clock;
	*ret = t;
	return 0;
}

/* What lies at a cluster of the disk. */
struct place {
	uint64_t offset; /* in the overlay; 0: none */
	bool zero;
};

static int look(struct disk *d, uint64_t at, struct place *ret)
{
	struct disk_table *t;
	uint64_t entry = 0;
	int r = get_table(d, at, false, &t);

	if (r < 0)
		return r;
	if (t)
		entry = be64toh(t->entries[at / DISK_CLUSTER % DISK_ENTRIES]);
	*ret = (struct place){.offset = entry & QCOW2_OFFSET_MASK, .zero = entry & QCOW2_ZERO};
	if (entry & QCOW2_COMPRESSED || (ret->offset && !valid(d, ret->offset)))
		return -EIO;
	return 0;
}

static int set_entry(struct disk *d, uint64_t at, uint64_t entry)
{
	struct disk_table *t;
	uint64_t i = at / DISK_CLUSTER % DISK_ENTRIES;
	int r = get_table(d, at, true, &t);

	if (r == 0)
		r = write_be64(d, t->at + i * 8, entry);
	if (r == 0)
		t->entries[i] = htobe64(entry);
	return r;
}

/* ---- bytes ------------------------------------------------------------------------------ */

static uint64_t total(const struct iovec *iov, unsigned n)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* How far from @at on the disk lies as @first does: in one place, one behind the other. */
static int run_length(
	struct disk *d, uint64_t at, uint64_t most, const struct place *first, uint64_t *ret)
{
	uint64_t len = DISK_CLUSTER - at % DISK_CLUSTER;

	while (len < most) {
		struct place next;
		int r = look(d, at + len, &next);

		if (r < 0)
			return r;
		if (next.zero != first->zero || !next.offset != !first->offset)
			break;
		if (!next.zero && next.offset &&
			next.offset != first->offset + at % DISK_CLUSTER + len)
			break;
		len += DISK_CLUSTER;
	}
	*ret = len < most ? len : most;
	return 0;
}

int disk_read(struct disk *d, uint64_t at, struct iovec *iov, unsigned n)
{
	uint64_t left = total(iov, n);

	if (at > d->bytes || left > d->bytes - at)
		return -EINVAL;
	while (left) {
		struct iovec part[PIECES];
		struct place p;
		uint64_t len;
		unsigned parts;
		int r = look(d, at, &p);

		if (r == 0)
			r = run_length(d, at, left, &p, &len);
		if (r < 0)
			return r;
		parts = cut(&iov, &n, len, part);
		if (p.zero)
			fill_zeros(part, parts);
		else if (p.offset)
			r = transfer(
				d->overlay_fd, false, part, parts, p.offset + at % DISK_CLUSTER);
		else
			r = transfer(d->base_fd, false, part, parts, at);
		if (r < 0)
			return r;
		at += len;
		left -= len;
	}
	return 0;
}

static bool all_zeros(const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *b = iov[i].iov_base;

		if (b[0] || memcmp(b, b + 1, iov[i].iov_len - 1) != 0)
			return false;
	}
	return true;
}

/* A cluster that is not in the overlay yet, with these bytes in it. */
static int write_new(
	struct disk *d, uint64_t at, struct iovec *part, unsigned n, uint64_t len, struct place p)
{
	uint64_t start = at - at % DISK_CLUSTER, where = p.offset;
	struct iovec whole = {d->bounce, DISK_CLUSTER};
	uint8_t *to = d->bounce + at % DISK_CLUSTER;
	int r = 0;

	if (len < DISK_CLUSTER) {
		if (p.zero)
			memset(d->bounce, 0, DISK_CLUSTER);
		else
			r = transfer(d->base_fd, false, &whole, 1, start);
		for (unsigned i = 0; r == 0 && i < n; i++) {
			memcpy(to, part[i].iov_base, part[i].iov_len);
			to += part[i].iov_len;
		}
		whole = (struct iovec){d->bounce, DISK_CLUSTER};
		part = &whole;
		n = 1;
	}
	if (r == 0 && !where)
		r = new_cluster(d, &where);
	if (r == 0)
		r = transfer(d->overlay_fd, true, part, n, where);
	return r < 0 ? r : set_entry(d, start, where | QCOW2_COPIED);
}

static int zero_cluster(struct disk *d, uint64_t at)
{
	struct place p;
	int r = look(d, at, &p);

	if (r < 0 || p.zero)
		return r;
	r = set_entry(d, at, p.offset | (p.offset ? QCOW2_COPIED : 0) | QCOW2_ZERO);
	/* where holes cannot be punched the bytes only stay */
	if (r == 0 && p.offset)
		fallocate(d->overlay_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)p.offset, DISK_CLUSTER);
	return r;
}

int disk_write(struct disk *d, uint64_t at, struct iovec *iov, unsigned n)
{
	uint64_t left = total(iov, n);

	if (at > d->bytes || left > d->bytes - at)
		return -EINVAL;
	while (left) {
		struct iovec part[PIECES];
		struct place p;
		uint64_t len = DISK_CLUSTER - at % DISK_CLUSTER;
		unsigned parts;
		int r = look(d, at, &p);

		if (r < 0)
			return r;
		if (p.offset && !p.zero)
			r = run_length(d, at, left, &p, &len);
		if (r < 0)
			return r;
		len = len < left ? len : left;
		parts = cut(&iov, &n, len, part);
		if (p.offset && !p.zero)
			r = transfer(
				d->overlay_fd, true, part, parts, p.offset + at % DISK_CLUSTER);
		else if (d->detect_zeros && len == DISK_CLUSTER && all_zeros(part, parts))
			r = zero_cluster(d, at);
		else
			r = write_new(d, at, part, parts, len, p);
		if (r < 0)
			return r;
		at += len;
		left -= len;
	}
	return 0;
}

int disk_zero(struct disk *d, uint64_t at, uint64_t len, bool hint)
{
	static const uint8_t zeros[DISK_CLUSTER];

	if (at > d->bytes || len > d->bytes - at)
		return -EINVAL;
	while (len) {
		uint64_t some = DISK_CLUSTER - at % DISK_CLUSTER;
		int r = 0;

		some = some < len ? some : len;
		if (some == DISK_CLUSTER) {
			r = zero_cluster(d, at);
		} else if (!hint) {
			struct iovec iov = {(void *)(uintptr_t)zeros, some};

			r = disk_write(d, at, &iov, 1);
		}
		if (r < 0)
			return r;
		at += some;
		len -= some;
	}
	return 0;
}
