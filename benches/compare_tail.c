/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted by run: samples beyond a far percentile, and failures.
 *
 * The percentile is that of both builds together, so that it favours neither. In rounds, each sample is taken
 * relative to the median of its round: what the host did in that minute then counts for both. A ratio r between new
 * and old is refuted where, with the new samples divided by r, the counts still differ by more than exchanging runs
 * explains; the interval holds the ratios that are not refuted.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "benches/compare_private.h"
#include "benches/permute.h"
#include "benches/stats.h"

#define BOUND_TAIL 0.025
#define RATIO_MAX 3.0 /* logarithm of the greatest ratio that is looked for */
#define HALVINGS 12

/* Pairs of runs (of a round; else of nothing), cut to one length, and what is counted of each. */
struct counts {
	bool paired;
	size_t n_old, n_new; /* runs; equal where paired */
	size_t len; /* samples of a run */
	const int64_t **old, **new;
	double *old_values, *new_values; /* relative, run after run */
	double *sorted;
	unsigned *weights;
};

static void *array(size_t n, size_t size)
{
	void *p = calloc(n ?: 1, size);

	if (!p)
		abort();
	return p;
}

static void counts_clear(struct counts *c)
{
	free(c->old);
	free(c->new);
	free(c->old_values);
	free(c->new_values);
	free(c->sorted);
	free(c->weights);
}

static void add_run(struct counts *c, const struct compare_samples *s, size_t run,
	const int64_t **to, size_t *n)
{
	c->len = s->runs[run].n < c->len ? s->runs[run].n : c->len;
	to[(*n)++] = s->values + s->runs[run].begin;
}

/* A run of less than half the mean length would cut all others: left out. */
static size_t least_length(const struct compare_samples *s)
{
	return s->n_runs ? (s->n / s->n_runs + 1) / 2 : 0;
}

static void counts_make(
	struct counts *c, const struct compare_samples *old, const struct compare_samples *new)
{
	size_t least_old = least_length(old), least_new = least_length(new);

	*c = (struct counts){.paired = compare_are_paired(old, new), .len = SIZE_MAX};
	c->old = array(old->n_runs, sizeof(*c->old));
	c->new = array(new->n_runs, sizeof(*c->new));
	if (c->paired) {
		struct compare_round *rounds = array(old->n_runs, sizeof(*rounds));
		size_t n = compare_rounds(old, new, rounds, old->n_runs);

		for (size_t i = 0; i < n; i++) {
			if (old->runs[rounds[i].old].n < least_old || !least_old ||
				new->runs[rounds[i].new].n < least_new || !least_new)
				continue;
			add_run(c, old, rounds[i].old, c->old, &c->n_old);
			add_run(c, new, rounds[i].new, c->new, &c->n_new);
		}
		free(rounds);
	} else {
		for (size_t i = 0; i < old->n_runs; i++) {
			if (least_old && old->runs[i].n >= least_old)
				add_run(c, old, i, c->old, &c->n_old);
		}
		for (size_t i = 0; i < new->n_runs; i++) {
			if (least_new && new->runs[i].n >= least_new)
				add_run(c, new, i, c->new, &c->n_new);
		}
	}
	c->len = c->n_old && c->n_new ? c->len : 0;
	c->old_values = array(c->n_old * c->len, sizeof(double));
	c->new_values = array(c->n_new * c->len, sizeof(double));
	c->sorted = array((c->n_old + c->n_new) * c->len, sizeof(double));
	c->weights = array(c->n_old + c->n_new, sizeof(*c->weights));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The samples, the new ones divided by @ratio, relative to their round's median. */
static void take_values(struct counts *c, double ratio)
{
	size_t len = c->len;

	for (size_t i = 0; i < c->n_old * len; i++)
		c->old_values[i] = (double)c->old[i / len][i % len];
	for (size_t i = 0; i < c->n_new * len; i++)
		c->new_values[i] = (double)c->new[i / len][i % len] / ratio;
	for (size_t i = 0; c->paired && i < c->n_old; i++) {
		double *a = c->old_values + i * len, *b = c->new_values + i * len, median;

		memcpy(c->sorted, a, len * sizeof(*a));
		memcpy(c->sorted + len, b, len * sizeof(*b));
		qsort(c->sorted, 2 * len, sizeof(*a), by_value);
		median = fmax(1, (c->sorted[len - 1] + c->sorted[len]) / 2);
		for (size_t j = 0; j < len; j++) {
			a[j] /= median;
			b[j] /= median;
		}
	}
}

static unsigned count_above(const double *values, size_t n, double threshold)
{
	unsigned count = 0;

	for (size_t i = 0; i < n; i++)
		count += values[i] > threshold;
	return count;
}

/* Probabilities of counts as unequal as those seen, either way, were the ratio @ratio. */
static void probabilities(
	struct counts *c, double percentile, double ratio, double *ret_above, double *ret_below)
{
	size_t n_old = c->n_old * c->len, n_new = c->n_new * c->len, n = n_old + n_new, rank;
	unsigned long plus = 0, minus = 0;
	double threshold;

