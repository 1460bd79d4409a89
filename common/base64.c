/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base 64: text that is written is of the standard alphabet and padded; text that is read may be of
 * either alphabet.
 */
#include "common/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

char *base64_encode(const void *bytes, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *ret = malloc((len + 2) / 3 * 4 + 1), *at = ret;
	const uint8_t *in = bytes;

	if (!ret)
		abort();
	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		uint32_t three = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
			(left > 2 ? in[i + 2] : 0);

		*at++ = digits[three >> 18];
		*at++ = digits[three >> 12 & 63];
		*at++ = left > 1 ? digits[three >> 6 & 63] : '=';
		*at++ = left > 2 ? digits[three & 63] : '=';
	}
	*at = '\0';
	return ret;
}

static int digit_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

ssize_t base64_decode(const char *text, size_t len, void *ret)
{
	size_t padded = len, n = 0;
	uint8_t *out = ret;
	uint32_t bits = 0;

	while (len && padded - len < 2 && text[len - 1] == '=')
		len--;
	if (len % 4 == 1 || (padded != len && padded % 4 != 0))
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		int v = digit_value(text[i]);

		if (v < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)v;
		/* the first of four digits makes no byte yet */
		if (i % 4)
			out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
	}
	return (ssize_t)n;
}
