/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_ENTRY_H
#define PARBAKE_POOL_ENVD_ENTRY_H

#include "common/json.h"
#include "vmm/guest/guest.h"

/* What is told of a file, directory or link, as E2B's EntryInfo. Pure functions. */

/* The metadata @bytes, "K=V" with a NUL behind each, as an object: a new reference, NULL where there is none. */
json_t *envd_metadata(const char *bytes, size_t len);
/* The entry at @path, which is @st and, where it is a link, leads to @link ("": nowhere). @metadata (NULL: none) is
 * taken. A new reference; aborts without memory. */
json_t *envd_entry(
	const char *path, const struct proto_stat *st, const char *link, json_t *metadata);

#endif
