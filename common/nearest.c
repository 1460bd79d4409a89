/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nearest name, by the optimal string alignment distance (Levenshtein's, with swaps of
 * neighbours), three rows at a time. Words are short names; anything longer than NEAREST_MAX is no
 * typo.
 */
#include "common/nearest.h"

#include <string.h>

#define NEAREST_MAX 128

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* Both at most NEAREST_MAX bytes. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned rows[3][NEAREST_MAX + 1];
	unsigned *before = rows[0], *prev = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		prev[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned *spare = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned differs = a[i - 1] != b[j - 1];

			row[j] = min3(prev[j] + 1, row[j - 1] + 1, prev[j - 1] + differs);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
				before[j - 2] + 1 < row[j])
				row[j] = before[j - 2] + 1;
		}
		before = prev;
		prev = row;
		row = spare;
	}
	return prev[b_len];
}

const char *nearest_name(const char *word, const char *const *candidates, size_t n)
{
	size_t len = strnlen(word, NEAREST_MAX + 1);
	unsigned limit = len / 3 > 2 ? (unsigned)(len / 3) : 2;
	const char *best = NULL;

	if (len > NEAREST_MAX)
		return NULL;
	/* "ab" → "xy" would be within 2: a wholly different word is no suggestion */
	if (limit >= len)
		limit = len ? (unsigned)len - 1 : 0;
	for (size_t i = 0; i < n; i++) {
		size_t c_len = candidates[i] ? strnlen(candidates[i], NEAREST_MAX + 1) : 0;
		unsigned d;

		if (!candidates[i] || c_len > NEAREST_MAX)
			continue;
		d = distance(word, len, candidates[i], c_len);
		if (d <= limit && (!best || d < limit)) {
			best = candidates[i];
			limit = d;
		}
	}
	return best;
}
