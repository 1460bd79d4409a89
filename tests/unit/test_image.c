/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: what goes in comes out, holes stay holes, the same bytes whatever the threads, plain zstd
 * agrees, and no damage yields wrong data.
 */
#include "store/image.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "store/limits.h"
#include "common/proc.h"
#include "store/image_format.h"
#include "tests/unit/tap.h"

static struct err err;
static char dir[] = "/tmp/parbake-test-image-XXXXXX";

static int scratch(void)
{
	int fd = file_scratch(dir, &err);

	if (fd < 0)
		abort();
	return fd;
}

/* Numbers that are the same every time. */
static uint32_t lcg(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Text-like bytes. */
static void fill(void *buf, size_t len, uint32_t seed)
{
	static const char words[] =
		"the page that a fault finds is a frame that a thread has read ";
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)words[(i + (i % 7 == 0 ? lcg(&seed) : 0)) % (sizeof(words) - 1)];
}

static void put(int fd, uint64_t at, size_t len, uint32_t seed)
{
	uint8_t *buf = malloc(len);

	fill(buf, len, seed);
	if (file_pwrite_full(fd, buf, len, (off_t)at) < 0)
		abort();
	free(buf);
}

static uint64_t file_bytes(int fd)
{
	struct stat st;

	fstat(fd, &st);
	return (uint64_t)st.st_size;
}

/* sha256 of what a program prints given @fd as its standard input. */
static void judge(const char *line, int fd, char *ret)
{
	const char *const argv[] = {"sh", "-c", line, NULL};
	struct proc_spec spec = {.argv = argv};
	char *out = NULL;

	ret[0] = '\0';
	lseek(fd, 0, SEEK_SET);
	proc_map_fd(&spec, fd, 0);
	if (proc_output(&spec, 60000, 4096, &out, &err) == 0)
		snprintf(ret, DIGEST_TEXT_SIZE, "sha256:%.64s", out);
	else
		printf("# %s\n", err.text);
	free(out);
}

/* Write, judge, read back in every way. Returns the image file. */
static int roundtrip(const char *name, int raw, uint64_t raw_bytes, const struct image_options *opt,
	struct image_stats *stats)
{
	int out = scratch(), back = scratch();
	cleanup_image struct image *img = NULL;
	char digest[DIGEST_TEXT_SIZE] = "", direct[DIGEST_TEXT_SIZE];
	struct stat raw_st, back_st;
	uint64_t data = 0;
	int r = image_write(raw, raw_bytes, opt, out, NULL, stats, &err);

	if (!is_int(r, 0, "%s: write", name)) {
		printf("# %s\n", err.text);
		return out;
	}
	digest_fd(raw, direct, &err);
	is_str(stats->raw_digest, direct, "%s: the raw digest", name);
	digest_fd(out, direct, &err);
	is_str(stats->digest, direct, "%s: the stored digest", name);
	is_int((int64_t)stats->stored_bytes, (int64_t)file_bytes(out), "%s: the stored size", name);
	judge("zstd -dc | sha256sum", out, digest);
	is_str(digest, stats->raw_digest, "%s: zstd -dc yields the raw image", name);

	r = image_open(out, &img, &err);
	if (!is_int(r, 0, "%s: open", name)) {
		printf("# %s\n", err.text);
		return out;
	}
	is_int((int64_t)image_raw_bytes(img), (int64_t)raw_bytes, "%s: its size", name);
	r = image_expand(img, back, stats->raw_digest, NULL, &err);
	if (!is_int(r, 0, "%s: expand", name))
		printf("# %s\n", err.text);
	digest_fd(back, direct, &err);
	is_str(direct, stats->raw_digest, "%s: expanded to the same bytes", name);
	is_int(image_check_all(img, stats->raw_digest, NULL, &err), 0, "%s: check", name);
	fstat(raw, &raw_st);
	fstat(back, &back_st);
	ok(back_st.st_blocks <= raw_st.st_blocks, "%s: expanded no denser than it was", name);
	for (uint64_t at = 0; at < raw_bytes;) {
		bool is_data;
		uint64_t end = image_run_end(img, at, raw_bytes, &is_data);

		if (is_data)
			data += (end - at + IMAGE_PAGE - 1) / IMAGE_PAGE * IMAGE_PAGE;
		if (end <= at)
			abort();
		at = end;
	}
	is_int((int64_t)data, (int64_t)stats->data_bytes, "%s: runs add up to the data", name);
	close(back);
	return out;
}

