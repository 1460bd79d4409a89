/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's disk overlay, in the qcow2 format, version 3 (QEMU: docs/interop/qcow2.txt), written
 * and read here without any program. A new one is four clusters, of which only some bytes are not
 * zero:
 *
 *     0  header    1  refcount table    2  the first refcount block    3…  L1 table
 *
 * The reader trusts nothing: the file was written by a monitor that its guest may have taken over.
 * It accepts what QEMU makes of our own overlays (no backing name, snapshots, encryption,
 * compression or other extensions), and each cluster of the file may serve one purpose only, held
 * in a bitmap: so there are no loops, and a small file cannot claim a large disk's worth of data.
 */
#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "vmm/monitor.h"
#include "vmm/qcow2.h"

#define L2_COVERS (QCOW2_ENTRIES * QCOW2_CLUSTER) /* disk bytes of one L2 table: 512 MiB */
#define L1_RESERVED 0x7f000000000001ffull
#define L2_RESERVED 0x3f000000000001feull

static_assert(LIMIT_DISK_MAX / L2_COVERS <= QCOW2_ENTRIES,
	"the L1 table of the largest disk is one cluster");

static uint64_t l1_entries(uint64_t disk_bytes)
{
	return (disk_bytes + L2_COVERS - 1) / L2_COVERS;
}

static int check_size(uint64_t disk_bytes, struct err *err)
{
	if (disk_bytes == 0 || disk_bytes > LIMIT_DISK_MAX || disk_bytes % 512)
		return err_set(err, EINVAL,
			"a disk of %" PRIu64 " bytes: not a multiple of 512 up to 1 TiB",
			disk_bytes);
	return 0;
}

int machine_overlay_init(int fd, uint64_t disk_bytes, struct err *err)
{
	struct qcow2_header h = {
		.magic = htobe32(QCOW2_MAGIC),
		.version = htobe32(QCOW2_VERSION),
		.cluster_bits = htobe32(QCOW2_CLUSTER_BITS),
		.size = htobe64(disk_bytes),
		.l1_entries = htobe32((uint32_t)l1_entries(disk_bytes)),
		.l1_offset = htobe64(3 * QCOW2_CLUSTER),
		.refcount_offset = htobe64(1 * QCOW2_CLUSTER),
		.refcount_clusters = htobe32(1),
		.refcount_order = htobe32(QCOW2_REFCOUNT_ORDER),
		.header_len = htobe32(sizeof(struct qcow2_header)),
	};
	uint64_t block = htobe64(2 * QCOW2_CLUSTER);
	uint16_t counts[4] = {htobe16(1), htobe16(1), htobe16(1), htobe16(1)};
	struct stat st;
	int r = check_size(disk_bytes, err);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "disk overlay");
	if (st.st_size)
		return err_set(err, EEXIST, "disk overlay: the file is not empty");
	/* the end of the header extensions is zeros, and so is all the rest */
	if (ftruncate(fd, 4 * QCOW2_CLUSTER) < 0)
		return err_sys(err, errno, "disk overlay");
	r = file_pwrite_full(fd, counts, sizeof(counts), 2 * QCOW2_CLUSTER);
	if (r == 0)
		r = file_pwrite_full(fd, &block, sizeof(block), 1 * QCOW2_CLUSTER);
	if (r == 0)
		r = file_pwrite_full(fd, &h, sizeof(h), 0);
	return r < 0 ? err_sys(err, -r, "write the disk overlay") : 0;
}

/* ---- reading ---------------------------------------------------------------------------- */

struct walk {
	int fd;
	uint64_t disk_bytes;
	uint64_t file_bytes;
	uint8_t *used; /* a bit for each cluster of the file */
	int (*fn)(void *user, uint64_t disk_offset, uint64_t len, bool zero, uint64_t file_offset);
	void *user;
	/* the run that is being gathered; len 0: none */
	uint64_t run_at, run_len, run_file;
	bool run_zero;
};

static int bad(struct err *err, const char *what)
{
	return err_set(err, EBADMSG, "disk overlay: %s", what);
}

/* The cluster at @offset is put to use: within the file, aligned, the first time. */
static int claim(struct walk *w, uint64_t offset, struct err *err)
{
	uint64_t n = offset / QCOW2_CLUSTER;

	if (offset % QCOW2_CLUSTER)
		return bad(err, "an offset that is not aligned");
	if (offset == 0 || offset >= w->file_bytes)
		return bad(err, "an offset outside of the file");
	if (w->used[n / 8] & 1u << n % 8)
		return bad(err, "a cluster that is used twice");
	w->used[n / 8] |= (uint8_t)(1u << n % 8);
	return 0;
}

static int read_at(const struct walk *w, void *buf, size_t len, uint64_t offset, struct err *err)
{
	int r = file_pread_full(w->fd, buf, len, (off_t)offset);

	if (r == -ENODATA)
		return bad(err, "a table that goes past the end of the file");
	return r < 0 ? err_sys(err, -r, "read the disk overlay") : 0;
}

