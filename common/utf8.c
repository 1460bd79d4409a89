/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 (RFC 3629): which bytes are text, even where a character was cut in the middle. Surrogates
 * and encodings that are longer than needed are not text.
 */
#include "common/utf8.h"

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

unsigned utf8_take(const uint8_t *p, size_t len, bool *ret_whole)
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

size_t utf8_whole(const uint8_t *bytes, size_t len)
{
	/* what begins a character that is not whole lies among the last three bytes */
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		const uint8_t *p = bytes + len - back;
		bool whole;

		if ((*p & 0xc0) == 0x80)
			continue;
		if (char_len(*p) > back && utf8_take(p, back, &whole) == back)
			return len - back;
		return len;
	}
	return len;
}
