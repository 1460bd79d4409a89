/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies in chunks (RFC 9112, 7.1): their content is taken out, and chunk extensions and trailers
 * are dropped.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/relay/relay_private.h"

#define LINE_MAX_BYTES 4096u /* of a chunk's size with its extensions, and of a trailer */

static int digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* One byte that is not content. */
static bool step(struct relay_chunks *c, char byte)
{
	if (++c->line > LINE_MAX_BYTES)
		return false;
	switch (c->state) {
	case CHUNK_SIZE:
		if (isxdigit((unsigned char)byte)) {
			c->left = 16 * c->left + (uint64_t)digit(byte);
			return ++c->digits <= 15;
		}
		if (!c->digits || !strchr("; \t\r\n", byte))
			return false;
		c->state = CHUNK_REST_OF_LINE;
		c->line--;
		return step(c, byte);
	case CHUNK_REST_OF_LINE:
		if (byte == '\n') {
			c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
			c->digits = c->line = 0;
		}
		return true;
	case CHUNK_END:
		if (byte == '\n') {
			c->state = CHUNK_SIZE;
			c->line = 0;
		}
		return byte == '\n' || byte == '\r';
	case CHUNK_TRAILER: /* digits: of the bytes of this line */
		if (byte == '\n') {
			if (!c->digits)
				c->state = CHUNKS_OVER;
			c->digits = c->line = 0;
		} else {
			c->digits += byte != '\r';
		}
		return true;
	default:
		return false;
	}
}

ssize_t relay_chunks_read(struct relay_chunks *c, const char *text, size_t len,
	const char **ret_data, size_t *ret_len)
{
	size_t i = 0, n;

	*ret_len = 0;
	for (; i < len && c->state != CHUNK_DATA && c->state != CHUNKS_OVER; i++) {
		if (!step(c, text[i]))
			return -EPROTO;
	}
	if (c->state != CHUNK_DATA)
		return (ssize_t)i;
	n = len - i < c->left ? len - i : (size_t)c->left;
	*ret_data = text + i;
	*ret_len = n;
	c->left -= n;
	if (!c->left)
		c->state = CHUNK_END;
	return (ssize_t)(i + n);
}
