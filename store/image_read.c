/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an image. A frame is read with pread(2) (a mapping would turn a file cut short
 * into SIGBUS), must be exactly one zstd frame with the raw size and the checksum the
 * table names, and must be zero where the page map has holes. Decompression contexts
 * wait in a list inside the image: as many as threads have read at once.
 */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "common/fault.h"
#include "common/file.h"
#include "store/image_table.h"
#include "store/pipeline.h"

#define SLOTS_MAX 64
#define SLOTS_BYTES (16 * MIB)

struct image_reader {
	SLIST_ENTRY(image_reader) idle;
	ZSTD_DCtx *zstd;
	uint8_t *stored;
	size_t size; /* of stored */
};

static void reader_free(struct image_reader *r)
{
	ZSTD_freeDCtx(r->zstd);
	free(r->stored);
	free(r);
}

static struct image_reader *reader_get(struct image *img)
{
	struct image_reader *r;

	pthread_mutex_lock(&img->lock);
	r = SLIST_FIRST(&img->idle);
	if (r)
		SLIST_REMOVE_HEAD(&img->idle, idle);
	pthread_mutex_unlock(&img->lock);
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->size = ZSTD_compressBound(img->frame_bytes) + 32;
	r->stored = malloc(r->size);
	r->zstd = ZSTD_createDCtx();
	if (!r->stored || !r->zstd) {
		reader_free(r);
		return NULL;
	}
	return r;
}

static void reader_put(struct image *img, struct image_reader *r)
{
	pthread_mutex_lock(&img->lock);
	SLIST_INSERT_HEAD(&img->idle, r, idle);
	pthread_mutex_unlock(&img->lock);
}

int image_open(int fd, struct image **ret, struct err *err)
{
	cleanup_image struct image *img = calloc(1, sizeof(*img));
	int r;

	if (!img)
		return err_sys(err, ENOMEM, "open the image");
	pthread_mutex_init(&img->lock, NULL);
	img->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (img->fd < 0)
		return err_sys(err, errno, "open the image");
	r = image_table_read(img, err);
	if (r < 0)
		return r;
	*ret = steal_ptr(&img);
	return 0;
}

void image_free(struct image *img)
{
	struct image_reader *r;

	while ((r = SLIST_FIRST(&img->idle))) {
		SLIST_REMOVE_HEAD(&img->idle, idle);
		reader_free(r);
	}
	close_fd(&img->fd);
	free(img->raw_at);
	free(img->stored_at);
	free(img->check);
	free(img->map);
	pthread_mutex_destroy(&img->lock);
	free(img);
}

static int bad_frame(const struct image *img, uint64_t i, const char *what, struct err *err)
{
	return err_set(err, EBADMSG,
		"the image is damaged: frame %llu of %llu (raw offset %llu): %s",
		(unsigned long long)i + 1, (unsigned long long)img->n_frames,
		(unsigned long long)img->raw_at[i], what);
}

/* Pages that the map calls holes are zero in frame @i's content @buf. */
static bool holes_are_zero(const struct image *img, uint64_t i, const uint8_t *buf)
{
	uint64_t start = img->raw_at[i], end = img->raw_at[i + 1], at = start;

	while (at < end) {
		bool data;
		uint64_t next = image_run_end(img, at, end, &data);

		if (!data && !image_is_zero(buf + (at - start), next - at))
			return false;
		at = next;
	}
	return true;
}

/* Check and decompress what @r->stored holds of frame @i. */
static int decode(
	const struct image *img, uint64_t i, struct image_reader *r, void *buf, struct err *err)
{
	size_t stored = img->stored_at[i + 1] - img->stored_at[i];
	size_t raw = img->raw_at[i + 1] - img->raw_at[i], n;

	if (image_get32(r->stored) != IMAGE_ZSTD_MAGIC ||
		ZSTD_findFrameCompressedSize(r->stored, stored) != stored)
		return bad_frame(img, i, "not one zstd frame of its size", err);
	if (!(r->stored[4] & IMAGE_ZSTD_HAS_CHECKSUM))
		return bad_frame(img, i, "it has no checksum", err);
	if (image_get32(r->stored + stored - 4) != img->check[i])
		return bad_frame(img, i, "its checksum is not the table's", err);
	if (ZSTD_getFrameContentSize(r->stored, stored) != raw)
		return bad_frame(img, i, "its raw size is not the table's", err);
	n = ZSTD_decompressDCtx(r->zstd, buf, raw, r->stored, stored);
	if (ZSTD_isError(n))
		return bad_frame(img, i, ZSTD_getErrorName(n), err);
	if (n != raw)
		return bad_frame(img, i, "it is shorter than the table says", err);
	if (!holes_are_zero(img, i, buf))
		return bad_frame(img, i, "it holds data where the page map has a hole", err);
	return 0;
}

/* Frame @i, which holds data, into @buf. */
static int read_frame(struct image *img, uint64_t i, void *buf, struct err *err)
{
	size_t stored = img->stored_at[i + 1] - img->stored_at[i];
	struct image_reader *reader = reader_get(img);
	int r;

	if (!reader)
		return err_sys(err, ENOMEM, "read the image");
	assert(stored <= reader->size);
	r = file_pread_full(img->fd, reader->stored, stored, (off_t)img->stored_at[i]);
	if (r == -ENODATA)
		r = bad_frame(img, i, "the file ends early", err);
	else if (r < 0)
		err_sys(err, -r, "read the image");
	else
		r = decode(img, i, reader, buf, err);
	reader_put(img, reader);
	return r;
}

