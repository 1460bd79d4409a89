/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_UNITS_H
#define PARBAKE_COMMON_UNITS_H

#include <stdint.h>

/*
 * Sizes and times as people write them: a decimal number and its unit, without sign, fraction or blank between
 * them. Pure functions; -EINVAL for anything else, and for what does not fit 64 bits.
 */

/* "16K", "512M", "2G", "1T" (powers of 1024) in bytes. */
int units_parse_size(const char *text, uint64_t *ret_bytes);
/* "500ms", "30s", "5m", "2h" in milliseconds. */
int units_parse_time_ms(const char *text, uint64_t *ret_ms);

#endif
