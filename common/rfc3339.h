/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_RFC3339_H
#define PARBAKE_COMMON_RFC3339_H

#include <stdint.h>

/* Times as RFC 3339 writes them, of nanoseconds since 1970 in UTC. Pure functions. */

#define RFC3339_SIZE 40 /* bytes of a text, with the NUL */

/* "2026-01-02T03:04:05.123456789Z" with @digits (0 to 9) behind the point; without the point where it is 0. */
void rfc3339_text(int64_t ns, int digits, char ret[RFC3339_SIZE]);
/* Any of its forms, with any offset. What lies below a nanosecond is dropped. -EINVAL, also where it does not fit. */
int rfc3339_parse(const char *text, int64_t *ret_ns);

#endif
