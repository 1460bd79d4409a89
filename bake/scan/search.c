/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most of the text is never looked at. Of strings that have at least M bytes, whichever occurs in the
 * text covers one of the positions 0, S, 2 S, … with a window of W bytes of its first M, where S is
 * M - W + 1. So only every S-th window of the text is hashed and looked up in a bit map; a bit that is
 * set leads to the windows of that hash, and they to strings, which are compared.
 *
 * One short string would make the steps short for all of them, so strings are searched in two
 * classes, each with M and W of its own.
 */
#include "bake/scan/search.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "common/limits.h"

#define LONG 24 /* bytes from which on a string is in the class of long ones */
#define WINDOW_SHORT 4
#define WINDOW_LONG 8
#define BITS_MIN 15
#define BITS_MAX 25
#define CHUNK (1 * MIB)
#define NONE UINT32_MAX

/* One window of a string. */
struct window {
	uint32_t string, offset, next; /* the next one of the same hash, or NONE */
};

struct class
{
	size_t window; /* W */
	size_t shortest; /* M; 0: the class has no strings */
	size_t step; /* S */
	unsigned bits; /* of a hash */
	uint64_t *map; /* 2^bits bits */
	uint32_t *first; /* 2^bits heads of lists of windows */
	struct window *windows;
	size_t n;
};

struct search {
	const struct search_string *strings;
	size_t longest;
	struct class classes[2];
};

/* Multiplicative hashing: the upper bits of the product depend on all bytes. */
static inline uint32_t hash_window(const struct class *c, const uint8_t *at)
{
	uint64_t v = 0;

	if (c->window == WINDOW_LONG) {
		memcpy(&v, at, WINDOW_LONG);
	} else {
		uint32_t u;

		memcpy(&u, at, WINDOW_SHORT);
		v = u;
	}
	return (uint32_t)((v * 0x9e3779b97f4a7c15ULL) >> (64 - c->bits));
}

static void *array(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		abort();
	return p;
}

static bool in_class(const struct search_string *s, bool of_long)
{
	return (s->len >= LONG) == of_long;
}

static void fill_class(struct class *c, const struct search_string *strings, size_t n, bool of_long)
{
	size_t members = 0, at = 0;

	for (size_t i = 0; i < n; i++) {
		if (!in_class(&strings[i], of_long))
			continue;
		members++;
		if (!c->shortest || strings[i].len < c->shortest)
			c->shortest = strings[i].len;
	}
	if (!members)
		return;
	c->window = of_long ? WINDOW_LONG : WINDOW_SHORT;
	c->step = c->shortest - c->window + 1;
	c->n = members * c->step;
	c->bits = BITS_MIN;
	while (c->bits < BITS_MAX && ((size_t)1 << c->bits) < 16 * c->n)
		c->bits++;
	c->map = array(((size_t)1 << c->bits) / 64, sizeof(*c->map));
	c->first = array((size_t)1 << c->bits, sizeof(*c->first));
	memset(c->first, 0xff, sizeof(*c->first) << c->bits);
	c->windows = array(c->n, sizeof(*c->windows));
	for (size_t i = 0; i < n; i++) {
		if (!in_class(&strings[i], of_long))
			continue;
		for (size_t o = 0; o < c->step; o++) {
			uint32_t h = hash_window(c, (const uint8_t *)strings[i].bytes + o);

			c->windows[at] = (struct window){(uint32_t)i, (uint32_t)o, c->first[h]};
			c->first[h] = (uint32_t)at++;
			c->map[h / 64] |= 1ULL << h % 64;
		}
	}
}

struct search *search_new(const struct search_string *strings, size_t n)
{
	struct search *s = array(1, sizeof(*s));

	s->strings = strings;
	for (size_t i = 0; i < n; i++) {
		assert(strings[i].len >= SEARCH_MIN && strings[i].len <= SEARCH_MAX);
		if (strings[i].len > s->longest)
			s->longest = strings[i].len;
	}
	fill_class(&s->classes[0], strings, n, false);
	fill_class(&s->classes[1], strings, n, true);
	return s;
}

