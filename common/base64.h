/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_BASE64_H
#define PARBAKE_COMMON_BASE64_H

#include <stddef.h>
#include <sys/types.h>

/* Base 64 (RFC 4648). Pure functions. */

/* Encode with padding. Caller frees. Aborts without memory. */
char *base64_encode(const void *bytes, size_t len);
/*
 * @len characters of @text to bytes in @ret, which has room for @len / 4 * 3 + 2 and may be @text
 * itself. The text may be of the standard or the URL alphabet, padded or not, with nothing else in
 * between. Returns how many bytes there are; -EINVAL where @text is not base 64.
 */
ssize_t base64_decode(const char *text, size_t len, void *ret);

#endif