static void test_shapes(void)
{
	static const struct {
		const char *name;
		uint64_t bytes;
		struct {
			uint64_t at;
			size_t len;
		} data[4];
	} shapes[] = {
		{"empty", 0, {{0, 0}}},
		{"one byte", 1, {{0, 1}}},
		{"one zero byte", 1, {{0, 0}}},
		{"a page", 4096, {{0, 4096}}},
		{"a byte past a page", 4097, {{0, 4097}}},
		{"a byte past a page, data in it alone", 4097, {{4096, 1}}},
		{"all holes", 16 * MIB, {{0, 0}}},
		{"a hole at the front", 3 * MIB, {{2 * MIB, MIB}}},
		{"a hole at the end", 3 * MIB, {{0, MIB}}},
		{"a byte in the middle", 64 * MIB + 77, {{33 * MIB + 5, 1}}},
		{"data across frames", 8 * MIB, {{65530, 12}, {1 * MIB - 1, 2}, {5 * MIB, 131072}}},
		{"the last byte", 5 * MIB + 1, {{5 * MIB, 1}}},
		{"dense", 4 * MIB + 100, {{0, 4 * MIB + 100}}},
	};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		cleanup_fd int raw = scratch();
		struct image_stats stats;

		if (ftruncate(raw, (off_t)shapes[i].bytes) < 0)
			abort();
		for (int j = 0; j < 4; j++)
			if (shapes[i].data[j].len)
				put(raw, shapes[i].data[j].at, shapes[i].data[j].len,
					7 + (uint32_t)j);
		close(roundtrip(shapes[i].name, raw, shapes[i].bytes, NULL, &stats));
	}
}

/* A 24 MiB machine: runs of data, holes of the file, pages written as zeros. */
static int machine(void)
{
	int raw = scratch();
	uint32_t state = 42;

	if (ftruncate(raw, 24 * MIB) < 0)
		abort();
	for (int i = 0; i < 150; i++)
		put(raw, lcg(&state) % (24 * MIB / IMAGE_PAGE - 12) * IMAGE_PAGE,
			(1 + lcg(&state) % 12) * IMAGE_PAGE, lcg(&state));
	for (int i = 0; i < 50; i++) {
		static const uint8_t zeros[8 * IMAGE_PAGE];

		file_pwrite_full(raw, zeros, sizeof(zeros),
			(off_t)(lcg(&state) % (24 * MIB / IMAGE_PAGE - 8) * IMAGE_PAGE));
	}
	return raw;
}

static void test_options(void)
{
	cleanup_fd int raw = machine();
	static const uint32_t frames[] = {4096, 16384, 65536, 1 << 20, 4 << 20};

	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		struct image_options opt = {.frame_bytes = frames[i], .threads = 3};
		struct image_stats stats;
		char name[32];

		snprintf(name, sizeof(name), "frames of %u", frames[i]);
		close(roundtrip(name, raw, 24 * MIB, &opt, &stats));
	}
}

static void test_same_bytes(void)
{
	cleanup_fd int raw = machine(), dense = scratch();
	struct image_stats first = {0}, stats;
	char *all = malloc(24 * MIB);

	for (unsigned threads = 1; threads <= 9; threads += 2) {
		struct image_options opt = {.threads = threads};
		cleanup_fd int out = scratch();

		is_int(image_write(raw, 24 * MIB, &opt, out, NULL, &stats, &err), 0, "%u threads",
			threads);
		if (threads == 1)
			first = stats;
		is_str(stats.digest, first.digest, "%u threads: the same bytes", threads);
	}
	/* the same content in a file without holes */
	if (file_pread_full(raw, all, 24 * MIB, 0) < 0 || file_write_full(dense, all, 24 * MIB) < 0)
		abort();
	free(all);
	{
		cleanup_fd int out = scratch();

		is_int(image_write(dense, 24 * MIB, NULL, out, NULL, &stats, &err), 0, "no holes");
		is_str(stats.digest, first.digest,
			"holes of the file or zeros in it: the same bytes");
	}
}

