/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under "the builds are the same", old and new of a round could as well have been each other (pairs), or any run
 * could have been on either side (two groups). The distribution of a sum over all such exchanges is counted weight by
 * weight: a table of how probable each sum is. Weights are ranks or counts, so the table is small.
 *
 * Ranks are doubled, so that those of ties are whole.
 */
#include "benches/permute.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 0.025 /* of a bound */
#define EXACT_MAX 64 /* pairs beyond which the ranks' distribution is taken for normal */
#define EXACT_TWO_MAX 24 /* likewise of two groups together: counting takes the cube of it */

static double *table(size_t n)
{
	double *t = calloc(n, sizeof(*t));

	if (!t)
		abort();
	return t;
}

static unsigned long total(const unsigned *weights, size_t n)
{
	unsigned long sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += weights[i];
	return sum;
}

double permute_signs(const unsigned *weights, size_t n, unsigned long observed)
{
	unsigned long most = total(weights, n), reach = 0;
	double *p, tail = 0;

	if (observed == 0)
		return 1;
	if (observed > most)
		return 0;
	p = table(most + 1);
	p[0] = 1;
	for (size_t i = 0; i < n; i++) {
		unsigned w = weights[i];

		if (w == 0)
			continue;
		reach += w;
		for (unsigned long s = reach + 1; s-- > 0;)
			p[s] = (p[s] + (s >= w ? p[s - w] : 0)) / 2;
	}
	for (unsigned long s = most + 1; s-- > observed;)
		tail += p[s];
	free(p);
	return fmin(tail, 1);
}

double permute_groups(const unsigned *weights, size_t n, size_t k, unsigned long observed)
{
	unsigned long most = total(weights, n), reach = 0;
	double *p, tail = 0;
	size_t row = most + 1;

	if (observed == 0 || k == 0)
		return 1;
	if (observed > most)
		return 0;
	/* p[j][s]: j of the weights seen so far were drawn, and they add up to s */
	p = table((k + 1) * row);
	p[0] = 1;
	for (size_t i = 0; i < n; i++) {
		unsigned w = weights[i];
		double left = (double)(n - i);

		reach += w;
		/* this weight is drawn with the probability (k - j) / (n - i) */
		for (size_t j = (i + 1 < k ? i + 1 : k) + 1; j-- > 0;) {
			double stay = 1 - (double)(k - j) / left;
			double come = j ? (double)(k - j + 1) / left : 0;

			stay = stay < 0 ? 0 : stay;
			for (unsigned long s = reach + 1; s-- > 0;)
				p[j * row + s] = p[j * row + s] * stay +
					(j && s >= w ? p[(j - 1) * row + s - w] * come : 0);
		}
	}
	for (unsigned long s = most + 1; s-- > observed;)
		tail += p[k * row + s];
	free(p);
	return fmin(tail, 1);
}

/* ---- ranks --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Twice the rank (from 1) of each of @values among all; ties share. */
static void double_ranks(const double *values, size_t n, unsigned *ret)
{
	double *sorted = table(n ?: 1);

	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), by_value);
	for (size_t i = 0; i < n; i++) {
		size_t low = 0, high, end = n;

		while (low < end) {
			size_t mid = low + (end - low) / 2;

			if (sorted[mid] < values[i])
				low = mid + 1;
			else
				end = mid;
		}
		for (high = low; high < n && sorted[high] == values[i]; high++)
			;
		ret[i] = (unsigned)(low + 1 + high);
	}
	free(sorted);
}

