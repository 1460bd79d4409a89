/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as an archive: measured, then unpacked into a small image that is finished if it went
 * well. Whatever comes of it, both ways agree on what is refused before an image is looked at. So
 * that inputs get past tar's checksums, each block that has "ustar" in its place is given the
 * right one first.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bake/ext4/ext4.h"
#include "bake/source/unpack.h"
#include "common/file.h"
#include "common/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void checksums_fix(uint8_t *p, size_t size)
{
	for (; size >= 512; p += 512, size -= 512) {
		unsigned sum = 0;
		char text[9];

		if (memcmp(p + 257, "ustar", 5))
			continue;
		memset(p + 148, ' ', 8);
		for (size_t i = 0; i < 512; i++)
			sum += p[i];
		snprintf(text, sizeof(text), "%06o", sum);
		memcpy(p + 148, text, 7);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ext4_options opt = {.bytes = 4 * MIB, .inodes = 256, .time = 1, .uuid = {1}};
	const struct unpack_options plain = {.clamp_mtime_s = INT64_MAX};
	cleanup_fd int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
	struct unpack_stats measured, stats;
	struct err err = {""};
	struct ext4 *fs;
	uint8_t *copy = malloc(size + 1);
	int seen, r;

	if (!copy || in < 0 || out < 0)
		abort();
	memcpy(copy, data, size);
	checksums_fix(copy, size);
	if (file_write_full(in, copy, size) < 0)
		abort();
	free(copy);
	seen = unpack_measure(in, "in", &plain, &measured, &err);
	if (seen < 0 && !err.text[0])
		abort();
	if (ext4_create(out, &opt, &fs, &err) < 0)
		abort();
	r = unpack_archive(in, "in", fs, &plain, NULL, &stats, &err);
	if (r < 0) {
		if (!err.text[0])
			abort();
		ext4_abort(fs);
		return 0;
	}
	/* what was unpacked was measured, unless looking is stricter in passing over data */
	if (seen == 0 && (measured.entries != stats.entries || measured.bytes != stats.bytes))
		abort();
	ext4_finish(fs, NULL, &err);
	return 0;
}
