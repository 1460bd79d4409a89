/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding gzip by zlib. While decoded bytes still wait to be taken, the last byte of the input
 * piece counts as not consumed. So the caller feeds that byte again, and the end of the body means
 * that everything was taken.
 */
#include "pool/envd/gunzip.h"

#include <stdlib.h>
#include <zlib.h>

#include "common/limits.h"

struct gunzip {
	z_stream z;
	unsigned char out[64 * KIB];
	size_t at, end; /* of out[]: what waits */
	bool ended; /* a member has, and no other has begun */
	bool withheld; /* the next byte that is fed was decoded already */
};

struct gunzip *gunzip_new(void)
{
	struct gunzip *g = calloc(1, sizeof(*g));

	/* 16: gzip's framing alone */
	if (!g || inflateInit2(&g->z, 16 + MAX_WBITS) != Z_OK)
		abort();
	return g;
}

void gunzip_free(struct gunzip *g)
{
	if (!g)
		return;
	inflateEnd(&g->z);
	free(g);
}

bool gunzip_whole(const struct gunzip *g)
{
	return g->ended && g->at == g->end;
}

/* One step: false where it has failed. */
static bool step(struct gunzip *g)
{
	int r;

	if (g->ended && inflateReset(&g->z) != Z_OK)
		return false;
	g->ended = false;
	g->z.next_out = g->out;
	g->z.avail_out = sizeof(g->out);
	r = inflate(&g->z, Z_NO_FLUSH);
	g->ended = r == Z_STREAM_END;
	g->at = 0;
	g->end = sizeof(g->out) - g->z.avail_out;
	return r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR;
}

size_t gunzip_feed(struct gunzip *g, const char *bytes, size_t len,
	size_t (*take)(void *user, const void *bytes, size_t len), void *user, const char **ret_why)
{
	bool full = false;
	size_t done;

	g->z.next_in = (unsigned char *)bytes + g->withheld;
	g->z.avail_in = (uInt)(len - g->withheld);
	g->withheld = false;
	for (;;) {
		if (g->at < g->end) {
			g->at += take(user, g->out + g->at, g->end - g->at);
			if (g->at < g->end)
				break;
		}
		/* a full buffer may have more behind it, without more input */
		if (!g->z.avail_in && !full)
			break;
		if (g->ended && !g->z.avail_in)
			break;
		if (!step(g)) {
			*ret_why = "is no gzip";
			break;
		}
		full = g->z.avail_out == 0;
	}
	done = len - g->z.avail_in;
	if (g->at < g->end && done == len) {
		g->withheld = true;
		done--;
	}
	return done;
}
