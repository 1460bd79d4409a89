/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes and text on the wire. What a guest wrote may be anything and may be cut anywhere; what goes
 * into JSON must be UTF-8, and a character must not fall apart because a frame ended in its middle.
 */
#include "pool/wire_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base64.h"

/* ---- buffers ------------------------------------------------------------------------------ */

void wire_buf_append(struct wire_buf *b, const void *bytes, size_t len)
{
	if (!len)
		return;
	if (b->head && b->head + b->len + len > b->cap) {
		memmove(b->bytes, b->bytes + b->head, b->len);
		b->head = 0;
	}
	if (b->len + len > b->cap) {
		size_t cap = b->cap ? b->cap : 4096;

		while (cap < b->len + len)
			cap *= 2;
		b->bytes = realloc(b->bytes, cap);
		if (!b->bytes)
			abort();
		b->cap = cap;
	}
	memcpy(b->bytes + b->head + b->len, bytes, len);
	b->len += len;
}

void wire_buf_consume(struct wire_buf *b, size_t len)
{
	b->head += len;
	b->len -= len;
	if (!b->len)
		wire_buf_free(b);
}

void wire_buf_free(struct wire_buf *b)
{
	free(b->bytes);
	*b = (struct wire_buf){0};
}

/* ---- base64 ------------------------------------------------------------------------------- */

bool wire_base64_decode(const char *text, size_t len, uint8_t **ret, size_t *ret_len)
{
	uint8_t *out = malloc(len / 4 * 3 + 2);
	ssize_t n;

	if (!out)
		abort();
	n = base64_decode(text, len, out);
	if (n < 0) {
		free(out);
		return false;
	}
	*ret = out;
	*ret_len = (size_t)n;
	return true;
}

/* ---- UTF-8 (RFC 3629) --------------------------------------------------------------------- */

/* How long the character is that begins with @c; 0: none does. */
static unsigned char_len(uint8_t c)
{
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if ((c & 0xf0) == 0xe0)
		return 3;
	return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* May @c be the second byte behind @first? */
static bool second_good(uint8_t first, uint8_t c)
{
	if ((c & 0xc0) != 0x80)
		return false;
	switch (first) {
	case 0xe0:
		return c >= 0xa0;
	case 0xed:
		return c < 0xa0; /* no surrogates */
	case 0xf0:
		return c >= 0x90;
	case 0xf4:
		return c < 0x90;
	default:
		return true;
	}
}

/* How many of the @len bytes at @p belong to one character: whole where *@ret_whole. At least 1;
 * a part that nothing can complete counts as far as it was good. */
static unsigned char_take(const uint8_t *p, size_t len, bool *ret_whole)
{
	unsigned want = char_len(p[0]), n = 1;

	*ret_whole = false;
	if (!want)
		return 1;
	while (n < want && n < len && (n == 1 ? second_good(p[0], p[1]) : (p[n] & 0xc0) == 0x80))
		n++;
	*ret_whole = n == want;
	return n;
}

size_t wire_utf8_whole(const uint8_t *bytes, size_t len)
{
	/* what begins a character that is not whole lies among the last three bytes */
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		const uint8_t *p = bytes + len - back;
		bool whole;

		if ((*p & 0xc0) == 0x80)
			continue;
		if (char_len(*p) > back && char_take(p, back, &whole) == back)
			return len - back;
		return len;
	}
	return len;
}

json_t *wire_utf8_json(const uint8_t *bytes, size_t len)
{
	struct wire_buf clean = {0};
	size_t from = 0, i = 0;
	json_t *value;

	while (i < len) {
		bool whole;
		unsigned n = char_take(bytes + i, len - i, &whole);

		if (!whole) {
			wire_buf_append(&clean, bytes + from, i - from);
			wire_buf_append(&clean, "\xef\xbf\xbd", 3);
			from = i + n;
		}
		i += n;
	}
	if (!from) {
		value = json_stringn_nocheck(len ? (const char *)bytes : "", len);
	} else {
		wire_buf_append(&clean, bytes + from, len - from);
		value = json_stringn_nocheck((const char *)clean.bytes + clean.head, clean.len);
	}
	wire_buf_free(&clean);
	if (!value)
		abort();
	return value;
}

/* ---- envelopes, times --------------------------------------------------------------------- */

void wire_envelope_head(uint8_t ret[WIRE_ENVELOPE_HEAD], unsigned flags, uint32_t len)
{
	ret[0] = (uint8_t)flags;
	for (int i = 0; i < 4; i++)
		ret[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

const char *wire_envelope_single(const char *body, size_t len, const char **ret, size_t *ret_len)
{
	const uint8_t *p = (const uint8_t *)body;
	uint32_t n;

	if (len < WIRE_ENVELOPE_HEAD)
		return "the body is shorter than an envelope's five bytes";
	n = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	if (p[0] & WIRE_ENVELOPE_COMPRESSED)
		return "the message is compressed; send it with Connect-Content-Encoding: identity";
	if (p[0])
		return "the envelope's flags are not known";
	if (n > len - WIRE_ENVELOPE_HEAD)
		return "the envelope is longer than the body";
	if (n < len - WIRE_ENVELOPE_HEAD)
		return "there is more than one message; this method takes one";
	*ret = body + WIRE_ENVELOPE_HEAD;
	*ret_len = n;
	return NULL;
}

void wire_time(int64_t ns, char ret[WIRE_TIME_SIZE])
{
	int64_t s = ns / 1000000000, part = ns % 1000000000;
	time_t seconds;
	struct tm tm;
	size_t n = 0;

	if (part < 0) {
		s--;
		part += 1000000000;
	}
	seconds = (time_t)s;
	if (gmtime_r(&seconds, &tm))
		n = strftime(ret, WIRE_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret + n, WIRE_TIME_SIZE - n, ".%09lldZ", (long long)part);
}
