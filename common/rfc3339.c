/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RFC 3339 times. The C library does the calendar; the rest of the format is read and written here.
 */
#include "common/rfc3339.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#define NS_PER_S 1000000000LL

void rfc3339_text(int64_t ns, int digits, char ret[RFC3339_SIZE])
{
	int64_t s = ns / NS_PER_S, part = ns % NS_PER_S;
	time_t seconds;
	struct tm tm;
	size_t n = 0;

	if (part < 0) {
		s--;
		part += NS_PER_S;
	}
	seconds = (time_t)s;
	if (gmtime_r(&seconds, &tm))
		n = strftime(ret, RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	for (int i = digits; i < 9; i++)
		part /= 10;
	if (digits)
		snprintf(ret + n, RFC3339_SIZE - n, ".%0*lldZ", digits, (long long)part);
	else
		snprintf(ret + n, RFC3339_SIZE - n, "Z");
}

/* "Z", "+02:00": how far local time is ahead, in seconds. */
static int parse_offset(const char *text, int *ret_s)
{
	int hours, minutes, n = 0;
	char sign;

	*ret_s = 0;
	if ((*text == 'Z' || *text == 'z') && !text[1])
		return 0;
	if (sscanf(text, "%c%2d:%2d%n", &sign, &hours, &minutes, &n) != 3 || text[n] ||
		(sign != '+' && sign != '-') || hours < 0 || minutes < 0 || hours > 23 ||
		minutes > 59)
		return -EINVAL;
	*ret_s = (sign == '+' ? 1 : -1) * (hours * 60 + minutes) * 60;
	return 0;
}

int rfc3339_parse(const char *text, int64_t *ret_ns)
{
	struct tm tm = {0};
	const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	int64_t part = 0, scale = NS_PER_S / 10, ns;
	int offset;

	if (!at)
		return -EINVAL;
	if (*at == '.') {
		if (!isdigit((unsigned char)at[1]))
			return -EINVAL;
		for (at++; isdigit((unsigned char)*at); at++, scale /= 10)
			part += scale * (*at - '0');
	}
	if (parse_offset(at, &offset) < 0 ||
		__builtin_mul_overflow((int64_t)timegm(&tm) - offset, NS_PER_S, &ns) ||
		__builtin_add_overflow(ns, part, &ns))
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}
