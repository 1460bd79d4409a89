/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of bytes. Consumed bytes leave a gap in front. The gap is closed when room is needed
 * behind, before the memory grows.
 */
#include "common/buffer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 256
#define EMPTY_KEEPS (256u << 10) /* an empty queue larger than this gives its memory back */

uint8_t *buffer_reserve(struct buffer *b, size_t n)
{
	if (!b->len)
		b->head = 0;
	if (b->head && b->cap - b->head - b->len < n) {
		memmove(b->bytes, b->bytes + b->head, b->len);
		b->head = 0;
	}
	if (b->cap - b->head - b->len < n) {
		size_t cap = b->cap ? b->cap : FIRST_SIZE;

		while (cap < b->len + n)
			cap *= 2;
		b->bytes = realloc(b->bytes, cap);
		if (!b->bytes)
			abort();
		b->cap = cap;
	}
	return b->bytes + b->head + b->len;
}

void buffer_append(struct buffer *b, const void *bytes, size_t n)
{
	if (!n)
		return;
	memcpy(buffer_reserve(b, n), bytes, n);
	b->len += n;
}

char *buffer_text(const struct buffer *b)
{
	return b->bytes ? (char *)b->bytes + b->head : NULL;
}

void buffer_consume(struct buffer *b, size_t n)
{
	b->head += n;
	b->len -= n;
	if (!b->len && b->cap > EMPTY_KEEPS)
		buffer_free(b);
}

void buffer_free(struct buffer *b)
{
	free(b->bytes);
	*b = (struct buffer){0};
}
