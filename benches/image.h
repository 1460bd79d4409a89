/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_IMAGE_H
#define PARBAKE_BENCHES_IMAGE_H

#include <stdint.h>

#include "common/err.h"

/* What a frame size and a zstd level cost a stored image. Any thread; functions return 0, or -errno. */
struct image_cost {
	uint64_t raw_bytes, data_bytes, stored_bytes;
	int64_t write_ns; /* image_write() with both digests */
	int64_t write_fast_ns; /* without the raw one */
	int64_t expand_ns; /* all of it into a sparse file */
	int64_t read_p50_ns, read_p99_ns,
		read_max_ns; /* one frame with data: what a page fault waits for */
};

/*
 * Measure the raw image @raw of @raw_bytes with frames of @frame_bytes at @level, written by
 * @threads (0: all cores), @reads (≥ 1) frames read at random by one. Scratch files go where
 * $TMPDIR is, else to /tmp.
 */
int image_cost_measure(int raw, uint64_t raw_bytes, uint32_t frame_bytes, int level,
	unsigned threads, unsigned reads, struct image_cost *ret, struct err *err);
/*
 * Make a raw image like a guest's memory in @fd: @bytes, sparse, in which runs of 1 to 64 pages
 * of files below @from lie scattered, @data_bytes of them, as the kernel's page cache and heap
 * do. The same files, the same image.
 */
int image_make_raw(int fd, uint64_t bytes, uint64_t data_bytes, const char *from, struct err *err);
/* A scratch file without a name. */
int image_scratch(struct err *err);

#endif
