/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a memory delta. Each frame of its image is decompressed once in a walk, and its bytes are
 * handed out in the runs that pieces, frames and holes cut it into.
 */
#include "restore/pager/memory_delta.h"

#include <fcntl.h>
#include <string.h>

#include "common/file.h"
#include "common/limits.h"

int memory_delta_open(int image_fd, const struct snapshot_ranges *ranges, uint64_t memory_bytes,
	struct memory_delta **ret, struct err *err)
{
	cleanup_memory_delta struct memory_delta *d = calloc(1, sizeof(*d));
	uint64_t end = 0;
	int r;

	if (!d || !(d->pieces = calloc(ranges->n + 1, sizeof(*d->pieces))))
		return err_set(err, ENOMEM, "no memory for a memory delta");
	for (size_t i = 0; i < ranges->n; i++) {
		const struct snapshot_range *from = &ranges->ranges[i];

		if (from->offset < end || from->bytes == 0 || from->offset > memory_bytes ||
			from->bytes > memory_bytes - from->offset || from->offset % IMAGE_PAGE ||
			from->bytes % IMAGE_PAGE)
			return err_set(err, EBADMSG,
				"range %zu of the memory delta is not pages of it, in "
				"rising "
				"order",
				i);
		end = from->offset + from->bytes;
		d->pieces[i] = (struct memory_delta_piece){from->offset, end, d->bytes};
		d->bytes += from->bytes;
	}
	d->n = ranges->n;
	if (d->n) {
		r = image_open(image_fd, &d->img, err);
		if (r < 0) {
			err_prefix(err, "the memory delta");
			return r;
		}
		if (image_raw_bytes(d->img) != d->bytes)
			return err_set(err, EBADMSG,
				"the memory delta has %llu bytes, its ranges have %llu",
				(unsigned long long)image_raw_bytes(d->img),
				(unsigned long long)d->bytes);
	}
	*ret = steal_ptr(&d);
	return 0;
}

void memory_delta_free(struct memory_delta *d)
{
	if (!d)
		return;
	if (d->img)
		image_free(d->img);
	free(d->pieces);
	free(d);
}

bool memory_delta_find(const struct memory_delta *d, uint64_t offset, uint64_t *ret_at)
{
	size_t low = 0, high = d->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (offset >= d->pieces[mid].end)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == d->n || offset < d->pieces[low].start)
		return false;
	*ret_at = d->pieces[low].at + (offset - d->pieces[low].start);
	return true;
}

/* What is decompressed now. */
struct window {
	uint8_t *bytes;
	uint64_t start, end;
};

/* One piece; @w holds the frame that the one before ended in. */
static int walk_piece(struct memory_delta *d, const struct memory_delta_piece *piece,
	struct window *w,
	int (*fn)(void *user, uint64_t offset, uint64_t len, const uint8_t *bytes), void *user,
	struct err *err)
{
	uint64_t at = piece->at, end = piece->at + (piece->end - piece->start), next;
	int r = 0;

	for (; r == 0 && at < end; at = next) {
		const uint8_t *bytes = NULL;
		bool data;

		next = image_run_end(d->img, at, end, &data);
		if (data && at >= w->end) {
			uint64_t len;

			image_frame_at(d->img, at, &w->start, &len);
			r = image_read_frame(d->img, w->start, w->bytes, err);
			w->end = r < 0 ? 0 : w->start + len;
		}
		if (data && next > w->end)
			next = w->end;
		if (data)
			bytes = w->bytes + (at - w->start);
		if (r == 0)
			r = fn(user, piece->start + (at - piece->at), next - at, bytes);
	}
	return r;
}

int memory_delta_walk(struct memory_delta *d,
	int (*fn)(void *user, uint64_t offset, uint64_t len, const uint8_t *bytes), void *user,
	struct err *err)
{
	cleanup_free uint8_t *buf = malloc(d->img ? image_frame_bytes(d->img) + 1 : 1);
	struct window w = {.bytes = buf};
	int r = 0;

	if (!buf)
		return err_set(err, ENOMEM, "no memory for a frame");
	for (size_t i = 0; r == 0 && i < d->n; i++)
		r = walk_piece(d, &d->pieces[i], &w, fn, user, err);
	return r;
}

struct apply {
	int fd;
	struct err *err;
};

static int apply_run(void *user, uint64_t offset, uint64_t len, const uint8_t *bytes)
{
	struct apply *a = user;
	int r = 0;

	if (bytes)
		r = file_pwrite_full(a->fd, bytes, len, (off_t)offset);
	else if (fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)len) < 0)
		r = -errno;
	return r < 0 ? err_sys(a->err, -r, "put a memory delta over its template's memory") : 0;
}

int memory_delta_apply(struct memory_delta *d, int fd, struct err *err)
{
	struct apply a = {.fd = fd, .err = err};

	return memory_delta_walk(d, apply_run, &a, err);
}
