/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_IMAGE_H
#define PARBAKE_STORE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/progress.h"
#include "store/limits.h"

/*
 * Images at rest: a raw image (guest memory, a disk) in the zstd seekable format
 * (independent frames; a seek table in a skippable frame at the end; see
 * contrib/seekable_format in the zstd sources), so `zstd -d` yields the raw image. In front
 * of the seek table a skippable frame of our own holds a bitmap of the pages (4 KiB) that
 * are not zero, so that holes stay holes. docs/format.md is the specification.
 */
#define IMAGE_PAGE 4096u

/*
 * The frame size of an image that is only ever read whole, as disks are: larger frames take less
 * room (benches/NOTES.md).
 */
#define IMAGE_FRAME_WHOLE (1u << 20)

struct image_stats {
	uint64_t raw_bytes, data_bytes; /* of the whole image, and of its pages that are not zero */
	uint64_t stored_bytes;
	char raw_digest[DIGEST_TEXT_SIZE]; /* of the raw image */
	char digest[DIGEST_TEXT_SIZE]; /* of what was written */
};

struct image_options {
	uint32_t frame_bytes; /* raw, a power of two, 4 KiB … LIMIT_FRAME_BYTES; 0: default */
	int level; /* zstd's; 0: default */
	unsigned threads; /* 0: all cores */
	bool no_raw_digest; /* leave raw_digest empty (of a TiB of holes it takes minutes) */
};

/*
 * Compress @raw_bytes (≤ LIMIT_DISK_MAX) of @raw_fd (holes and zero pages are found and
 * skipped) to @out_fd from its present offset. The same input and options give the same bytes,
 * whatever the number of threads. @opt may be NULL: defaults. @progress: its open stage counts
 * raw bytes. Moves @raw_fd's offset; nobody may write to the raw image meanwhile.
 */
int image_write(int raw_fd, uint64_t raw_bytes, const struct image_options *opt, int out_fd,
	struct progress *progress, struct image_stats *ret, struct err *err);

struct image; /* an open image: reading is thread-safe */

/* Open and check the tables. @fd is dup'ed. Hostile content gives -EBADMSG with what is wrong. */
int image_open(int fd, struct image **ret, struct err *err);
void image_free(struct image *img);
DEFINE_CLEANUP(struct image *, image_free)
#define cleanup_image cleanup_with(image_free_p_)

uint64_t image_raw_bytes(const struct image *img);
/* Largest raw size of a frame that holds data. */
uint32_t image_frame_bytes(const struct image *img);
/* Does the page at @offset (multiple of IMAGE_PAGE) hold data (not a hole)? */
bool image_page_has_data(const struct image *img, uint64_t offset);
/*
 * The run of pages from @offset on that are all data or all holes: returns its end, and its kind in
 * *@ret_data. The search stops at @end (at the image's end, where @end is past it), so that walking
 * through one long run in many pieces does not cost the whole run each time.
 */
uint64_t image_run_end(const struct image *img, uint64_t offset, uint64_t end, bool *ret_data);
/* The frame that holds @offset: where it begins and its raw size. */
void image_frame_at(
	const struct image *img, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes);
/*
 * Decompress the frame beginning at @start wholly into @buf (its raw size) and check it (zstd's
 * content checksum and the table's). Each calling thread has a context of its own inside.
 * -EBADMSG: damaged.
 */
int image_read_frame(struct image *img, uint64_t start, void *buf, struct err *err);
/*
 * Expand all into @fd as a sparse file (several threads), digest checked against @raw_digest
 * unless NULL.
 */
int image_expand(struct image *img, int fd, const char *raw_digest, struct progress *progress,
	struct err *err);
/* Read all and check it, as image_expand() does, without writing anything. */
int image_check_all(
	struct image *img, const char *raw_digest, struct progress *progress, struct err *err);

/*
 * Words for a person on where the image @fd is damaged, whose digest is known to be wrong: which of its bytes, and
 * which of the raw image's, as far as checksums tell. It reads all of it. Caller frees.
 */
char *image_damage(int fd);

#endif
