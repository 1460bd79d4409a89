/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_GUNZIP_H
#define PARBAKE_POOL_ENVD_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Decoding gzip: a stream (RFC 1952, of one or more members) that comes in pieces is decoded for a
 * taker that may take less than there is. At most one buffer of decoded bytes waits. One thread at
 * a time.
 */
struct gunzip;

/* Aborts without memory. */
struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *g); /* NULL: nothing */
/*
 * Decode @len (at least 1) bytes and give the decoded bytes to @take, which returns how many of
 * them it took. Returns how many of @bytes were consumed. Fewer than @len: @take wants no more for
 * now, and the rest is to be fed again later. *@ret_why: what is wrong with the stream; left alone
 * where nothing is.
 */
size_t gunzip_feed(struct gunzip *g, const char *bytes, size_t len,
	size_t (*take)(void *user, const void *bytes, size_t len), void *user,
	const char **ret_why);
/* Has its last member ended, and been taken to its end? */
bool gunzip_whole(const struct gunzip *g);

#endif
