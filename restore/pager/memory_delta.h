/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_MEMORY_DELTA_H
#define PARBAKE_RESTORE_PAGER_MEMORY_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "store/image.h"
#include "store/snapshot.h"

/*
 * Memory deltas: what one machine's memory differs in from its template's. The pages are in rising
 * order, one behind the other in an image. A hole of that image is pages of zeros, whatever the
 * template has there. A checkpoint's file "memory" is one (docs/format.md). memory_delta_find() may
 * be called from any thread.
 */
struct memory_delta_piece {
	uint64_t start, end; /* of the memory */
	uint64_t at; /* of the image */
};

struct memory_delta {
	struct image *img; /* NULL: there are no pages */
	struct memory_delta_piece *pieces; /* rising, apart */
	size_t n;
	uint64_t bytes; /* of all pieces */
};

/*
 * Open a delta: the image @image_fd (dup'ed; -1 is allowed where there are no ranges) with @ranges,
 * which are checked against each other and @memory_bytes. -EBADMSG: they do not fit.
 */
int memory_delta_open(int image_fd, const struct snapshot_ranges *ranges, uint64_t memory_bytes,
	struct memory_delta **ret, struct err *err);
void memory_delta_free(struct memory_delta *d);
DEFINE_CLEANUP(struct memory_delta *, memory_delta_free)
#define cleanup_memory_delta cleanup_with(memory_delta_free_p_)

/* Where in the image is the page at @offset of the memory? False: it is the template's. */
bool memory_delta_find(const struct memory_delta *d, uint64_t offset, uint64_t *ret_at);
/*
 * Walk through the delta in rising order, frame by frame: @fn gets runs of whole pages, @bytes NULL
 * where they are zeros (then @len may be anything). What it returns, if not 0, ends the walk.
 * -EBADMSG: a frame is damaged.
 */
int memory_delta_walk(struct memory_delta *d,
	int (*fn)(void *user, uint64_t offset, uint64_t len, const uint8_t *bytes), void *user,
	struct err *err);
/* Write the delta's pages over @fd, a file that holds the template's memory. */
int memory_delta_apply(struct memory_delta *d, int fd, struct err *err);

#endif