static void test_tebibyte(void)
{
	cleanup_fd int raw = memfd_create("tebibyte", MFD_CLOEXEC), out = scratch();
	struct image_options opt = {.no_raw_digest = true};
	cleanup_image struct image *img = NULL;
	struct image_stats stats;
	uint64_t start, bytes;
	int64_t began = clock_now_ns();
	char page[IMAGE_PAGE * 16];
	bool data;

	if (ftruncate(raw, 1024 * (off_t)GIB) < 0)
		abort();
	put(raw, 700 * GIB + 8192, 100, 1);
	is_int(image_write(raw, 1024 * GIB, &opt, out, NULL, &stats, &err), 0, "1 TiB: write");
	is_int(image_open(out, &img, &err), 0, "1 TiB: open");
	is_int((int64_t)image_raw_bytes(img), 1024 * (int64_t)GIB, "1 TiB: its size");
	is_int((int64_t)image_run_end(img, 0, UINT64_MAX, &data), 700 * (int64_t)GIB + 8192,
		"1 TiB: one hole");
	ok(!data && image_page_has_data(img, 700 * GIB + 8192), "1 TiB: then data");
	image_frame_at(img, 700 * GIB + 9000, &start, &bytes);
	ok(start == 700 * GIB && bytes <= sizeof(page), "1 TiB: its frame");
	is_int(image_read_frame(img, start, page, &err), 0, "1 TiB: read");
	ok(page[8192] && !page[8191] && !page[8192 + 100], "1 TiB: the bytes");
	ok(stats.stored_bytes < 40 * MIB, "1 TiB: stored in %" PRIu64 " bytes", stats.stored_bytes);
	printf("# %.2f s\n", (double)(clock_now_ns() - began) / 1e9);
	is_int(image_write(raw, 1024 * GIB + 1, &opt, out, NULL, &stats, &err), -EFBIG,
		"more than 1 TiB is refused");
}

/* Offsets beyond 32 bits; zstd judges, at a speed that digests do not have. */
static void test_beyond_4gib(void)
{
	cleanup_fd int raw = memfd_create("big", MFD_CLOEXEC), out = scratch(), back = scratch();
	struct image_options opt = {.no_raw_digest = true};
	cleanup_image struct image *img = NULL;
	struct image_stats stats;
	char digest[DIGEST_TEXT_SIZE], want[9000], got[9000];

	if (ftruncate(raw, 4 * (off_t)GIB + 9999) < 0)
		abort();
	put(raw, 4 * GIB - 3, 9000, 1);
	put(raw, 4 * GIB + 9998, 1, 2);
	is_int(image_write(raw, 4 * GIB + 9999, &opt, out, NULL, &stats, &err), 0, "4 GiB: write");
	is_str(stats.raw_digest, "", "4 GiB: no digest where none is wanted");
	judge("zstd -dc | tail -c 9999 | sha256sum", out, digest);
	is_int(image_open(out, &img, &err), 0, "4 GiB: open");
	is_int(image_expand(img, back, NULL, NULL, &err), 0, "4 GiB: expand");
	is_int((int64_t)file_bytes(back), 4 * (int64_t)GIB + 9999, "4 GiB: its size");
	fill(want, sizeof(want), 1);
	file_pread_full(back, got, sizeof(got), 4 * GIB - 3);
	ok(!memcmp(got, want, sizeof(got)), "4 GiB: the data across it");
	{
		char tail[9999], tail_digest[DIGEST_TEXT_SIZE];

		file_pread_full(back, tail, sizeof(tail), 4 * GIB);
		digest_buffer(tail, sizeof(tail), tail_digest);
		is_str(digest, tail_digest, "4 GiB: zstd -dc yields the same end");
	}
}

