/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in requests and answers: base 64, the envelopes of Connect's streams. */
#include "pool/envd/text.h"

#include <stdlib.h>

#include "common/base64.h"

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

/* ---- envelopes ---------------------------------------------------------------------------- */

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
