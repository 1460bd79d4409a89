/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SCAN_SEARCH_H
#define PARBAKE_BAKE_SCAN_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"

/*
 * Searching files for many byte strings at once, made for images of memory and disks: gigabytes of text,
 * thousands of strings, hardly a hit. A search may be used by several threads at once.
 */
#define SEARCH_MIN 8 /* bytes of a string, at least */
#define SEARCH_MAX 4096 /* and at most */

struct search_string {
	const void *bytes; /* borrowed by search_new() until search_free() */
	size_t len; /* SEARCH_MIN … SEARCH_MAX */
};

struct search;

/* @n may be 0: nothing is found. Aborts without memory. */
struct search *search_new(const struct search_string *strings, size_t n);
void search_free(struct search *s);
DEFINE_CLEANUP(struct search *, search_free)
#define cleanup_search cleanup_with(search_free_p_)

/*
 * A hit: string number @string (of those given to search_new()) begins at @offset of the file; @bytes
 * are the string's own. Hits come in no order. A return value other than 0 ends the search.
 */
typedef int search_hit_fn(void *user, size_t string, uint64_t offset);

/*
 * Search the first @bytes of @fd, whose holes are passed over, and call @hit for each place where a
 * string begins. Returns 0 at the end, what @hit returned, or the -errno of a read; *@ret_read (may
 * be NULL) is how many bytes were looked at. @what names the file in errors. Moves @fd's offset.
 */
int search_fd(const struct search *s, int fd, uint64_t bytes, const char *what, search_hit_fn *hit,
	void *user, uint64_t *ret_read, struct err *err);

#endif
