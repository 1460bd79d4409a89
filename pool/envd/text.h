/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_TEXT_H
#define PARBAKE_POOL_ENVD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/json.h"

/* Bytes and text on the wire: buffers, base 64, envelopes. Pure functions. */

/* Bytes in a queue: bytes[head … head + len). */
struct envd_buf {
	uint8_t *bytes;
	size_t head, len, cap;
};

/* Aborts without memory. */
void envd_buf_append(struct envd_buf *b, const void *bytes, size_t len);
void envd_buf_consume(struct envd_buf *b, size_t len);
void envd_buf_free(struct envd_buf *b);

/* base64_decode() into new memory, the caller's. False: it is none. */
bool envd_base64_decode(const char *text, size_t len, uint8_t **ret, size_t *ret_len);

/* Connect's envelope: a byte of flags, the length big-endian, so many bytes. */
#define ENVD_ENVELOPE_HEAD 5u
#define ENVD_ENVELOPE_COMPRESSED 1u
#define ENVD_ENVELOPE_END 2u
void envd_envelope_head(uint8_t ret[ENVD_ENVELOPE_HEAD], unsigned flags, uint32_t len);
/*
 * The one envelope that a request to a server-streaming method is made of: *@ret points into @body.
 * NULL: fine; else what is wrong with it.
 */
const char *envd_envelope_single(const char *body, size_t len, const char **ret, size_t *ret_len);

/* "2026-01-02T03:04:05.123456789Z" of ns since 1970. */
#define ENVD_TIME_SIZE 40
void envd_time(int64_t ns, char ret[ENVD_TIME_SIZE]);

#endif
