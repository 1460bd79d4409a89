/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing disk deltas: from beginning to end, range by range. Blocks of zeros are left out as
 * holes.
 */
#include "vmm/disk_delta.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "vmm/monitor.h"

#define COPY_BYTES (1 * MIB)
#define BLOCK (4 * KIB)

struct disk_delta {
	int from, to;
	struct snapshot_ranges ranges;
	size_t room;
	uint64_t bytes; /* of all ranges so far: where the next one goes */
	uint8_t *buf;
	struct err *err;
};

static int add_range(struct disk_delta *d, uint64_t offset, uint64_t len)
{
	struct snapshot_ranges *w = &d->ranges;
	struct snapshot_range *last = w->n ? &w->ranges[w->n - 1] : NULL;

	d->bytes += len;
	if (last && last->offset + last->bytes == offset) {
		last->bytes += len;
		return 0;
	}
	if (w->n == LIMIT_RANGES)
		return err_set(
			d->err, EFBIG, "a disk was written in more than %d places", LIMIT_RANGES);
	if (w->n == d->room) {
		size_t more = d->room ? 2 * d->room : 256;
		struct snapshot_range *ranges = reallocarray(w->ranges, more, sizeof(*ranges));

		if (!ranges)
			return err_set(d->err, ENOMEM, "no memory for ranges");
		w->ranges = ranges;
		d->room = more;
	}
	w->ranges[w->n++] = (struct snapshot_range){offset, len};
	return 0;
}

/* The bytes that are not zeros, in whole blocks of the file that is written. */
static int write_data(struct disk_delta *d, const uint8_t *bytes, size_t len, uint64_t at)
{
	static const uint8_t zeros[BLOCK];
	int r = 0;

	for (size_t done = 0, n; r == 0 && done < len; done += n) {
		n = BLOCK - (at + done) % BLOCK;
		if (n > len - done)
			n = len - done;
		if (memcmp(bytes + done, zeros, n) != 0)
			r = file_pwrite_full(d->to, bytes + done, n, (off_t)(at + done));
	}
	return r;
}

static int copy(struct disk_delta *d, int from, uint64_t file_offset, uint64_t len)
{
	for (uint64_t done = 0; done < len;) {
		size_t n = len - done < COPY_BYTES ? (size_t)(len - done) : COPY_BYTES;
		int r = file_pread_full(from, d->buf, n, (off_t)(file_offset + done));

		if (r == 0)
			r = write_data(d, d->buf, n, d->bytes + done);
		if (r < 0)
			return err_sys(d->err, -r, "copy what was written to a disk");
		done += n;
	}
	return 0;
}

/* The end: @r is what it came to. */
static int finish(struct disk_delta *d, int r, struct snapshot_ranges *ret, uint64_t *ret_bytes)
{
	if (r == 0 && ftruncate(d->to, (off_t)d->bytes) < 0)
		r = err_sys(d->err, errno, "a file for a disk's delta");
	if (r < 0) {
		snapshot_ranges_clear(&d->ranges);
		return r;
	}
	*ret = d->ranges;
	*ret_bytes = d->bytes;
	return 0;
}

static int take_run(void *user, uint64_t offset, uint64_t len, bool zero, uint64_t file_offset)
{
	struct disk_delta *d = user;
	int r = zero ? 0 : copy(d, d->from, file_offset, len);

	return r < 0 ? r : add_range(d, offset, len);
}

int disk_delta_of_overlay(int overlay_fd, uint64_t disk_bytes, int fd, struct snapshot_ranges *ret,
	uint64_t *ret_bytes, struct err *err)
{
	cleanup_free uint8_t *buf = malloc(COPY_BYTES);
	struct disk_delta d = {.from = overlay_fd, .to = fd, .buf = buf, .err = err};

	if (!buf)
		return err_set(err, ENOMEM, "no memory to copy a disk");
	return finish(&d, machine_overlay_walk(overlay_fd, disk_bytes, take_run, &d, err), ret,
		ret_bytes);
}

/* ---- merging ------------------------------------------------------------------------------------ */

/* A delta that is read from its beginning. */
struct side {
	const struct snapshot_ranges *w;
	int fd;
	size_t i; /* the range that is read next, … */
	uint64_t used; /* … so far, … */
	uint64_t at; /* … and where its first byte lies in the file */
};

static uint64_t side_start(const struct side *s)
{
	return s->i < s->w->n ? s->w->ranges[s->i].offset + s->used : UINT64_MAX;
}

static uint64_t side_end(const struct side *s)
{
	return s->w->ranges[s->i].offset + s->w->ranges[s->i].bytes;
}

/* What comes next, up to @end of the disk, is read or passed over. */
static void side_skip(struct side *s, uint64_t end)
{
	while (side_start(s) < end) {
		uint64_t left = side_end(s) - side_start(s);

		if (side_end(s) > end) {
			s->used += end - side_start(s);
			return;
		}
		s->at += s->used + left;
		s->used = 0;
		s->i++;
	}
}

int disk_delta_merge(const struct snapshot_ranges *under, int under_fd,
	const struct snapshot_ranges *over, int over_fd, int fd, struct snapshot_ranges *ret,
	uint64_t *ret_bytes, struct err *err)
{
	cleanup_free uint8_t *buf = malloc(COPY_BYTES);
	struct disk_delta d = {.to = fd, .buf = buf, .err = err};
	struct side a = {.w = under, .fd = under_fd}, b = {.w = over, .fd = over_fd};
	int r = 0;

	if (!buf)
		return err_set(err, ENOMEM, "no memory to copy a disk");
	while (r == 0 && (a.i < under->n || b.i < over->n)) {
		struct side *s = side_start(&b) <= side_start(&a) ? &b : &a;
		uint64_t start = side_start(s), end = side_end(s);

		if (s == &a && end > side_start(&b))
			end = side_start(&b);
		r = copy(&d, s->fd, s->at + s->used, end - start);
		if (r == 0)
			r = add_range(&d, start, end - start);
		side_skip(&a, end);
		side_skip(&b, end);
	}
	return finish(&d, r, ret, ret_bytes);
}
