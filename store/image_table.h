/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_IMAGE_TABLE_H
#define PARBAKE_STORE_IMAGE_TABLE_H

/* An open image from inside: for image_table.c, image_read.c and image_damage.c alone. */
#include <pthread.h>
#include <sys/queue.h>

#include "store/image_format.h"

struct image_reader; /* a decompression context and its buffer */

struct image {
	int fd;
	uint64_t raw_bytes, file_bytes;
	uint64_t n_frames; /* the page map's not counted */
	uint64_t *raw_at; /* n_frames + 1: where each begins in the raw image */
	uint64_t *stored_at; /* n_frames + 1: … in the file */
	uint32_t *check;
	uint8_t *map; /* bit p: page p holds data */
	uint64_t n_pages;
	uint32_t frame_bytes; /* the largest with data */
	pthread_mutex_t lock; /* guards idle */
	SLIST_HEAD(, image_reader) idle;
};

/* Read and check seek table and page map of @img->fd. -EBADMSG says what is wrong. */
int image_table_read(struct image *img, struct err *err);
/* Does any page of frame @i hold data? */
bool image_table_has_data(const struct image *img, uint64_t i);
/* The frame that holds @offset (< raw_bytes). */
uint64_t image_table_find(const struct image *img, uint64_t offset);

#endif
