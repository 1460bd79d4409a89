/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in JSON: base 64, with padding, and nothing else between. */
#include "cli/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *bytes, size_t len)
{
	char *ret = malloc((len + 2) / 3 * 4 + 1), *at = ret;
	const uint8_t *in = bytes;

	if (!ret)
		abort();
	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		uint32_t three = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
			(left > 2 ? in[i + 2] : 0);

		*at++ = letters[three >> 18];
		*at++ = letters[three >> 12 & 63];
		*at++ = left > 1 ? letters[three >> 6 & 63] : '=';
		*at++ = left > 2 ? letters[three & 63] : '=';
	}
	*at = '\0';
	return ret;
}

static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ssize_t base64_decode(const char *text, void *ret)
{
	size_t len = strlen(text), n = 0;
	uint8_t *out = ret;

	if (len % 4)
		return -EINVAL;
	for (size_t i = 0; i < len; i += 4) {
		unsigned pad = i + 4 < len ? 0 : (text[i + 3] == '=') + (text[i + 2] == '=');
		uint32_t three = 0;

		if (pad && text[i + 3] != '=')
			return -EINVAL;
		for (unsigned j = 0; j < 4; j++) {
			int v = j < 4 - pad ? value_of(text[i + j]) : 0;

			if (v < 0)
				return -EINVAL;
			three = three << 6 | (uint32_t)v;
		}
		for (unsigned j = 0; j < 3 - pad; j++)
			out[n++] = (uint8_t)(three >> (16 - 8 * j));
	}
	return (ssize_t)n;
}