	take_values(c, ratio);
	memcpy(c->sorted, c->old_values, n_old * sizeof(double));
	memcpy(c->sorted + n_old, c->new_values, n_new * sizeof(double));
	qsort(c->sorted, n, sizeof(double), by_value);
	rank = (size_t)ceil(percentile / 100 * (double)n - 1e-9);
	threshold = c->sorted[rank ? rank - 1 : 0];
	for (size_t i = 0; i < c->n_old; i++) {
		unsigned a = count_above(c->old_values + i * c->len, c->len, threshold), b;

		if (!c->paired) {
			minus += c->weights[i] = a;
			continue;
		}
		b = count_above(c->new_values + i * c->len, c->len, threshold);
		plus += b > a ? b - a : 0;
		minus += a > b ? a - b : 0;
		c->weights[i] = a > b ? a - b : b - a;
	}
	for (size_t i = 0; !c->paired && i < c->n_new; i++)
		plus += c->weights[c->n_old + i] =
			count_above(c->new_values + i * c->len, c->len, threshold);
	if (c->paired) {
		*ret_above = permute_signs(c->weights, c->n_old, plus);
		*ret_below = permute_signs(c->weights, c->n_old, minus);
	} else {
		*ret_above = permute_groups(c->weights, c->n_old + c->n_new, c->n_new, plus);
		*ret_below = permute_groups(c->weights, c->n_old + c->n_new, c->n_old, minus);
	}
}

/* The greatest (@low) or least ratio that is refuted, as a logarithm; infinite where none is. */
static double bound(struct counts *c, double percentile, bool low)
{
	double in = low ? -RATIO_MAX : RATIO_MAX, out = -in, above, below;

	probabilities(c, percentile, exp(in), &above, &below);
	if ((low ? above : below) > BOUND_TAIL)
		return low ? -INFINITY : INFINITY;
	for (int i = 0; i < HALVINGS; i++) {
		double mid = (in + out) / 2;

		probabilities(c, percentile, exp(mid), &above, &below);
		if ((low ? above : below) <= BOUND_TAIL)
			in = mid;
		else
			out = mid;
	}
	return in;
}

void compare_tail(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, double alpha, double detect, struct compare_result *ret)
{
	double beyond = fmin(limit->percentile, 100 - limit->percentile) / 100, above, below;
	struct counts c;
	size_t needs;

	counts_make(&c, old, new);
	ret->method = c.paired ? COMPARE_PAIRED_COUNTS : COMPARE_GROUP_COUNTS;
	ret->change = (double)ret->new_ns / fmax(1, (double)ret->old_ns) - 1;
	/* as many beyond it as coins have to fall alike */
	needs = (size_t)ceil(log2(1 / alpha) / beyond / 2 - 1e-9);
	if (c.n_old < COMPARE_RUNS || c.n_new < COMPARE_RUNS) {
		ret->verdict = COMPARE_UNDECIDED;
		ret->needs = COMPARE_RUNS;
	} else if (c.n_old * c.len < needs || c.n_new * c.len < needs) {
		ret->verdict = COMPARE_UNTESTED;
		ret->needs = needs;
	} else {
		double low = bound(&c, limit->percentile, true);
		double high = bound(&c, limit->percentile, false);

		ret->low = expm1(low);
		ret->high = expm1(high);
		probabilities(&c, limit->percentile, 1 + limit->max_regress, &above, &below);
		if (limit->max_regress > 0) {
			double ignored;

			probabilities(&c, limit->percentile, 1, &ignored, &below);
		}
		compare_decide(ret, limit, above, below, alpha, detect);
	}
	counts_clear(&c);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* P(@b or more of the @a + @b failures are the new build's, of @n_a and @n_b creates). */
static double hypergeometric(size_t a, size_t n_a, size_t b, size_t n_b)
{
	size_t n = n_a + n_b, failed = a + b;
	double sum = 0;

	for (size_t k = b; k <= failed && k <= n_b; k++) {
		double x;

		if (failed - k > n_a)
			continue;
		x = lgamma((double)n_b + 1) - lgamma((double)k + 1) - lgamma((double)(n_b - k) + 1);
		x += lgamma((double)n_a + 1) - lgamma((double)(failed - k) + 1) -
			lgamma((double)(n_a - (failed - k)) + 1);
		x -= lgamma((double)n + 1) - lgamma((double)failed + 1) -
			lgamma((double)(n - failed) + 1);
		sum += exp(x);
	}
	return fmin(sum, 1);
}

static double failures_by_run(
	const struct compare_samples *old, const struct compare_samples *new, size_t *ret_n)
{
	unsigned *weights = array(old->n_runs + new->n_runs, sizeof(*weights));
	struct compare_round *rounds = array(old->n_runs, sizeof(*rounds));
	unsigned long plus = 0;
	double p;

	if (compare_are_paired(old, new)) {
		size_t n = compare_rounds(old, new, rounds, old->n_runs);

		for (size_t i = 0; i < n; i++) {
			size_t a = old->runs[rounds[i].old].failed;
			size_t b = new->runs[rounds[i].new].failed;

			plus += b > a ? b - a : 0;
			weights[i] = (unsigned)(b > a ? b - a : a - b);
		}
		*ret_n = n;
		p = permute_signs(weights, n, plus);
	} else {
		for (size_t i = 0; i < old->n_runs; i++)
			weights[i] = (unsigned)old->runs[i].failed;
		for (size_t i = 0; i < new->n_runs; i++)
			plus += weights[old->n_runs + i] = (unsigned)new->runs[i].failed;
		*ret_n = old->n_runs < new->n_runs ? old->n_runs : new->n_runs;
		p = permute_groups(weights, old->n_runs + new->n_runs, new->n_runs, plus);
	}
	free(weights);
	free(rounds);
	return p;
}

void compare_failures(const struct compare_samples *old, const struct compare_samples *new,
	double alpha, struct compare_result *ret)
{
	size_t n_old = old->n + old->failed, n_new = new->n + new->failed, runs = 0;
	double was = (double)old->failed / (double)(n_old ?: 1);
	double is = (double)new->failed / (double)(n_new ?: 1);

	ret->old_ns = (int64_t)old->failed;
	ret->new_ns = (int64_t) new->failed;
	ret->change = is - was;
	ret->method = compare_are_paired(old, new) ? COMPARE_PAIRED_COUNTS : COMPARE_GROUP_COUNTS;
	ret->p = failures_by_run(old, new, &runs);
	if (runs < COMPARE_RUNS) {
		ret->method = COMPARE_BY_SAMPLE;
		ret->p = hypergeometric(old->failed, n_old, new->failed, n_new);
	}
	ret->verdict = is <= was ? COMPARE_SAME
		: ret->p < alpha ? COMPARE_SLOWER
				 : COMPARE_UNDECIDED;
}
