/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_TEXT_H
#define PARBAKE_POOL_ENVD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/json.h"

/* Bytes and text in the protocol of envd: base 64, envelopes. Pure functions. */

/* base64_decode() into new memory, the caller's. False: @text is not base 64. */
bool envd_base64_decode(const char *text, size_t len, uint8_t **ret, size_t *ret_len);

/* Connect's envelope: a byte of flags, the length (big-endian), and then as many bytes. */
#define ENVD_ENVELOPE_HEAD 5u
#define ENVD_ENVELOPE_COMPRESSED 1u
#define ENVD_ENVELOPE_END 2u
void envd_envelope_head(uint8_t ret[ENVD_ENVELOPE_HEAD], unsigned flags, uint32_t len);
/*
 * The one envelope that a request to a server-streaming method is made of: *@ret points into @body.
 * NULL: fine; else what is wrong with it.
 */
const char *envd_envelope_single(const char *body, size_t len, const char **ret, size_t *ret_len);

#endif
