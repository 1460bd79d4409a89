/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_UTF8_H
#define PARBAKE_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UTF-8 (RFC 3629) in bytes from anywhere. Pure functions. */

/* How many of the @len (at least 1) bytes at @p belong to one character: whole where *@ret_whole. At least 1;
 * a part that nothing can complete counts as far as it was good. */
unsigned utf8_take(const uint8_t *p, size_t len, bool *ret_whole);
/*
 * How many of the @len bytes may be given out as text now: what is held back at the end (at most 3
 * bytes) is the beginning of a character that more bytes may complete.
 */
size_t utf8_whole(const uint8_t *bytes, size_t len);

#endif
