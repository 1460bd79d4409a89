/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_BASE64_H
#define PARBAKE_COMMON_BASE64_H

#include <stddef.h>
#include <sys/types.h>

/* Base 64 (RFC 4648). Pure functions. */

/* With padding. Caller frees. Aborts without memory. */
char *base64_encode(const void *bytes, size_t len);
/*
 * @len characters of @text to bytes in @ret, which has room for @len / 4 * 3 + 2 and may be @text itself. Of the
 * standard or the URL alphabet, padded or not, and nothing else between. How many bytes there are;
 * -EINVAL where it is none.
 */
ssize_t base64_decode(const char *text, size_t len, void *ret);

#endif
