/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing an image. The raw file is cut at multiples of frame_bytes; a cut that lies in a hole
 * of the file, or that turns out to be all zero, joins the hole before it, every other one
 * becomes one zstd frame. Workers read and compress, the calling thread writes in order and
 * keeps the table, a thread of its own computes the raw digest: on a machine with SHA
 * instructions that and the compression take about as long, so they run side by side.
 *
 * A hole is written without zstd's compressor: run-length blocks of 128 KiB, four bytes each,
 * in a frame whose window is 128 KiB, so that any zstd decodes it in little memory.
 *
 * What is written depends on the raw bytes and the options alone: every frame is compressed
 * afresh, and holes are merged the same way wherever they were found.
 */
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "common/fault.h"
#include "common/file.h"
#include "store/image_format.h"
#include "store/pipeline.h"
#include "store/limits.h"

#define DEFAULT_FRAME (64 * KIB)
#define DEFAULT_LEVEL 3
#define HOLE_PIECE (64 * MIB) /* a multiple of every frame size */
#define SLOTS_MAX 64
#define SLOTS_BYTES (32 * MIB) /* about what slots may take */
#define OUT_BUFFER (1 * MIB)
#define RLE_BLOCK (128 * KIB) /* the most a zstd block may hold */

/* One cut of the raw image in flight. */
struct piece {
	uint64_t start, bytes;
	bool hole;
	uint8_t *raw, *stored;
	size_t stored_bytes;
	uint8_t pages[LIMIT_FRAME_BYTES / IMAGE_PAGE / 8]; /* which hold data */
};

struct writer {
	int raw_fd, out_fd;
	uint64_t raw_bytes, pos;
	uint64_t extent_start, extent_end; /* data of the file, not before pos */
	uint32_t frame_bytes;
	struct piece *pieces;
	unsigned n_pieces;
	ZSTD_CCtx *zstd[PIPELINE_WORKERS_MAX];
	struct digest *raw_digest; /* NULL: not wanted */
	struct progress *progress;
	/* in order */
	struct image_entry *table;
	size_t n_table, table_size;
	uint8_t *map;
	uint64_t hole_bytes, data_pages;
	uint64_t zeros_len; /* whose check zeros_check is */
	uint32_t zeros_check;
	uint8_t *out;
	size_t out_len;
	uint64_t out_bytes;
	struct digest *digest;
};

static int out_flush(struct writer *w, struct err *err)
{
	int r = fault_point("image.write.out");

	if (r == 0)
		r = file_write_full(w->out_fd, w->out, w->out_len);
	if (r < 0)
		return err_sys(err, -r, "write the image");
	digest_update(w->digest, w->out, w->out_len);
	w->out_bytes += w->out_len;
	w->out_len = 0;
	return 0;
}

