/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_FETCH_FETCH_H
#define PARBAKE_BAKE_FETCH_FETCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/progress.h"
#include "bake/fetch/limits.h"

/*
 * Downloads (libcurl): several at once, resumed where they broke, cached by digest below
 * PATHS_CACHE/downloads. The digest decides; a file is in the cache under its digest or not at
 * all. http, https and (for tests and mirrors on disk) file URLs; redirects within those, never
 * from https to http. Proxies and CA bundle from the usual environment variables.
 */
struct fetch_item {
	const char *url;
	const char *sha256; /* 64 hex digits: required */
	uint64_t max_bytes; /* 0: LIMIT_ARCHIVE_BYTES */
	unsigned stall_s; /* without a byte, then a try is over; 0: LIMIT_DOWNLOAD_STALL_S */
	char *ret_path; /* where it lies in the cache; caller frees; NULL on failure */
};

/*
 * Fetch all; the first failure cancels the rest (parts stay for a resume). Errors: -EBADMSG
 * "differs: …" or "truncated: …", -ENOENT (404), -EFBIG more than max_bytes, -EACCES refused by
 * the server, -EINVAL an item that cannot be right, -EIO with curl's words. Already cached:
 * nothing is sent. Several processes may fetch the same item: one does, the others wait for it.
 * The caller has opened @progress's stage (in bytes).
 */
int fetch_all(struct fetch_item *items, size_t n, struct progress *progress, struct err *err);
/* @url without user, password and query, which may be secrets. Caller frees. */
char *fetch_url_shown(const char *url);

#endif
