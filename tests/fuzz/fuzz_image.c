/* SPDX-License-Identifier: Apache-2.0 */
/* An image file of any bytes: opened, asked everything, every frame read. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/file.h"
#include "store/limits.h"
#include "store/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_fd int fd = memfd_create("fuzz", MFD_CLOEXEC);
	cleanup_image struct image *img = NULL;
	cleanup_free uint8_t *buf = NULL;
	unsigned frames = 0;
	struct err err;

	if (fd < 0 || file_write_full(fd, data, size) < 0)
		return 0;
	if (image_open(fd, &img, &err) < 0)
		return 0;
	if (image_frame_bytes(img) > LIMIT_FRAME_BYTES)
		abort();
	buf = malloc(image_frame_bytes(img) + 1);
	for (uint64_t at = 0; at < image_raw_bytes(img) && frames++ < 4096;) {
		uint64_t start, bytes;
		bool has;

		image_frame_at(img, at, &start, &bytes);
		if (start != at || bytes == 0 || at + bytes > image_raw_bytes(img))
			abort();
		if (image_run_end(img, at, UINT64_MAX, &has) <= at)
			abort();
		if (bytes <= image_frame_bytes(img))
			(void)image_read_frame(img, at, buf, &err);
		at += bytes;
	}
	return 0;
}
