/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_TREE_H
#define PARBAKE_PROVE_TREE_H

#include "bake/ext4/read.h"
#include "common/err.h"
#include "common/json.h"

/*
 * Compare the trees of two images. *@ret, the caller's reference:
 *
 *     {"added": [FILE…], "removed": [FILE…], "changed": [CHANGE…], "directories": [{"path", "a", "b"}…]}
 *
 * FILE is {"path", "type", "bytes"}; CHANGE {"path", "what": ["content", "mode", "owner", "xattrs", "type", "link"],
 * "a_bytes", "b_bytes"} and, for small texts, "lines": ["-…", "+…"]. Directories are those down to the third level in which
 * something differs, with the bytes of all files below them. Times are not compared.
 */
int tree_compare(struct ext4_image *a, struct ext4_image *b, json_t **ret, struct err *err);

/*
 * The lines that two texts do not have in common, in their order, as "-TEXT" (of @a) and "+TEXT" (of @b), at most
 * TREE_LINES of them. New reference; NULL: one of the texts is too long to be compared line by line.
 */
#define TREE_LINES 60
json_t *tree_lines(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
