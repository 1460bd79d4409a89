/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a stored image by frame size and level: stored size, speed of writing and of
 * expanding, and the time to read one frame that holds data, with the page cache warm.
 */
#include "benches/image.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "benches/stats.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "store/image.h"

int image_scratch(struct err *err)
{
	const char *dir = getenv("TMPDIR");

	return file_scratch(dir && *dir ? dir : "/tmp", err);
}

/* One thread reads @reads frames with data at random: their times, sorted. */
static int read_some(
	struct image *img, unsigned reads, int64_t *times, size_t *ret_n, struct err *err)
{
	cleanup_free uint8_t *buf = malloc(image_frame_bytes(img) + 1);
	struct stats_random random = {.state = 1};
	uint64_t pages = image_raw_bytes(img) / IMAGE_PAGE;
	size_t n = 0;

	if (!buf)
		return err_set(err, ENOMEM, "no memory for a frame");
	for (size_t tries = 0; n < reads && tries < 1000UL * reads; tries++) {
		uint64_t at = stats_random_below(&random, pages) * IMAGE_PAGE, start, bytes;
		int64_t began;
		int r;

		if (!image_page_has_data(img, at))
			continue;
		image_frame_at(img, at, &start, &bytes);
		began = clock_now_ns();
		r = image_read_frame(img, start, buf, err);
		if (r < 0)
			return r;
		times[n++] = clock_now_ns() - began;
	}
	stats_sort(times, n);
	*ret_n = n;
	return 0;
}

static int measure_writing(int raw, uint64_t raw_bytes, struct image_options *opt, int out,
	int scratch, struct image_cost *ret, struct err *err)
{
	struct image_stats stats, ignored;
	int64_t began = clock_now_ns();
	int r = image_write(raw, raw_bytes, opt, out, NULL, &stats, err);

	if (r < 0)
		return r;
	ret->write_ns = clock_now_ns() - began;
	ret->raw_bytes = stats.raw_bytes;
	ret->data_bytes = stats.data_bytes;
	ret->stored_bytes = stats.stored_bytes;
	opt->no_raw_digest = true;
	began = clock_now_ns();
	r = image_write(raw, raw_bytes, opt, scratch, NULL, &ignored, err);
	ret->write_fast_ns = clock_now_ns() - began;
	return r;
}

int image_cost_measure(int raw, uint64_t raw_bytes, uint32_t frame_bytes, int level,
	unsigned threads, unsigned reads, struct image_cost *ret, struct err *err)
{
	struct image_options opt = {.frame_bytes = frame_bytes, .level = level, .threads = threads};
	cleanup_fd int out = image_scratch(err), scratch = image_scratch(err),
		       back = image_scratch(err);
	cleanup_free int64_t *times = calloc(reads, sizeof(*times));
	cleanup_image struct image *img = NULL;
	int64_t began;
	size_t n = 0;
	int r;

	if (out < 0 || scratch < 0 || back < 0)
		return -EIO; /* said by image_scratch() */
	if (!times)
		return err_set(err, ENOMEM, "no memory for %u times", reads);
	*ret = (struct image_cost){0};
	r = measure_writing(raw, raw_bytes, &opt, out, scratch, ret, err);
	if (r == 0)
		r = image_open(out, &img, err);
	if (r == 0)
		r = read_some(img, reads, times, &n, err);
	began = clock_now_ns();
	if (r == 0)
		r = image_expand(img, back, NULL, NULL, err);
	ret->expand_ns = clock_now_ns() - began;
	ret->read_p50_ns = stats_percentile_sorted(times, n, 50);
	ret->read_p99_ns = stats_percentile_sorted(times, n, 99);
	ret->read_max_ns = stats_percentile_sorted(times, n, 100);
	return r;
}

/* ---- a raw image to measure ---------------------------------------------------------------- */

#define RUN_PAGES 64

/*
 * nftw(3) passes its callback nothing of ours. Small: thread-local memory is part of every
 * thread's stack.
 */
static __thread struct scatter {
	int fd;
	char *run; /* RUN_PAGES of room */
	uint64_t bytes, left;
	struct stats_random random;
	int error;
} scatter;

static int scatter_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	cleanup_fd int fd = -1;

	(void)ftw;
	if (kind != FTW_F || !S_ISREG(st->st_mode) || stats_random_below(&scatter.random, 8))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && scatter.left) {
		size_t len = (1 + stats_random_below(&scatter.random, RUN_PAGES)) * IMAGE_PAGE;
		uint64_t pages = scatter.bytes / IMAGE_PAGE - RUN_PAGES;
		uint64_t at = stats_random_below(&scatter.random, pages) * IMAGE_PAGE;
		ssize_t n = read(fd, scatter.run, len < scatter.left ? len : scatter.left);

		if (n <= 0)
			break;
		scatter.error = file_pwrite_full(scatter.fd, scatter.run, (size_t)n, (off_t)at);
		if (scatter.error < 0)
			return 1;
		scatter.left -= (uint64_t)n;
	}
	return scatter.left == 0;
}

int image_make_raw(int fd, uint64_t bytes, uint64_t data_bytes, const char *from, struct err *err)
{
	cleanup_free char *run = malloc((size_t)RUN_PAGES * IMAGE_PAGE);

	if (!run)
		return err_set(err, ENOMEM, "no memory to make a raw image");
	if (bytes < (RUN_PAGES + 1) * IMAGE_PAGE || data_bytes > bytes)
		return err_set(err, EINVAL, "an image of %llu bytes with %llu of data",
			(unsigned long long)bytes, (unsigned long long)data_bytes);
	if (ftruncate(fd, (off_t)bytes) < 0)
		return err_sys(err, errno, "make a raw image");
	scatter = (struct scatter){
		.fd = fd, .run = run, .bytes = bytes, .left = data_bytes, .random = {.state = 42}};
	nftw(from, scatter_file, 16, FTW_PHYS);
	if (scatter.error < 0)
		return err_sys(err, -scatter.error, "make a raw image");
	if (scatter.left)
		return err_set(err, ENOENT, "the files below %s are not enough for %llu bytes",
			from, (unsigned long long)data_bytes);
	return 0;
}