static void test_refused(void)
{
	cleanup_fd int raw = scratch(), out = scratch(),
		       full = open("/dev/full", O_RDWR | O_CLOEXEC);
	struct image_stats stats;
	struct image_options odd = {.frame_bytes = 5000}, deep = {.level = 99};

	put(raw, 0, 3 * MIB, 5);
	is_int(image_write(raw, 4 * MIB, NULL, out, NULL, &stats, &err), -EINVAL,
		"a raw file cut short");
	has_str(err.text, "3145728 bytes", "… with its size");
	is_int(image_write(raw, 3 * MIB, &odd, out, NULL, &stats, &err), -EINVAL, "frames of 5000");
	is_int(image_write(raw, 3 * MIB, &deep, out, NULL, &stats, &err), -EINVAL, "level 99");
	is_int(image_write(raw, 3 * MIB, NULL, full, NULL, &stats, &err), -ENOSPC, "a full disk");
	has_str(err.text, "write the image", "… says what failed");
	is_int(file_bytes(out), 0, "nothing was written");
}

static void test_check_sum(void)
{
	uint8_t buf[300];

	/* as xxhsum prints them; zstd -d judges longer ones in every image here */
	is_int(image_check("", 0), 0x51D8E999, "XXH64 of nothing");
	is_int(image_check("a", 1), 0xA98C6E5B, "XXH64 of a");
	is_int(image_check("abc", 3), 0xAD770999, "XXH64 of abc");
	memset(buf, 0, sizeof(buf));
	for (size_t len = 0; len <= sizeof(buf); len++)
		if (image_check(buf, len) != image_check_zeros(len)) {
			ok(0, "check of %zu zeros", len);
			return;
		}
	ok(1, "the checks of 0 … 300 zeros agree");
	ok(image_is_zero(buf, sizeof(buf)), "zeros are zero");
	for (size_t at = 0; at < sizeof(buf); at++) {
		buf[at] = 1;
		if (image_is_zero(buf, sizeof(buf))) {
			ok(0, "a byte at %zu is seen", at);
			return;
		}
		buf[at] = 0;
	}
	ok(1, "a byte that is not zero is seen wherever it is");
}

/* One damaged copy: 1 where it was refused, 0 where all data was right, -1 where it was wrong. */
static int try_damaged(const uint8_t *file, size_t len, const uint8_t *raw, uint64_t raw_bytes)
{
	cleanup_fd int fd = memfd_create("damaged", MFD_CLOEXEC);
	cleanup_image struct image *img = NULL;
	cleanup_free uint8_t *buf = NULL;
	int refused = 0;

	if (file_write_full(fd, file, len) < 0)
		abort();
	if (image_open(fd, &img, &err) < 0)
		return 1;
	if (image_raw_bytes(img) != raw_bytes)
		return -1;
	buf = malloc(LIMIT_FRAME_BYTES);
	for (uint64_t at = 0; at < raw_bytes;) {
		uint64_t start, bytes;
		bool data;

		image_frame_at(img, at, &start, &bytes);
		if (start != at || bytes == 0)
			return -1;
		if (image_run_end(img, at, at + bytes, &data) >= at + bytes && !data) {
			if (!image_is_zero(raw + at, bytes))
				return -1;
		} else {
			int r = image_read_frame(img, at, buf, &err);

			if (r == -EBADMSG)
				refused = 1;
			else if (r < 0 || memcmp(buf, raw + at, bytes) != 0)
				return -1;
		}
		at += bytes;
	}
	return refused;
}

static void test_damage(void)
{
	enum { RAW = 40 * IMAGE_PAGE + 50 };
	cleanup_fd int fd = scratch(), out = scratch();
	struct image_options opt = {.frame_bytes = 8192};
	struct image_stats stats;
	uint8_t *raw, *file;
	size_t len, wrong = 0, refused = 0, right = 0;

	if (ftruncate(fd, RAW) < 0)
		abort();
	put(fd, 3 * IMAGE_PAGE + 5, 2 * IMAGE_PAGE, 3);
	put(fd, 20 * IMAGE_PAGE, 10, 4);
	put(fd, RAW - 30, 30, 5);
	is_int(image_write(fd, RAW, &opt, out, NULL, &stats, &err), 0, "an image to damage");
	len = stats.stored_bytes;
	raw = malloc(RAW);
	file = malloc(len);
	if (file_pread_full(fd, raw, RAW, 0) < 0 || file_pread_full(out, file, len, 0) < 0)
		abort();
	is_int(try_damaged(file, len, raw, RAW), 0, "undamaged, it reads right");
	for (size_t at = 0; at < len; at++)
		for (int bit = 0; bit < 8; bit++) {
			int r;

			file[at] ^= (uint8_t)(1 << bit);
			r = try_damaged(file, len, raw, RAW);
			file[at] ^= (uint8_t)(1 << bit);
			if (r < 0 && wrong++ == 0)
				printf("# wrong data: byte %zu of %zu, bit %d\n", at, len, bit);
			refused += r > 0;
			right += r == 0;
		}
	is_int((int64_t)wrong, 0, "every bit of %zu bytes flipped: never wrong data", len);
	ok(refused > right, "%zu refused, %zu harmless", refused, right);
	wrong = 0;
	for (size_t cut = 0; cut < len; cut++)
		wrong += try_damaged(file, cut, raw, RAW) != 1;
	is_int((int64_t)wrong, 0, "cut short anywhere: refused");
	free(raw);
	free(file);
}

