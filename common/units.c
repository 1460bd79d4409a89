/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units: a decimal number with its unit stuck to it, no sign, no fraction, no blanks.
 * What overflows is no size.
 */
#include "common/units.h"

#include <errno.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static int parse_number(const char *text, const struct unit *units, size_t n_units, uint64_t *ret)
{
	uint64_t value = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return -EINVAL;
	if (p == text)
		return -EINVAL;
	for (size_t i = 0; i < n_units; i++) {
		if (strcmp(p, units[i].name))
			continue;
		if (__builtin_mul_overflow(value, units[i].factor, &value))
			return -EINVAL;
		*ret = value;
		return 0;
	}
	return -EINVAL;
}

int units_parse_size(const char *text, uint64_t *ret)
{
	static const struct unit units[] = {
		{"K", 1ULL << 10},
		{"M", 1ULL << 20},
		{"G", 1ULL << 30},
		{"T", 1ULL << 40},
	};

	return parse_number(text, units, sizeof(units) / sizeof(*units), ret);
}

int units_parse_time_ms(const char *text, uint64_t *ret)
{
	static const struct unit units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

	return parse_number(text, units, sizeof(units) / sizeof(*units), ret);
}