static int check_header(const struct qcow2_header *h, uint64_t disk_bytes, struct err *err)
{
	if (be32toh(h->magic) != QCOW2_MAGIC || be32toh(h->version) != QCOW2_VERSION)
		return bad(err, "not a qcow2 file of version 3");
	if (be32toh(h->cluster_bits) != QCOW2_CLUSTER_BITS ||
		be32toh(h->refcount_order) != QCOW2_REFCOUNT_ORDER)
		return bad(err, "not of our cluster size");
	if (h->backing_offset || h->crypt || h->snapshots || h->incompatible || h->compression)
		return bad(err,
			"a backing name, encryption, a snapshot or a feature that ours never have");
	if (be64toh(h->size) != disk_bytes)
		return err_set(err, EBADMSG, "disk overlay: of %" PRIu64 " bytes, not %" PRIu64,
			be64toh(h->size), disk_bytes);
	if (be32toh(h->l1_entries) != l1_entries(disk_bytes))
		return bad(err, "an L1 table of another size");
	return 0;
}

static int flush_run(struct walk *w)
{
	uint64_t len = w->run_len;

	w->run_len = 0;
	return len ? w->fn(w->user, w->run_at, len, w->run_zero, w->run_file) : 0;
}

static int add_run(struct walk *w, uint64_t at, uint64_t len, bool zero, uint64_t file)
{
	int r;

	if (w->run_len && w->run_at + w->run_len == at && w->run_zero == zero &&
		(zero || w->run_file + w->run_len == file)) {
		w->run_len += len;
		return 0;
	}
	r = flush_run(w);
	w->run_at = at;
	w->run_len = len;
	w->run_zero = zero;
	w->run_file = zero ? 0 : file;
	return r;
}

/* One L2 entry, of the cluster at disk offset @at. */
static int walk_entry(struct walk *w, uint64_t entry, uint64_t at, struct err *err)
{
	uint64_t offset = entry & QCOW2_OFFSET_MASK;
	uint64_t len = w->disk_bytes - at < QCOW2_CLUSTER ? w->disk_bytes - at : QCOW2_CLUSTER;
	uint64_t there;
	int r;

	if (entry & QCOW2_COMPRESSED)
		return bad(err, "a compressed cluster");
	if (entry & L2_RESERVED)
		return bad(err, "an entry with reserved bits");
	if (offset) {
		r = claim(w, offset, err);
		if (r < 0)
			return r;
	}
	if (entry & QCOW2_ZERO)
		return add_run(w, at, len, true, 0);
	if (!offset)
		return 0; /* as in the base */
	/* the file's last cluster may be cut short: what is missing reads as zeros */
	there = w->file_bytes - offset;
	if (there >= len)
		return add_run(w, at, len, false, offset);
	r = add_run(w, at, there, false, offset);
	return r ? r : add_run(w, at + there, len - there, true, 0);
}

static int walk_l2(struct walk *w, uint64_t l1_entry, uint64_t at, uint64_t *table, struct err *err)
{
	uint64_t offset = l1_entry & QCOW2_OFFSET_MASK;
	int r;

	if (l1_entry & L1_RESERVED)
		return bad(err, "an entry with reserved bits");
	if (!offset)
		return 0;
	r = claim(w, offset, err);
	if (r == 0)
		r = read_at(w, table, QCOW2_CLUSTER, offset, err);
	for (uint64_t i = 0; r == 0 && i < QCOW2_ENTRIES && at < w->disk_bytes;
		i++, at += QCOW2_CLUSTER) {
		if (table[i])
			r = walk_entry(w, be64toh(table[i]), at, err);
	}
	return r;
}

int machine_overlay_walk(int fd, uint64_t disk_bytes,
	int (*fn)(void *user, uint64_t disk_offset, uint64_t len, bool zero, uint64_t file_offset),
	void *user, struct err *err)
{
	struct walk w = {.fd = fd, .disk_bytes = disk_bytes, .fn = fn, .user = user};
	cleanup_free uint64_t *l1 = NULL;
	cleanup_free uint64_t *l2 = malloc(QCOW2_CLUSTER);
	cleanup_free uint8_t *used = NULL;
	struct qcow2_header h;
	struct stat st;
	int r = check_size(disk_bytes, err);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "disk overlay");
	w.file_bytes = (uint64_t)st.st_size;
	/* all of the disk, and its tables */
	if (w.file_bytes > 2 * disk_bytes + 64 * MIB)
		return bad(err, "a file longer than its disk could make it");
	r = read_at(&w, &h, sizeof(h), 0, err);
	if (r == 0)
		r = check_header(&h, disk_bytes, err);
	if (r < 0)
		return r;
	l1 = malloc(be32toh(h.l1_entries) * 8);
	used = calloc(1, w.file_bytes / QCOW2_CLUSTER / 8 + 1);
	if (!l1 || !l2 || !used)
		return err_set(err, ENOMEM, "out of memory");
	w.used = used;
	r = claim(&w, be64toh(h.refcount_offset), err);
	if (r == 0)
		r = claim(&w, be64toh(h.l1_offset), err);
	if (r == 0)
		r = read_at(&w, l1, be32toh(h.l1_entries) * 8, be64toh(h.l1_offset), err);
	for (uint32_t i = 0; r == 0 && i < be32toh(h.l1_entries); i++)
		r = walk_l2(&w, be64toh(l1[i]), i * L2_COVERS, l2, err);
	return r ? r : flush_run(&w);
}
