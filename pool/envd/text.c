/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on the wire: what waits to be sent, base 64, the frames of Connect's streams, times. */
#include "pool/envd/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base64.h"

/* ---- buffers ------------------------------------------------------------------------------ */

void envd_buf_append(struct envd_buf *b, const void *bytes, size_t len)
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

void envd_buf_consume(struct envd_buf *b, size_t len)
{
	b->head += len;
	b->len -= len;
	if (!b->len)
		envd_buf_free(b);
}

void envd_buf_free(struct envd_buf *b)
{
	free(b->bytes);
	*b = (struct envd_buf){0};
}

/* ---- base64 ------------------------------------------------------------------------------- */

bool envd_base64_decode(const char *text, size_t len, uint8_t **ret, size_t *ret_len)
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

/* ---- envelopes, times --------------------------------------------------------------------- */

void envd_envelope_head(uint8_t ret[ENVD_ENVELOPE_HEAD], unsigned flags, uint32_t len)
{
	ret[0] = (uint8_t)flags;
	for (int i = 0; i < 4; i++)
		ret[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

const char *envd_envelope_single(const char *body, size_t len, const char **ret, size_t *ret_len)
{
	const uint8_t *p = (const uint8_t *)body;
	uint32_t n;

	if (len < ENVD_ENVELOPE_HEAD)
		return "the body is shorter than an envelope's five bytes";
	n = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	if (p[0] & ENVD_ENVELOPE_COMPRESSED)
		return "the message is compressed; send it with Connect-Content-Encoding: identity";
	if (p[0])
		return "the envelope's flags are not known";
	if (n > len - ENVD_ENVELOPE_HEAD)
		return "the envelope is longer than the body";
	if (n < len - ENVD_ENVELOPE_HEAD)
		return "there is more than one message; this method takes one";
	*ret = body + ENVD_ENVELOPE_HEAD;
	*ret_len = n;
	return NULL;
}

void envd_time(int64_t ns, char ret[ENVD_TIME_SIZE])
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
		n = strftime(ret, ENVD_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret + n, ENVD_TIME_SIZE - n, ".%09lldZ", (long long)part);
}