int image_read_frame(struct image *img, uint64_t start, void *buf, struct err *err)
{
	uint64_t i = start < img->raw_bytes ? image_table_find(img, start) : 0;

	if (start >= img->raw_bytes || img->raw_at[i] != start)
		return err_set(err, EINVAL, "no frame of the image begins at %llu",
			(unsigned long long)start);
	if (!image_table_has_data(img, i)) {
		memset(buf, 0, img->raw_at[i + 1] - start);
		return 0;
	}
	return read_frame(img, i, buf, err);
}

/* ---- all of it ---- */

struct expand_slot {
	uint64_t frame;
	bool hole;
	uint8_t *raw;
};

struct expand {
	struct image *img;
	int fd; /* -1: only check */
	struct expand_slot *slots;
	unsigned n_slots;
	uint64_t next;
	struct digest *digest; /* NULL: not wanted */
	struct progress *progress;
};

static int expand_next(void *ctx, unsigned slot, bool *ret_work, struct err *err)
{
	struct expand *e = ctx;
	struct expand_slot *s = &e->slots[slot];

	(void)err;
	if (e->next == e->img->n_frames)
		return 0;
	s->frame = e->next++;
	s->hole = !image_table_has_data(e->img, s->frame);
	*ret_work = !s->hole;
	return 1;
}

/* The pages of frame @i that hold data, to their places in @fd. */
static int write_data(
	const struct image *img, uint64_t i, const uint8_t *raw, int fd, struct err *err)
{
	uint64_t start = img->raw_at[i], end = img->raw_at[i + 1], at = start;

	while (at < end) {
		bool data;
		uint64_t next = image_run_end(img, at, end, &data);
		int r = 0;

		if (data)
			r = fault_point("image.expand.write");
		if (data && r == 0)
			r = file_pwrite_full(fd, raw + (at - start), next - at, (off_t)at);
		if (r < 0)
			return err_sys(err, -r, "write the expanded image");
		at = next;
	}
	return 0;
}

static int expand_work(void *ctx, unsigned slot, unsigned worker, struct err *err)
{
	struct expand *e = ctx;
	struct expand_slot *s = &e->slots[slot];
	int r = read_frame(e->img, s->frame, s->raw, err);

	(void)worker;
	if (r == 0 && e->fd >= 0)
		r = write_data(e->img, s->frame, s->raw, e->fd, err);
	return r;
}

static int expand_progress(void *ctx, unsigned slot, struct err *err)
{
	struct expand *e = ctx;

	(void)err;
	progress_update(e->progress, e->img->raw_at[e->slots[slot].frame + 1]);
	return 0;
}

static int expand_digest(void *ctx, unsigned slot, struct err *err)
{
	struct expand *e = ctx;
	struct expand_slot *s = &e->slots[slot];
	uint64_t bytes = e->img->raw_at[s->frame + 1] - e->img->raw_at[s->frame];

	if (s->hole)
		digest_zeros(e->digest, bytes);
	else
		digest_update(e->digest, s->raw, bytes);
	return expand_progress(ctx, slot, err);
}

static void expand_clear(struct expand *e)
{
	for (unsigned i = 0; i < e->n_slots; i++)
		free(e->slots[i].raw);
	free(e->slots);
	if (e->digest)
		digest_free(e->digest);
}

static int expand_run(struct expand *e, struct err *err)
{
	struct pipeline_ops ops = {.next = expand_next, .work = expand_work};
	unsigned workers = pipeline_cores(), slots;
	uint32_t frame = e->img->frame_bytes ? e->img->frame_bytes : IMAGE_PAGE;

	if (e->img->n_frames < workers)
		workers = e->img->n_frames ? (unsigned)e->img->n_frames : 1;
	slots = (unsigned)(SLOTS_BYTES / frame);
	slots = slots > SLOTS_MAX ? SLOTS_MAX : slots < 2 * workers + 2 ? 2 * workers + 2 : slots;
	if (e->digest)
		ops.follow = expand_digest;
	else
		ops.take = expand_progress;
	e->slots = calloc(slots, sizeof(*e->slots));
	if (!e->slots)
		return err_sys(err, ENOMEM, "expand the image");
	e->n_slots = slots;
	for (unsigned i = 0; i < slots; i++) {
		e->slots[i].raw = malloc(frame);
		if (!e->slots[i].raw)
			return err_sys(err, ENOMEM, "expand the image");
	}
	return pipeline_run(&ops, e, slots, workers, err);
}

static int expand(struct image *img, int fd, const char *raw_digest, struct progress *progress,
	struct err *err)
{
	cleanup_with(expand_clear) struct expand e = {.img = img, .fd = fd, .progress = progress};
	char got[DIGEST_TEXT_SIZE];
	int r;

	if (raw_digest)
		e.digest = digest_new();
	r = expand_run(&e, err);
	if (r < 0 || !raw_digest)
		return r;
	digest_final(e.digest, got);
	if (strcmp(got, raw_digest))
		return err_set(err, EBADMSG, "the image expands to %s, not to %s", got, raw_digest);
	return 0;
}

int image_expand(struct image *img, int fd, const char *raw_digest, struct progress *progress,
	struct err *err)
{
	/* nothing of an older content shines through the holes */
	if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)img->raw_bytes) < 0)
		return err_sys(err, errno, "expand the image");
	return expand(img, fd, raw_digest, progress, err);
}

int image_check_all(
	struct image *img, const char *raw_digest, struct progress *progress, struct err *err)
{
	return expand(img, -1, raw_digest, progress, err);
}