static int out_write(struct writer *w, const void *data, size_t len, struct err *err)
{
	const uint8_t *p = data;

	while (len) {
		size_t n = OUT_BUFFER - w->out_len < len ? OUT_BUFFER - w->out_len : len;

		memcpy(w->out + w->out_len, p, n);
		w->out_len += n;
		p += n;
		len -= n;
		if (w->out_len == OUT_BUFFER) {
			int r = out_flush(w, err);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int table_add(struct writer *w, size_t stored, uint64_t raw, uint32_t check, struct err *err)
{
	if (w->n_table == LIMIT_FRAMES)
		return err_set(err, E2BIG, "the image has more than %lu frames; use larger frames",
			LIMIT_FRAMES);
	if (w->n_table == w->table_size) {
		size_t size = w->table_size ? 2 * w->table_size : 1024;
		void *table = realloc(w->table, size * sizeof(*w->table));

		if (!table)
			return err_sys(err, ENOMEM, "keep the image's table");
		w->table = table;
		w->table_size = size;
	}
	w->table[w->n_table++] = (struct image_entry){
		.stored = (uint32_t)stored,
		.raw = (uint32_t)raw,
		.check = check,
	};
	return 0;
}

/* One frame of @bytes (≤ IMAGE_HOLE_MAX) zeros. */
static int write_hole(struct writer *w, uint64_t bytes, struct err *err)
{
	uint8_t head[10] = {
		[4] = 0x84 /* 4-byte content size, checksum */, [5] = 0x38 /* window 128 KiB */};
	uint64_t left = bytes;
	size_t stored = sizeof(head) + 4;
	uint8_t sum[4];
	int r;

	image_put32(head, IMAGE_ZSTD_MAGIC);
	image_put32(head + 6, (uint32_t)bytes);
	r = out_write(w, head, sizeof(head), err);
	while (r == 0 && left) {
		uint32_t n = left < RLE_BLOCK ? (uint32_t)left : RLE_BLOCK;
		uint32_t block = n << 3 | 1 << 1 /* run-length */ | (n == left) /* last */;
		uint8_t text[4] = {
			(uint8_t)block, (uint8_t)(block >> 8), (uint8_t)(block >> 16), 0};

		r = out_write(w, text, sizeof(text), err);
		stored += sizeof(text);
		left -= n;
	}
	if (w->zeros_len != bytes) {
		w->zeros_len = bytes;
		w->zeros_check = image_check_zeros(bytes);
	}
	image_put32(sum, w->zeros_check);
	if (r == 0)
		r = out_write(w, sum, sizeof(sum), err);
	return r < 0 ? r : table_add(w, stored, bytes, w->zeros_check, err);
}

/* Write what has gathered as holes. */
static int flush_hole(struct writer *w, struct err *err)
{
	while (w->hole_bytes) {
		uint64_t n = w->hole_bytes < IMAGE_HOLE_MAX ? w->hole_bytes : IMAGE_HOLE_MAX;
		int r = write_hole(w, n, err);

		if (r < 0)
			return r;
		w->hole_bytes -= n;
	}
	return 0;
}

/* Make extent_start … extent_end the first data at or after pos. */
static int find_extent(struct writer *w, struct err *err)
{
	off_t data = lseek(w->raw_fd, (off_t)w->pos, SEEK_DATA), hole;

	if (data < 0 && errno == ENXIO) {
		w->extent_start = w->extent_end = w->raw_bytes;
		return 0;
	}
	if (data < 0) { /* a file that knows no holes */
		w->extent_start = w->pos;
		w->extent_end = w->raw_bytes;
		return 0;
	}
	hole = lseek(w->raw_fd, data, SEEK_HOLE);
	if (hole < 0)
		return err_sys(err, errno, "find the holes of the raw image");
	w->extent_start = (uint64_t)data < w->raw_bytes ? (uint64_t)data : w->raw_bytes;
	w->extent_end = (uint64_t)hole < w->raw_bytes ? (uint64_t)hole : w->raw_bytes;
	return 0;
}

static int next_piece(void *ctx, unsigned slot, bool *ret_work, struct err *err)
{
	struct writer *w = ctx;
	struct piece *p = &w->pieces[slot];
	uint64_t left = w->raw_bytes - w->pos, hole;

	if (left == 0)
		return 0;
	if (w->pos >= w->extent_end) {
		int r = find_extent(w, err);

		if (r < 0)
			return r;
	}
	hole = w->extent_start > w->pos ? w->extent_start - w->pos : 0;
	if (hole < left) /* the frame that the data begins in is no hole */
		hole -= hole % w->frame_bytes;
	p->start = w->pos;
	p->hole = hole > 0;
	if (p->hole)
		p->bytes = hole < HOLE_PIECE ? hole : HOLE_PIECE;
	else
		p->bytes = left < w->frame_bytes ? left : w->frame_bytes;
	w->pos += p->bytes;
	*ret_work = !p->hole;
	return 1;
}

static int compress_piece(void *ctx, unsigned slot, unsigned worker, struct err *err)
{
	struct writer *w = ctx;
	struct piece *p = &w->pieces[slot];
	uint64_t pages = image_pages(p->bytes);
	bool data = false;
	size_t n;
	int r = file_pread_full(w->raw_fd, p->raw, p->bytes, (off_t)p->start);

	if (r < 0)
		return err_sys(err, -r, "read the raw image at %llu", (unsigned long long)p->start);
	memset(p->pages, 0, sizeof(p->pages));
	for (uint64_t i = 0; i < pages; i++) {
		uint64_t at = i * IMAGE_PAGE, len = p->bytes - at;

		if (!image_is_zero(p->raw + at, len < IMAGE_PAGE ? len : IMAGE_PAGE)) {
			p->pages[i / 8] |= (uint8_t)(1 << (i % 8));
			data = true;
		}
	}
	p->hole = !data;
	if (p->hole)
		return 0;
	n = ZSTD_compress2(
		w->zstd[worker], p->stored, ZSTD_compressBound(w->frame_bytes), p->raw, p->bytes);
	if (ZSTD_isError(n))
		return err_set(err, EIO, "compress the image: zstd: %s", ZSTD_getErrorName(n));
	p->stored_bytes = n;
	return 0;
}

static int write_piece(void *ctx, unsigned slot, struct err *err)
{
	struct writer *w = ctx;
	struct piece *p = &w->pieces[slot];
	uint64_t pages = image_pages(p->bytes), first = p->start / IMAGE_PAGE;
	int r;

	if (!w->raw_digest)
		progress_update(w->progress, p->start + p->bytes);
	if (p->hole) {
		w->hole_bytes += p->bytes;
		return 0;
	}
	for (uint64_t i = 0; i < pages; i++)
		if (image_bit(p->pages, i)) {
			w->map[(first + i) / 8] |= (uint8_t)(1 << ((first + i) % 8));
			w->data_pages++;
		}
	r = flush_hole(w, err);
	if (r == 0)
		r = out_write(w, p->stored, p->stored_bytes, err);
	/* the frame's own checksum is the table's too: both are half an XXH64 of the content */
	return r < 0 ? r
		     : table_add(w, p->stored_bytes, p->bytes,
			       image_get32(p->stored + p->stored_bytes - 4), err);
}

static int digest_piece(void *ctx, unsigned slot, struct err *err)
{
	struct writer *w = ctx;
	struct piece *p = &w->pieces[slot];

	(void)err;
	if (p->hole)
		digest_zeros(w->raw_digest, p->bytes);
	else
		digest_update(w->raw_digest, p->raw, p->bytes);
	progress_update(w->progress, p->start + p->bytes);
	return 0;
}

/* The table's entries as they are stored. */
static uint8_t *table_text(const struct writer *w)
{
	uint8_t *text = malloc((w->n_table + 1) * IMAGE_TABLE_ENTRY);

	for (size_t i = 0; text && i < w->n_table; i++) {
		image_put32(text + i * IMAGE_TABLE_ENTRY, w->table[i].stored);
		image_put32(text + i * IMAGE_TABLE_ENTRY + 4, w->table[i].raw);
		image_put32(text + i * IMAGE_TABLE_ENTRY + 8, w->table[i].check);
	}
	return text;
}

/* The page map; its own line of the table goes to the end of @table. */
static int write_map(struct writer *w, uint8_t *table, struct err *err)
{
	size_t bytes = (image_pages(w->raw_bytes) + 7) / 8, bound = ZSTD_compressBound(bytes), n;
	size_t table_bytes = w->n_table * IMAGE_TABLE_ENTRY;
	cleanup_free uint8_t *bits = malloc(bound);
	uint8_t head[IMAGE_MAP_HEAD];
	int r;

	if (!bits)
		return err_sys(err, ENOMEM, "write the page map");
	n = ZSTD_compress2(w->zstd[0], bits, bound, w->map, bytes);
	if (ZSTD_isError(n))
		return err_set(err, EIO, "compress the page map: zstd: %s", ZSTD_getErrorName(n));
	image_put32(head, IMAGE_MAP_MAGIC);
	image_put32(head + IMAGE_MAP_AT_SIZE, (uint32_t)(IMAGE_MAP_HEAD - 8 + n));
	memcpy(head + IMAGE_MAP_AT_INNER, IMAGE_MAP_INNER, 8);
	image_put32(head + IMAGE_MAP_AT_VERSION, IMAGE_MAP_VERSION);
	image_put32(head + IMAGE_MAP_AT_PAGE, IMAGE_PAGE);
	image_put64(head + IMAGE_MAP_AT_RAW, w->raw_bytes);
	image_put64(head + IMAGE_MAP_AT_DATA, w->data_pages);
	image_put32(head + IMAGE_MAP_AT_TABLE, image_check(table, table_bytes));
	image_put32(head + IMAGE_MAP_AT_BITS, image_check(bits, n));
	image_put32(head + IMAGE_MAP_AT_CHECK,
		image_check(head + IMAGE_MAP_AT_INNER, IMAGE_MAP_AT_CHECK - IMAGE_MAP_AT_INNER));
	r = out_write(w, head, sizeof(head), err);
	if (r == 0)
		r = out_write(w, bits, n, err);
	image_put32(table + table_bytes, (uint32_t)(IMAGE_MAP_HEAD + n));
	image_put32(table + table_bytes + 4, 0);
	image_put32(table + table_bytes + 8, IMAGE_EMPTY_CHECK);
	return r;
}

/* Page map and seek table. */
static int write_tables(struct writer *w, struct err *err)
{
	size_t bytes = (w->n_table + 1) * IMAGE_TABLE_ENTRY;
	cleanup_free uint8_t *table = table_text(w);
	uint8_t head[IMAGE_TABLE_HEAD], foot[IMAGE_TABLE_FOOT];
	int r;

	if (!table)
		return err_sys(err, ENOMEM, "write the seek table");
	r = write_map(w, table, err);
	image_put32(head, IMAGE_TABLE_MAGIC);
	image_put32(head + 4, (uint32_t)(bytes + IMAGE_TABLE_FOOT));
	image_put32(foot, (uint32_t)(w->n_table + 1));
	foot[4] = IMAGE_TABLE_CHECKSUMS;
	image_put32(foot + 5, IMAGE_SEEKABLE_MAGIC);
	if (r == 0)
		r = out_write(w, head, sizeof(head), err);
	if (r == 0)
		r = out_write(w, table, bytes, err);
	if (r == 0)
		r = out_write(w, foot, sizeof(foot), err);
	return r < 0 ? r : out_flush(w, err);
}

static void writer_clear(struct writer *w)
{
	for (unsigned i = 0; i < w->n_pieces; i++) {
		free(w->pieces[i].raw);
		free(w->pieces[i].stored);
	}
	for (unsigned i = 0; i < PIPELINE_WORKERS_MAX; i++)
		ZSTD_freeCCtx(w->zstd[i]);
	free(w->pieces);
	free(w->table);
	free(w->map);
	free(w->out);
	digest_free(w->digest);
	if (w->raw_digest)
		digest_free(w->raw_digest);
}

static int writer_alloc(struct writer *w, int level, unsigned threads, unsigned slots)
{
	w->map = calloc((image_pages(w->raw_bytes) + 7) / 8 + 1, 1);
	w->out = malloc(OUT_BUFFER);
	w->pieces = calloc(slots, sizeof(*w->pieces));
	if (!w->map || !w->out || !w->pieces)
		return -ENOMEM;
	w->n_pieces = slots;
	for (unsigned i = 0; i < slots; i++) {
		w->pieces[i].raw = malloc(w->frame_bytes);
		w->pieces[i].stored = malloc(ZSTD_compressBound(w->frame_bytes));
		if (!w->pieces[i].raw || !w->pieces[i].stored)
			return -ENOMEM;
	}
	for (unsigned i = 0; i < threads; i++) {
		w->zstd[i] = ZSTD_createCCtx();
		if (!w->zstd[i])
			return -ENOMEM;
		ZSTD_CCtx_setParameter(w->zstd[i], ZSTD_c_compressionLevel, level);
		ZSTD_CCtx_setParameter(w->zstd[i], ZSTD_c_checksumFlag, 1);
	}
	return 0;
}

static int check_input(const struct writer *w, const struct image_options *opt, struct err *err)
{
	struct stat st;

	if (w->raw_bytes > LIMIT_DISK_MAX)
		return err_set(err, EFBIG, "an image of %llu bytes is larger than %lu",
			(unsigned long long)w->raw_bytes, LIMIT_DISK_MAX);
	if (w->frame_bytes < IMAGE_PAGE || w->frame_bytes > LIMIT_FRAME_BYTES ||
		(w->frame_bytes & (w->frame_bytes - 1)))
		return err_set(err, EINVAL, "frames of %u bytes: not a power of two of 4096 … %lu",
			w->frame_bytes, LIMIT_FRAME_BYTES);
	if (opt->level < 0 || opt->level > ZSTD_maxCLevel())
		return err_set(err, EINVAL, "zstd level %d: not within 1 … %d", opt->level,
			ZSTD_maxCLevel());
	if (fstat(w->raw_fd, &st) < 0)
		return err_sys(err, errno, "read the raw image");
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < w->raw_bytes)
		return err_set(err, EINVAL, "the raw image has %lld bytes, not %llu",
			(long long)st.st_size, (unsigned long long)w->raw_bytes);
	return 0;
}

int image_write(int raw_fd, uint64_t raw_bytes, const struct image_options *opt, int out_fd,
	struct progress *progress, struct image_stats *ret, struct err *err)
{
	static const struct image_options defaults;
	cleanup_with(writer_clear) struct writer w = {
		.raw_fd = raw_fd, .out_fd = out_fd, .raw_bytes = raw_bytes, .progress = progress};
	struct pipeline_ops ops = {.next = next_piece, .work = compress_piece, .take = write_piece};
	unsigned threads, slots;
	int r;

	if (!opt)
		opt = &defaults;
	w.digest = digest_new();
	if (!opt->no_raw_digest) {
		w.raw_digest = digest_new();
		ops.follow = digest_piece;
	}
	w.frame_bytes = opt->frame_bytes ? opt->frame_bytes : DEFAULT_FRAME;
	r = check_input(&w, opt, err);
	if (r < 0)
		return r;
	threads = opt->threads ? opt->threads : pipeline_cores();
	if (threads > PIPELINE_WORKERS_MAX)
		threads = PIPELINE_WORKERS_MAX;
	slots = (unsigned)(SLOTS_BYTES / 2 / w.frame_bytes);
	slots = slots > SLOTS_MAX ? SLOTS_MAX : slots < 2 * threads + 2 ? 2 * threads + 2 : slots;
	if (writer_alloc(&w, opt->level ? opt->level : DEFAULT_LEVEL, threads, slots) < 0)
		return err_sys(err, ENOMEM, "write the image");
	r = pipeline_run(&ops, &w, slots, threads, err);
	if (r == 0)
		r = flush_hole(&w, err);
	if (r == 0)
		r = write_tables(&w, err);
	if (r < 0)
		return r;
	*ret = (struct image_stats){
		.raw_bytes = raw_bytes,
		.data_bytes = w.data_pages * IMAGE_PAGE,
		.stored_bytes = w.out_bytes,
	};
	digest_final(w.digest, ret->digest);
	if (w.raw_digest)
		digest_final(w.raw_digest, ret->raw_digest);
	return 0;
}