void search_free(struct search *s)
{
	for (size_t i = 0; s && i < 2; i++) {
		free(s->classes[i].map);
		free(s->classes[i].first);
		free(s->classes[i].windows);
	}
	free(s);
}

/* ---- a piece of text --------------------------------------------------------------------- */

/*
 * @len bytes of text, the first of them at @offset of the file. Of those that begin before @old, what
 * ends at or before @old was found in the piece before.
 */
struct piece {
	const uint8_t *text;
	size_t len, old;
	uint64_t offset;
	search_hit_fn *hit;
	void *user;
};

static int compare(const struct search *s, const struct class *c, const struct piece *p, size_t at,
	uint32_t hash)
{
	for (uint32_t w = c->first[hash]; w != NONE; w = c->windows[w].next) {
		const struct window *window = &c->windows[w];
		const struct search_string *string = &s->strings[window->string];
		size_t start = at - window->offset;
		int r;

		if (at < window->offset || start + string->len > p->len ||
			start + string->len <= p->old ||
			memcmp(p->text + start, string->bytes, string->len))
			continue;
		r = p->hit(p->user, window->string, p->offset + start);
		if (r)
			return r;
	}
	return 0;
}

static int search_piece(const struct search *s, const struct class *c, const struct piece *p)
{
	if (!c->shortest)
		return 0;
	for (size_t at = 0; at + c->window <= p->len; at += c->step) {
		uint32_t h = hash_window(c, p->text + at);
		int r;

		if (!(c->map[h / 64] >> h % 64 & 1))
			continue;
		r = compare(s, c, p, at, h);
		if (r)
			return r;
	}
	return 0;
}

/* ---- a file ------------------------------------------------------------------------------ */

/* Read up to @len bytes at @offset; fewer at the end of the file. */
static ssize_t read_some(int fd, uint8_t *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* The next byte at or behind @at that is in no hole, and where the hole behind it begins. */
static bool next_data(int fd, uint64_t at, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_end)
{
	off_t start = lseek(fd, (off_t)at, SEEK_DATA), end;

	if (start < 0 && errno == ENXIO)
		return false;
	/* a file without holes, or of a kind that cannot tell */
	if (start < 0)
		start = (off_t)at;
	if ((uint64_t)start >= bytes)
		return false;
	end = lseek(fd, start, SEEK_HOLE);
	*ret_start = (uint64_t)start;
	*ret_end = end < 0 || (uint64_t)end > bytes ? bytes : (uint64_t)end;
	return true;
}

int search_fd(const struct search *s, int fd, uint64_t bytes, const char *what, search_hit_fn *hit,
	void *user, uint64_t *ret_read, struct err *err)
{
	size_t overlap = s->longest ? s->longest - 1 : 0, kept = 0;
	cleanup_free uint8_t *buf = malloc(overlap + CHUNK);
	uint64_t at = 0, end = 0, looked = 0;
	int r = 0;

	if (!buf)
		abort();
	while (s->longest && !r && (at < end || next_data(fd, at, bytes, &at, &end))) {
		size_t want = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
		ssize_t n = read_some(fd, buf + kept, want, at);
		struct piece p = {.text = buf,
			.len = kept + (size_t)(n > 0 ? n : 0),
			.old = kept,
			.offset = at - kept,
			.hit = hit,
			.user = user};

		if (n < 0)
			return err_sys(err, (int)-n, "search %s", what);
		if (!n)
			break;
		for (size_t i = 0; i < 2 && !r; i++)
			r = search_piece(s, &s->classes[i], &p);
		looked += (uint64_t)n;
		at += (uint64_t)n;
		/* a string may lie across the end of this piece, but not across a hole */
		kept = at == end ? 0 : p.len < overlap ? p.len : overlap;
		memmove(buf, buf + p.len - kept, kept);
	}
	if (ret_read)
		*ret_read = looked;
	return r;
}
