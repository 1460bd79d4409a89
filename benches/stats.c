/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Percentiles by nearest rank, bounds of a percentile from order statistics, and random numbers
 * that are the same every time.
 */
#include "benches/stats.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

void stats_sort(int64_t *values, size_t n)
{
	if (n)
		qsort(values, n, sizeof(*values), by_value);
}

/* The place of the percentile among @n sorted values. */
static size_t nearest_rank(size_t n, double p)
{
	/* 99 / 100.0 * 100 is a little more than 99 in binary: not the next rank */
	size_t rank = (size_t)ceil(p / 100.0 * (double)n - 1e-9);

	return rank < 1 ? 0 : rank > n ? n - 1 : rank - 1;
}

int64_t stats_percentile_sorted(const int64_t *sorted, size_t n, double p)
{
	return n ? sorted[nearest_rank(n, p)] : 0;
}

/* Hoare's selection: what would stand at @k, were the values sorted. Moves them about. */
static int64_t select_value(int64_t *v, size_t n, size_t k)
{
	size_t low = 0, high = n - 1;

	while (low < high) {
		int64_t pivot = v[low + (high - low) / 2];
		size_t i = low, j = high + 1;

		for (i--;;) { /* it may wrap: it is stepped up first */
			int64_t swap;

			do {
				i++;
			} while (v[i] < pivot);
			do {
				j--;
			} while (v[j] > pivot);
			if (i >= j)
				break;
			swap = v[i];
			v[i] = v[j];
			v[j] = swap;
		}
		/* v[low … j] ≤ pivot ≤ v[j + 1 … high], and j < high */
		if (k <= j)
			high = j;
		else
			low = j + 1;
	}
	return v[k];
}

int64_t stats_percentile(int64_t *values, size_t n, double p)
{
	return n ? select_value(values, n, nearest_rank(n, p)) : 0;
}

uint64_t stats_random_next(struct stats_random *r)
{
	uint64_t x = r->state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t stats_random_below(struct stats_random *r, uint64_t n)
{
	/* the bias is below n / 2^64 */
	return (uint64_t)((unsigned __int128)stats_random_next(r) * n >> 64);
}

double stats_random_unit(struct stats_random *r)
{
	return ((double)(stats_random_next(r) >> 11) + 0.5) / 9007199254740992.0;
}
