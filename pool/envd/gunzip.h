/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_GUNZIP_H
#define PARBAKE_POOL_ENVD_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A gzip stream (RFC 1952, of one or more members) that comes in pieces, decoded for a taker that may take less than
 * there is. What waits is at most one buffer.
 */
struct gunzip;

/* Aborts without memory. */
struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *g); /* NULL: nothing */
/*
 * Decode @len (at least 1) bytes and give what they mean to @take, which returns how much of it it took. Returns how many of @bytes
 * are done with; fewer than @len: @take wants no more for now, the rest is to be fed again. *@ret_why: what is
 * wrong with the stream; left alone where nothing is.
 */
size_t gunzip_feed(struct gunzip *g, const char *bytes, size_t len,
	size_t (*take)(void *user, const void *bytes, size_t len), void *user,
	const char **ret_why);
/* Has its last member ended, and been taken to its end? */
bool gunzip_whole(const struct gunzip *g);

#endif
