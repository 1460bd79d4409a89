/* SPDX-License-Identifier: Apache-2.0 */
/* Has a latency become worse? compare.h says by which tests; compare_documents.c applies them. */
#include "benches/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "benches/stats.h"

#define SEED 0x7061726261ULL
#define CONFIDENCE_TAIL 0.025 /* of the bootstrap's interval, each side */
#define ORDER_TAIL 0.05 /* of an order statistic's bound */

static int parse_one(const char *text, size_t len, struct compare_limit *ret, struct err *err)
{
	char *end;

	if (len < 4 || text[0] != 'p')
		return err_set(err, EINVAL, "\"%.*s\": write p50=5%%", (int)len, text);
	ret->percentile = strtod(text + 1, &end);
	if (end == text + 1 || *end != '=' || !(ret->percentile > 0 && ret->percentile < 100))
		return err_set(err, EINVAL, "\"%.*s\": a percentile is between p0 and p100",
			(int)len, text);
	text = end + 1;
	ret->max_regress = strtod(text, &end) / 100;
	if (end == text || *end != '%' || !(ret->max_regress >= 0 && ret->max_regress <= 100))
		return err_set(
			err, EINVAL, "p%g: the limit is a percentage, as in 5%%", ret->percentile);
	if (end[1] && end[1] != ',')
		return err_set(
			err, EINVAL, "p%g: \"%s\" behind the limit", ret->percentile, end + 1);
	return 0;
}

int compare_limits_parse(const char *text, struct compare_limit ret[static COMPARE_LIMITS_MAX],
	size_t *ret_n, struct err *err)
{
	size_t n = 0;

	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ",");
		int r;

		if (n == COMPARE_LIMITS_MAX)
			return err_set(err, E2BIG, "more than %d limits", COMPARE_LIMITS_MAX);
		r = parse_one(at, len, &ret[n++], err);
		if (r < 0)
			return r;
		at += len + (at[len] == ',');
	}
	if (!n)
		return err_set(err, EINVAL, "no limit; write p50=5%%,p99=10%%");
	*ret_n = n;
	return 0;
}

void compare_samples_clear(struct compare_samples *s)
{
	free(s->values);
	free(s->runs);
	*s = (struct compare_samples){0};
}

void compare_samples_add(struct compare_samples *s, const int64_t *values, size_t n, size_t failed)
{
	s->failed += failed;
	if (!n)
		return;
	s->values = reallocarray(s->values, s->n + n, sizeof(*s->values));
	s->runs = reallocarray(s->runs, s->n_runs + 1, sizeof(*s->runs));
	if (!s->values || !s->runs)
		abort();
	memcpy(s->values + s->n, values, n * sizeof(*values));
	s->runs[s->n_runs++] = s->n;
	s->n += n;
}

static size_t run_length(const struct compare_samples *s, size_t run)
{
	return (run + 1 < s->n_runs ? s->runs[run + 1] : s->n) - s->runs[run];
}

/* One resample into @out (room for s->n values or more: as many as the runs drawn hold). */
static size_t resample(
	const struct compare_samples *s, struct stats_random *random, int64_t *out, size_t room)
{
	bool draw_runs = s->n_runs >= COMPARE_RUNS;
	size_t n = 0;

	for (size_t i = 0; i < s->n_runs; i++) {
		size_t run = draw_runs ? stats_random_below(random, s->n_runs) : i;
		size_t len = run_length(s, run), block = (size_t)lround(sqrt((double)len));
		const int64_t *values = s->values + s->runs[run];

		for (size_t taken = 0; taken < len && n < room;) {
			size_t at = stats_random_below(random, len);

			for (size_t j = 0; j < block && taken < len && n < room; j++, taken++)
				out[n++] = values[(at + j) % len];
		}
	}
	return n;
}

static size_t longest(const struct compare_samples *s)
{
	size_t max = 0;

	for (size_t i = 0; i < s->n_runs; i++)
		max = run_length(s, i) > max ? run_length(s, i) : max;
	return max * s->n_runs;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void bootstrap(const struct compare_samples *old, const struct compare_samples *new,
	double p, struct compare_result *ret)
{
	size_t room_old = longest(old), room_new = longest(new), k;
	int64_t *a = calloc(room_old ?: 1, sizeof(*a)), *b = calloc(room_new ?: 1, sizeof(*b));
	double *ratios = calloc(COMPARE_RESAMPLES, sizeof(*ratios));
	struct stats_random random = {.state = SEED};

	if (!a || !b || !ratios)
		abort();
	for (size_t i = 0; i < COMPARE_RESAMPLES; i++) {
		size_t n_old = resample(old, &random, a, room_old);
		size_t n_new = resample(new, &random, b, room_new);

		ratios[i] = (double)stats_percentile(b, n_new, p) /
			fmax(1, (double)stats_percentile(a, n_old, p));
	}
	qsort(ratios, COMPARE_RESAMPLES, sizeof(*ratios), by_value);
	k = (size_t)(CONFIDENCE_TAIL * COMPARE_RESAMPLES);
	ret->low = ratios[k] - 1;
	ret->high = ratios[COMPARE_RESAMPLES - 1 - k] - 1;
	free(a);
	free(b);
	free(ratios);
}

/* @old and @new sorted. */
static void order_statistics(const int64_t *old, size_t n_old, const int64_t *new, size_t n_new,
	double p, struct compare_result *ret)
{
	long old_low, old_high, new_low, new_high;

	stats_quantile_bounds(n_old, p, ORDER_TAIL, &old_low, &old_high);
	stats_quantile_bounds(n_new, p, ORDER_TAIL, &new_low, &new_high);
	ret->low = old_high < 0 || new_low < 0
		? -1
		: (double)new[new_low] / fmax(1, (double)old[old_high]) - 1;
	ret->high = old_low < 0 || new_high < 0
		? INFINITY
		: (double)new[new_high] / fmax(1, (double)old[old_low]) - 1;
	if (old_low < 0 || old_high < 0 || new_low < 0 || new_high < 0) {
		ret->verdict = COMPARE_UNDECIDED;
		ret->needs = stats_quantile_needs(p, ORDER_TAIL);
	}
}

static int64_t *sorted_copy(const struct compare_samples *s)
{
	int64_t *copy = calloc(s->n, sizeof(*copy));

	if (!copy)
		abort();
	memcpy(copy, s->values, s->n * sizeof(*copy));
	stats_sort(copy, s->n);
	return copy;
}

/* Do enough samples lie beyond the percentile on both sides? */
static bool in_the_middle(size_t n, double p)
{
	double q = p / 100;

	return (double)n * q >= COMPARE_TAIL && (double)n * (1 - q) >= COMPARE_TAIL;
}

void compare_percentile(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, struct compare_result *ret)
{
	int64_t *a = sorted_copy(old), *b = sorted_copy(new);
	double p = limit->percentile;

	*ret = (struct compare_result){.verdict = COMPARE_OK};
	ret->old_ns = stats_percentile_sorted(a, old->n, p);
	ret->new_ns = stats_percentile_sorted(b, new->n, p);
	ret->change = (double)ret->new_ns / fmax(1, (double)ret->old_ns) - 1;
	if (in_the_middle(old->n, p) && in_the_middle(new->n, p)) {
		ret->method = COMPARE_BOOTSTRAP;
		bootstrap(old, new, p, ret);
	} else {
		ret->method = COMPARE_ORDER;
		order_statistics(a, old->n, b, new->n, p, ret);
	}
	/* an interval open above may still lie above the limit altogether */
	if (ret->low > limit->max_regress)
		ret->verdict = COMPARE_REGRESSED;
	free(a);
	free(b);
}
