/* SPDX-License-Identifier: Apache-2.0 */
/* Where a damaged image is damaged: every byte of one, flipped, is told of as lying where it lies. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "store/image.h"
#include "tests/unit/tap.h"

#define RAW (1 * MIB)
#define FRAME (16 * KIB)

static int make(uint64_t *ret_bytes)
{
	const struct image_options opt = {.frame_bytes = FRAME, .threads = 1};
	int raw = memfd_create("raw", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
	cleanup_free uint8_t *data = malloc(4 * FRAME);
	struct image_stats stats;
	struct err err = {0};

	if (raw < 0 || out < 0 || !data || ftruncate(raw, RAW))
		abort();
	for (size_t i = 0; i < 4 * FRAME; i++)
		data[i] = (uint8_t)(i * 2654435761U >> 13);
	if (file_pwrite_full(raw, data, 4 * FRAME, 4 * FRAME) ||
		image_write(raw, RAW, &opt, out, NULL, &stats, &err))
		ok(0, "an image: %s", err.text);
	*ret_bytes = stats.stored_bytes;
	close(raw);
	return out;
}

static void flip(int fd, uint64_t at)
{
	uint8_t c;

	if (file_pread_full(fd, &c, 1, (off_t)at))
		abort();
	c ^= 0x10;
	if (file_pwrite_full(fd, &c, 1, (off_t)at))
		abort();
}

/* One byte at @at: does what is told of it fit? */
static bool told(int fd, uint64_t at, unsigned *frames, unsigned *other)
{
	cleanup_free char *text = NULL;
	unsigned long long from, to, raw_from, raw_to;
	bool fits;

	flip(fd, at);
	text = image_damage(fd);
	flip(fd, at);
	if (sscanf(text, "bytes %llu to %llu of it (%llu to %llu of what it holds) are wrong: 1 of",
		    &from, &to, &raw_from, &raw_to) == 4) {
		++*frames;
		fits = from <= at && at <= to && raw_from % FRAME == 0 &&
			raw_to - raw_from == FRAME - 1 && raw_from >= 4 * FRAME &&
			raw_to < 8 * FRAME;
	} else {
		++*other;
		fits = strstr(text, "all data in it is good") || strstr(text, "its tables");
	}
	if (!fits)
		printf("# byte %llu: %s\n", (unsigned long long)at, text);
	return fits;
}

int main(void)
{
	uint64_t bytes = 0;
	cleanup_fd int fd = make(&bytes);
	unsigned frames = 0, other = 0, wrong = 0;
	cleanup_free char *good = image_damage(fd), *two = NULL;

	has_str(good, "all data in it is good", "an image without damage has none");
	for (uint64_t at = 0; at<bytes; at += at> bytes - 600 ? 1 : 61)
		wrong += !told(fd, at, &frames, &other);
	is_int(wrong, 0, "a flipped byte is told of where it is");
	ok(frames > 100, "in frames (%u)", frames);
	ok(other > 100, "and in tables (%u)", other);
	flip(fd, bytes / 4);
	flip(fd, bytes * 3 / 4);
	two = image_damage(fd);
	has_str(two, ", bytes ", "two places are both told of");
	return tap_done();
}
