/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_BUFFER_H
#define PARBAKE_COMMON_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"

/*
 * A queue of bytes: appended behind, consumed in front, held at bytes[head … head + len). A struct
 * of zeros is an empty queue. The queue has no bound of its own; whoever appends must have one.
 * Functions abort where memory is out.
 */
struct buffer {
	uint8_t *bytes;
	size_t head, len, cap;
};

/* Room for @n more bytes behind, where they may be written before @b->len is raised by as many. */
uint8_t *buffer_reserve(struct buffer *b, size_t n);
void buffer_append(struct buffer *b, const void *bytes, size_t n);
/* The bytes that are held, as text without a NUL behind it; until the next call that changes @b. */
char *buffer_text(const struct buffer *b);
/* Take @n bytes, at most b->len, away in front. Large memory of a queue that becomes empty is given back. */
void buffer_consume(struct buffer *b, size_t n);
/* Free the memory; what is left is an empty queue. */
void buffer_free(struct buffer *b);
#define cleanup_buffer cleanup_with(buffer_free)

#endif