double permute_normal_tail(double tail)
{
	double low = -10, high = 10;

	for (int i = 0; i < 80; i++) {
		double mid = (low + high) / 2;

		if (erfc(mid / M_SQRT2) / 2 > tail)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static double normal_above(double observed, double mean, double sd)
{
	/* half a step: the sum is a whole number */
	return sd > 0 ? erfc((observed - 0.5 - mean) / sd / M_SQRT2) / 2 : 1;
}

/* P(Σ of signed doubled ranks ≥ what was seen) for the differences less @margin. */
static double pairs_above(const double *d, size_t n, double margin, int sign)
{
	double *size = table(n ?: 1), p, mean, squares = 0;
	unsigned *rank = calloc(n ?: 1, sizeof(*rank));
	unsigned long observed = 0;
	size_t m = 0;
	bool *positive = calloc(n ?: 1, sizeof(*positive));

	if (!rank || !positive)
		abort();
	for (size_t i = 0; i < n; i++) {
		double x = sign * (d[i] - margin);

		if (x == 0)
			continue;
		positive[m] = x > 0;
		size[m++] = fabs(x);
	}
	double_ranks(size, m, rank);
	for (size_t i = 0; i < m; i++) {
		observed += positive[i] ? rank[i] : 0;
		squares += (double)rank[i] * rank[i];
	}
	mean = (double)total(rank, m) / 2;
	p = m <= EXACT_MAX ? permute_signs(rank, m, observed)
			   : normal_above((double)observed, mean, sqrt(squares) / 2);
	free(size);
	free(rank);
	free(positive);
	return p;
}

/* The greatest c with P(W ≤ c) ≤ TAIL, of ranks 1 … n without ties; -1: there is none. */
static long pairs_critical(size_t n)
{
	unsigned ranks[EXACT_MAX];
	long low, high;

	if (n > EXACT_MAX) {
		double mean = (double)n * (double)(n + 1) / 4;
		double sd = sqrt((double)n * (double)(n + 1) * (double)(2 * n + 1) / 24);

		return (long)floor(mean - permute_normal_tail(TAIL) * sd - 0.5);
	}
	for (size_t i = 0; i < n; i++)
		ranks[i] = (unsigned)i + 1;
	low = -1;
	high = (long)(n * (n + 1) / 4);
	while (low < high) {
		long c = low + (high - low + 1) / 2;

		/* P(W ≤ c) = P(W ≥ most − c) */
		if (permute_signs(ranks, n, n * (n + 1) / 2 - (unsigned long)c) <= TAIL)
			low = c;
		else
			high = c - 1;
	}
	return low;
}

static double median_sorted(const double *v, size_t n)
{
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void take_bounds(double *sorted, size_t n, long critical, struct permute_shift *ret)
{
	ret->estimate = n ? median_sorted(sorted, n) : 0;
	ret->low = critical >= 0 && n ? sorted[critical] : -INFINITY;
	ret->high = critical >= 0 && n ? sorted[n - 1 - (size_t)critical] : INFINITY;
}

void permute_pairs(const double *d, size_t n, double margin, struct permute_shift *ret)
{
	size_t m = n * (n + 1) / 2, k = 0;
	double *walsh = table(m ?: 1);

	for (size_t i = 0; i < n; i++) {
		for (size_t j = i; j < n; j++)
			walsh[k++] = (d[i] + d[j]) / 2;
	}
	qsort(walsh, m, sizeof(*walsh), by_value);
	take_bounds(walsh, m, pairs_critical(n), ret);
	ret->above = pairs_above(d, n, margin, 1);
	ret->below = pairs_above(d, n, 0, -1);
	free(walsh);
}

/* P(ranks of @a, less @margin, are as high among all as seen, or higher). */
static double two_above(const double *a, size_t n_a, const double *b, size_t n_b, double margin)
{
	size_t n = n_a + n_b;
	double *all = table(n ?: 1), p, mean, squares = 0, average;
	unsigned *rank = calloc(n ?: 1, sizeof(*rank));
	unsigned long observed = 0;

	if (!rank)
		abort();
	for (size_t i = 0; i < n; i++)
		all[i] = i < n_a ? a[i] - margin : b[i - n_a];
	double_ranks(all, n, rank);
	for (size_t i = 0; i < n_a; i++)
		observed += rank[i];
	average = n ? (double)total(rank, n) / (double)n : 0;
	for (size_t i = 0; i < n; i++)
		squares += (rank[i] - average) * (rank[i] - average);
	mean = average * (double)n_a;
	p = n <= EXACT_TWO_MAX
		? permute_groups(rank, n, n_a, observed)
		: normal_above((double)observed, mean,
			  sqrt((double)n_a * (double)n_b / (double)n * squares / (double)(n - 1)));
	free(all);
	free(rank);
	return p;
}

/* Likewise of the rank-sum statistic U of @a and @b values. */
static long two_critical(size_t a, size_t b)
{
	unsigned ranks[EXACT_TWO_MAX];
	unsigned long most = a * b, least_sum = a * (a + 1) / 2;
	long low, high;

	if (!a || !b)
		return -1;
	if (a + b > EXACT_TWO_MAX) {
		double sd = sqrt((double)a * (double)b * (double)(a + b + 1) / 12);

		return (long)floor((double)most / 2 - permute_normal_tail(TAIL) * sd - 0.5);
	}
	for (size_t i = 0; i < a + b; i++)
		ranks[i] = (unsigned)i + 1;
	low = -1;
	high = (long)most / 2;
	while (low < high) {
		long c = low + (high - low + 1) / 2;

		if (permute_groups(ranks, a + b, a, least_sum + most - (unsigned long)c) <= TAIL)
			low = c;
		else
			high = c - 1;
	}
	return low;
}

void permute_two(const double *old, size_t n_old, const double *new, size_t n_new, double margin,
	struct permute_shift *ret)
{
	size_t m = n_old * n_new, k = 0;
	double *differences = table(m ?: 1);

	for (size_t i = 0; i < n_old; i++) {
		for (size_t j = 0; j < n_new; j++)
			differences[k++] = new[j] - old[i];
	}
	qsort(differences, m, sizeof(*differences), by_value);
	take_bounds(differences, m, two_critical(n_old, n_new), ret);
	ret->above = two_above(new, n_new, old, n_old, margin);
	ret->below = two_above(old, n_old, new, n_new, 0);
	free(differences);
}