/* ---- tables that lie ---- */

struct forged {
	uint8_t bytes[4096];
	size_t len;
	uint64_t raw_bytes;
};

/* Build an image by hand: frames' bytes @body, @n entries, @map bits. Checks are made right. */
static void forge(struct forged *f, const void *body, size_t body_len,
	const struct image_entry *entries, uint32_t n, uint64_t raw_bytes, const uint8_t *map,
	uint64_t map_data)
{
	size_t map_bytes = (image_pages(raw_bytes) + 7) / 8;
	uint8_t *p = f->bytes, *head, *table;
	uint8_t rows[64 * IMAGE_TABLE_ENTRY];
	/* a zstd frame of one raw block, without checksum: 8-byte content size */
	uint8_t bits[13 + 3 + 256] = {0x28, 0xB5, 0x2F, 0xFD, 0xE0};
	size_t bits_len = 13 + 3 + map_bytes;

	image_put64(bits + 5, map_bytes);
	image_put32(bits + 13, (uint32_t)(map_bytes << 3 | 1));
	memcpy(bits + 16, map, map_bytes);
	for (uint32_t i = 0; i < n; i++) {
		image_put32(rows + i * 12, entries[i].stored);
		image_put32(rows + i * 12 + 4, entries[i].raw);
		image_put32(rows + i * 12 + 8, entries[i].check);
	}
	memcpy(p, body, body_len);
	head = p + body_len;
	image_put32(head, IMAGE_MAP_MAGIC);
	image_put32(head + 4, (uint32_t)(IMAGE_MAP_HEAD - 8 + bits_len));
	memcpy(head + 8, IMAGE_MAP_INNER, 8);
	image_put32(head + IMAGE_MAP_AT_VERSION, 1);
	image_put32(head + IMAGE_MAP_AT_PAGE, 4096);
	image_put64(head + IMAGE_MAP_AT_RAW, raw_bytes);
	image_put64(head + IMAGE_MAP_AT_DATA, map_data);
	image_put32(head + IMAGE_MAP_AT_TABLE, image_check(rows, n * 12));
	image_put32(head + IMAGE_MAP_AT_BITS, image_check(bits, bits_len));
	image_put32(head + IMAGE_MAP_AT_CHECK, image_check(head + 8, 40));
	memcpy(head + IMAGE_MAP_HEAD, bits, bits_len);
	table = head + IMAGE_MAP_HEAD + bits_len;
	image_put32(table, IMAGE_TABLE_MAGIC);
	image_put32(table + 4, (n + 1) * 12 + 9);
	memcpy(table + 8, rows, n * 12);
	image_put32(table + 8 + n * 12, (uint32_t)(IMAGE_MAP_HEAD + bits_len));
	image_put32(table + 8 + n * 12 + 4, 0);
	image_put32(table + 8 + n * 12 + 8, IMAGE_EMPTY_CHECK);
	table += 8 + (n + 1) * 12;
	image_put32(table, n + 1);
	table[4] = IMAGE_TABLE_CHECKSUMS;
	image_put32(table + 5, IMAGE_SEEKABLE_MAGIC);
	f->len = (size_t)(table + 9 - p);
	f->raw_bytes = raw_bytes;
}

