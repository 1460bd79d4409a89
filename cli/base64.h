/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BASE64_H
#define PARBAKE_CLI_BASE64_H

#include <stddef.h>
#include <sys/types.h>

/* Base 64 as RFC 4648 section 4 has it. */

/* Caller frees. Aborts without memory. */
char *base64_encode(const void *bytes, size_t len);
/* @text to bytes in @ret, which has room for strlen(@text) / 4 * 3 and may be @text itself. How many
 * there are; -EINVAL where it is none. */
ssize_t base64_decode(const char *text, void *ret);

#endif