static int open_forged(const struct forged *f, struct image **ret)
{
	cleanup_fd int fd = memfd_create("forged", MFD_CLOEXEC);

	if (file_write_full(fd, f->bytes, f->len) < 0)
		abort();
	err.text[0] = '\0';
	return image_open(fd, ret, &err);
}

static void refused_forged(const struct forged *f, const char *part, const char *name)
{
	cleanup_image struct image *img = NULL;

	is_int(open_forged(f, &img), -EBADMSG, "%s is refused", name);
	has_str(err.text, part, "… and says what");
}

/* A zstd frame of 4096 bytes @fill_byte as a run-length block, with its checksum. */
static size_t rle_frame(uint8_t *p, uint8_t fill_byte, uint32_t claim)
{
	uint8_t page[IMAGE_PAGE];

	memset(page, fill_byte, sizeof(page));
	image_put32(p, IMAGE_ZSTD_MAGIC);
	p[4] = 0xA4; /* 4-byte size, single segment, checksum */
	image_put32(p + 5, claim);
	p[9] = (uint8_t)(IMAGE_PAGE << 3 | 1 << 1 | 1);
	p[10] = (uint8_t)(IMAGE_PAGE << 3 >> 8);
	p[11] = (uint8_t)(IMAGE_PAGE << 3 >> 16);
	p[12] = fill_byte;
	image_put32(p + 13, image_check(page, sizeof(page)));
	return 17;
}

static void test_forged_tables(void)
{
	static uint8_t map[256] = {1}, none[256];
	struct image_entry e[4];
	struct forged f;
	uint8_t body[64];
	size_t len = rle_frame(body, 'x', IMAGE_PAGE);
	uint32_t sum = image_get32(body + len - 4);
	cleanup_image struct image *img = NULL;
	uint8_t page[2 * IMAGE_PAGE];

	e[0] = (struct image_entry){(uint32_t)len, IMAGE_PAGE, sum};
	forge(&f, body, len, e, 1, IMAGE_PAGE, map, 1);
	is_int(open_forged(&f, &img), 0, "a forged image that is right opens");
	is_int(image_read_frame(img, 0, page, &err), 0, "… and reads");
	is_int(page[4095], 'x', "… what it holds");
	is_int(image_read_frame(img, 1, page, &err), -EINVAL, "no frame begins at 1");
	is_int(image_read_frame(img, IMAGE_PAGE, page, &err), -EINVAL,
		"no frame begins at the end of an image");

	e[0].raw = 0;
	forge(&f, body, len, e, 1, IMAGE_PAGE, map, 1);
	refused_forged(&f, "empty", "an empty frame");
	e[0] = (struct image_entry){(uint32_t)len - 1, IMAGE_PAGE, sum};
	forge(&f, body, len, e, 1, IMAGE_PAGE, map, 1);
	refused_forged(&f, "sizes", "a gap between frames and tables");
	e[0].stored = UINT32_MAX;
	forge(&f, body, len, e, 1, IMAGE_PAGE, map, 1);
	refused_forged(&f, "sizes", "a frame longer than the file");
	e[0] = (struct image_entry){9, 100, sum};
	e[1] = (struct image_entry){(uint32_t)len - 9, IMAGE_PAGE - 100, sum};
	forge(&f, body, len, e, 2, IMAGE_PAGE, map, 1);
	refused_forged(&f, "page", "a frame that begins within a page");
	e[0] = (struct image_entry){(uint32_t)len, IMAGE_PAGE, sum};
	forge(&f, body, len, e, 1, 2 * IMAGE_PAGE, map, 1);
	refused_forged(&f, "differ", "another size in the page map");
	forge(&f, body, len, e, 1, IMAGE_PAGE, map, 2);
	refused_forged(&f, "number of pages", "a wrong count of pages");
	map[0] = 3;
	forge(&f, body, len, e, 1, IMAGE_PAGE, map, 2);
	refused_forged(&f, "behind the end", "a page behind the end");
	map[0] = 1;
	e[0].raw = 8 * MIB;
	forge(&f, body, len, e, 1, 8 * MIB, map, 1);
	refused_forged(&f, "too large", "a data frame of 8 MiB");
	forge(&f, body, len, e, 1, 8 * MIB, none, 0);
	image_free(img);
	img = NULL;
	is_int(open_forged(&f, &img), 0, "a hole of 8 MiB is none");
}

static void test_forged_frames(void)
{
	static uint8_t map[256] = {1}, second[256] = {2};
	static const char *const names[] = {"another checksum than the table's",
		"a raw size that is not the table's", "no checksum", "two frames in one",
		"more data than it says", "data where the map has a hole"};
	static const char *const parts[] = {"checksum is not", "raw size", "no checksum",
		"one zstd frame", "raw offset 0", "page map has a hole"};

	for (int i = 0; i < 6; i++) {
		cleanup_image struct image *img = NULL;
		uint8_t body[64], page[2 * IMAGE_PAGE];
		size_t len = rle_frame(body, 'y', i == 1 ? 100 : i == 4 ? 4095 : IMAGE_PAGE);
		struct image_entry e = {(uint32_t)len, IMAGE_PAGE, image_get32(body + len - 4)};
		struct forged f;

		if (i == 0)
			e.check ^= 1;
		if (i == 2)
			body[4] &= (uint8_t)~4; /* the four bytes are then behind the frame */
		if (i == 2)
			e.stored = (uint32_t)(len -= 4), e.check = image_get32(body + len - 4);
		if (i == 3)
			e.stored = (uint32_t)(len += rle_frame(body + len, 'y', IMAGE_PAGE));
		if (i == 4)
			e.raw = 4095;
		if (i == 5)
			e.raw = 2 * IMAGE_PAGE, image_put32(body + 5, 2 * IMAGE_PAGE),
			image_put32(body + 9, (2 * IMAGE_PAGE << 3 | 3) | (uint32_t)'y' << 24);
		if (i == 5) {
			memset(page, 'y', sizeof(page));
			e.check = image_check(page, sizeof(page));
			image_put32(body + 13, e.check);
		}
		forge(&f, body, len, &e, 1, e.raw, i == 5 ? second : map, 1);
		if (!is_int(open_forged(&f, &img), 0, "frame with %s: the tables are right",
			    names[i])) {
			printf("# %s\n", err.text);
			continue;
		}
		is_int(image_read_frame(img, 0, page, &err), -EBADMSG, "… the frame is refused");
		has_str(err.text, parts[i], "… and it says why");
	}
}

/* ---- threads ---- */

static struct image *shared;
static const uint8_t *shared_raw;
static _Atomic int shared_wrong;

static void *reader_main(void *arg)
{
	uint32_t state = (uint32_t)(uintptr_t)arg;
	uint8_t *buf = malloc(image_frame_bytes(shared));
	struct err own;

	for (int i = 0; i < 400; i++) {
		uint64_t start, bytes, at = lcg(&state) % image_raw_bytes(shared);

		image_frame_at(shared, at, &start, &bytes);
		if (bytes > image_frame_bytes(shared))
			continue;
		if (image_read_frame(shared, start, buf, &own) < 0 ||
			memcmp(buf, shared_raw + start, bytes) != 0)
			shared_wrong++;
	}
	free(buf);
	return NULL;
}

static void test_threads(void)
{
	cleanup_fd int raw = machine(), out = scratch();
	struct image_stats stats;
	pthread_t threads[6];
	uint8_t *all = malloc(24 * MIB);

	is_int(image_write(raw, 24 * MIB, NULL, out, NULL, &stats, &err), 0, "an image to share");
	is_int(image_open(out, &shared, &err), 0, "open it");
	if (file_pread_full(raw, all, 24 * MIB, 0) < 0)
		abort();
	shared_raw = all;
	for (uintptr_t i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, reader_main, (void *)(i + 1));
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	is_int(shared_wrong, 0, "six threads read one image rightly");
	is_int(image_check_all(shared,
		       "sha256:0000000000000000000000000000000000000000000000000000000000000000",
		       NULL, &err),
		-EBADMSG, "a digest that it has not");
	has_str(err.text, stats.raw_digest, "… says which it has");
	image_free(shared);
	free(all);
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	test_check_sum();
	test_shapes();
	test_options();
	test_same_bytes();
	test_tebibyte();
	test_beyond_4gib();
	test_refused();
	test_damage();
	test_forged_tables();
	test_forged_frames();
	test_threads();
	rmdir(dir);
	return tap_done();
}
