/* SPDX-License-Identifier: Apache-2.0 */
/* Has a latency become worse? compare.h says by which tests; compare_tail.c has those of the tail. */
#include "benches/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/compare_private.h"
#include "benches/permute.h"
#include "benches/stats.h"

const char *const compare_verdict_names[] = {
	[COMPARE_SAME] = "same",
	[COMPARE_FASTER] = "faster",
	[COMPARE_SLOWER] = "slower",
	[COMPARE_UNDECIDED] = "undecided",
	[COMPARE_UNTESTED] = "not tested",
};

const char *const compare_method_names[] = {
	[COMPARE_PAIRED] = "signed ranks of rounds",
	[COMPARE_GROUPS] = "ranks of runs",
	[COMPARE_PAIRED_COUNTS] = "counts of rounds",
	[COMPARE_GROUP_COUNTS] = "counts of runs",
	[COMPARE_BY_SAMPLE] = "by sample",
};

/* ---- limits -------------------------------------------------------------------------------- */

const char *compare_quantity_name(double percentile, char ret[static 16])
{
	if (percentile == COMPARE_MEAN)
		return "mean";
	if (percentile == COMPARE_FAILURES)
		return "failures";
	snprintf(ret, 16, "p%g", percentile);
	return ret;
}

static int parse_one(const char *text, size_t len, struct compare_limit *ret, struct err *err)
{
	char *end = NULL, name[16];

	if (len > 5 && !strncmp(text, "mean=", 5)) {
		ret->percentile = COMPARE_MEAN;
		end = (char *)text + 4;
	} else if (len >= 4 && text[0] == 'p') {
		ret->percentile = strtod(text + 1, &end);
		if (end == text + 1 || *end != '=' ||
			!(ret->percentile > 0 && ret->percentile < 100))
			return err_set(err, EINVAL, "\"%.*s\": a percentile is between p0 and p100",
				(int)len, text);
	} else {
		return err_set(err, EINVAL, "\"%.*s\": write p50=5%% or mean=5%%", (int)len, text);
	}
	text = end + 1;
	ret->max_regress = strtod(text, &end) / 100;
	compare_quantity_name(ret->percentile, name);
	if (end == text || *end != '%' || !(ret->max_regress >= 0 && ret->max_regress <= 100))
		return err_set(err, EINVAL, "%s: the limit is a percentage, as in 5%%",
			compare_quantity_name(ret->percentile, name));
	if (end[1] && end[1] != ',')
		return err_set(err, EINVAL, "%s: \"%s\" behind the limit",
			compare_quantity_name(ret->percentile, name), end + 1);
	return 0;
}

int compare_limits_parse(const char *text, struct compare_limit ret[static COMPARE_LIMITS_MAX],
	size_t *ret_n, struct err *err)
{
	size_t n = 0;

	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ",");
		char name[16];
		int r;

		if (n == COMPARE_LIMITS_MAX)
			return err_set(err, E2BIG, "more than %d limits", COMPARE_LIMITS_MAX);
		r = parse_one(at, len, &ret[n], err);
		if (r < 0)
			return r;
		for (size_t i = 0; i < n; i++) {
			if (ret[i].percentile == ret[n].percentile)
				return err_set(err, EINVAL, "%s stands there twice",
					compare_quantity_name(ret[n].percentile, name));
		}
		n++;
		at += len + (at[len] == ',');
	}
	if (!n)
		return err_set(err, EINVAL, "no limit; write p50=5%%,p99=10%%");
	*ret_n = n;
	return 0;
}

void compare_share_alpha(
	const struct compare_limit *limits, size_t n, size_t n_series, double *ret_alpha)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		double p = limits[i].percentile;

		ret_alpha[i] = p == COMPARE_FAILURES ? 0.5
			: p == COMPARE_MEAN          ? 1
			: p > 99                     ? 0.5
			: p > 80 || p < 20           ? 2
						     : 4;
		sum += ret_alpha[i];
	}
	for (size_t i = 0; i < n; i++)
		ret_alpha[i] *= COMPARE_ALPHA / sum / (double)(n_series ?: 1);
}

/* ---- samples ------------------------------------------------------------------------------- */

void compare_samples_clear(struct compare_samples *s)
{
	free(s->values);
	free(s->runs);
	*s = (struct compare_samples){0};
}

void compare_samples_add(
	struct compare_samples *s, const int64_t *values, size_t n, size_t failed, long round)
{
	s->values = reallocarray(s->values, s->n + n + 1, sizeof(*s->values));
	s->runs = reallocarray(s->runs, s->n_runs + 1, sizeof(*s->runs));
	if (!s->values || !s->runs)
		abort();
	if (n)
		memcpy(s->values + s->n, values, n * sizeof(*values));
	s->runs[s->n_runs++] =
		(struct compare_run){.begin = s->n, .n = n, .failed = failed, .round = round};
	s->n += n;
	s->failed += failed;
}

size_t compare_rounds(const struct compare_samples *old, const struct compare_samples *new,
	struct compare_round *ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < old->n_runs && n < max; i++) {
		for (size_t j = 0; j < new->n_runs; j++) {
			if (old->runs[i].round < 0 || old->runs[i].round != new->runs[j].round)
				continue;
			ret[n++] = (struct compare_round){.old = i, .new = j};
			break;
		}
	}
	return n;
}

bool compare_are_paired(const struct compare_samples *old, const struct compare_samples *new)
{
	bool paired = old->n_runs > 0 && new->n_runs > 0;

	for (size_t i = 0; i < old->n_runs; i++)
		paired &= old->runs[i].round >= 0;
	for (size_t i = 0; i < new->n_runs; i++)
		paired &= new->runs[i].round >= 0;
	return paired;
}

/* ---- a quantity of each run ---------------------------------------------------------------- */

static double mean_of(const int64_t *values, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)values[i];
	return n ? sum / (double)n : 0;
}

static double quantity_of(const int64_t *values, size_t n, double percentile)
{
	int64_t *copy, result;

	if (percentile == COMPARE_MEAN)
		return mean_of(values, n);
	copy = calloc(n ?: 1, sizeof(*copy));
	if (!copy)
		abort();
	memcpy(copy, values, n * sizeof(*copy));
	result = stats_percentile(copy, n, percentile);
	free(copy);
	return (double)result;
}

static double log_of_run(const struct compare_samples *s, size_t run, double percentile)
{
	return log(
		fmax(1, quantity_of(s->values + s->runs[run].begin, s->runs[run].n, percentile)));
}

/* Runs that have samples. */
static size_t full_runs(const struct compare_samples *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_runs; i++)
		n += s->runs[i].n > 0;
	return n;
}

/* Has each run enough samples beyond the percentile, on the average? */
static bool within_runs(const struct compare_samples *s, double percentile)
{
	double each = (double)s->n / (double)(full_runs(s) ?: 1), q = percentile / 100;

	if (percentile == COMPARE_MEAN)
		return true;
	return each * (1 - q) >= COMPARE_BEYOND && each * q >= COMPARE_BEYOND;
}

static size_t shift_of_rounds(const struct compare_samples *old, const struct compare_samples *new,
	double percentile, double margin, struct permute_shift *ret)
{
	struct compare_round *rounds = calloc(old->n_runs ?: 1, sizeof(*rounds));
	double *d = calloc(old->n_runs ?: 1, sizeof(*d));
	size_t n, m = 0;

	if (!rounds || !d)
		abort();
	n = compare_rounds(old, new, rounds, old->n_runs);
	for (size_t i = 0; i < n; i++) {
		if (old->runs[rounds[i].old].n && new->runs[rounds[i].new].n)
			d[m++] = log_of_run(new, rounds[i].new, percentile) -
				log_of_run(old, rounds[i].old, percentile);
	}
	permute_pairs(d, m, margin, ret);
	free(rounds);
	free(d);
	return m;
}

static size_t shift_of_groups(const struct compare_samples *old, const struct compare_samples *new,
	double percentile, double margin, struct permute_shift *ret)
{
	double *a = calloc(old->n_runs ?: 1, sizeof(*a)), *b = calloc(new->n_runs ?: 1, sizeof(*b));
	size_t n = 0, m = 0;

	if (!a || !b)
		abort();
	for (size_t i = 0; i < old->n_runs; i++) {
		if (old->runs[i].n)
			a[n++] = log_of_run(old, i, percentile);
	}
	for (size_t i = 0; i < new->n_runs; i++) {
		if (new->runs[i].n)
			b[m++] = log_of_run(new, i, percentile);
	}
	permute_two(a, n, b, m, margin, ret);
	free(a);
	free(b);
	return n < m ? n : m;
}

/* What a percentile's size is measured by: tails are known less well than the middle. */
static double size_asked(double percentile, double detect)
{
	return percentile == COMPARE_MEAN ? detect
		: percentile > 99         ? 8 * detect
		: percentile >= 99        ? 4 * detect
		: percentile >= 80        ? 2 * detect
					  : detect;
}

/* What was found becomes a verdict. @above, @below: probabilities of what was seen, were there no change. */
void compare_decide(struct compare_result *ret, const struct compare_limit *limit, double above,
	double below, double alpha, double detect)
{
	double asked = size_asked(limit->percentile, detect);
	double accepted = limit->max_regress > asked ? limit->max_regress : asked;

	ret->p = above;
	if (above < alpha && ret->change > limit->max_regress && ret->change >= asked / 5)
		ret->verdict = COMPARE_SLOWER;
	else if (below < alpha && -ret->change >= asked / 5)
		ret->verdict = COMPARE_FASTER;
	else if (ret->high <= accepted)
		ret->verdict = COMPARE_SAME;
	else
		ret->verdict = COMPARE_UNDECIDED;
}

static void take_of_runs(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, double alpha, double detect, struct compare_result *ret)
{
	double margin = log1p(limit->max_regress), se, sizes, found;
	bool paired = compare_are_paired(old, new);
	struct permute_shift shift;
	size_t n = (paired ? shift_of_rounds : shift_of_groups)(
		old, new, limit->percentile, margin, &shift);

	ret->method = paired ? COMPARE_PAIRED : COMPARE_GROUPS;
	ret->change = expm1(shift.estimate);
	ret->low = expm1(shift.low);
	ret->high = expm1(shift.high);
	if (n < COMPARE_RUNS) {
		ret->low = -1;
		ret->high = INFINITY;
		ret->p = 1;
		ret->verdict = COMPARE_UNDECIDED;
		ret->needs = COMPARE_RUNS;
		return;
	}
	compare_decide(ret, limit, shift.above, shift.below, alpha, detect);
	se = (shift.high - shift.low) / 2 / permute_normal_tail(0.025);
	sizes = permute_normal_tail(alpha) + permute_normal_tail(COMPARE_POWER_TAIL);
	found = margin + sizes * se;
	/* with so few runs no difference at all reaches the probability */
	if ((paired ? pow(0.5, (double)n)
		    : exp(2 * lgamma((double)n + 1) - lgamma(2.0 * (double)n + 1))) >= alpha)
		found = INFINITY;
	ret->could_see = expm1(found);
	if (ret->verdict == COMPARE_UNDECIDED && isfinite(se)) {
		double asked = log1p(size_asked(limit->percentile, detect));
		double least = log2(1 / alpha) + 1;
		double more = sizes * se / asked;

		ret->needs = (size_t)ceil(fmax(least, (double)n * more * more));
	}
}

/* ---- one quantity -------------------------------------------------------------------------- */

void compare_quantity(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, double alpha, double detect, struct compare_result *ret)
{
	double p = limit->percentile;

	*ret = (struct compare_result){.verdict = COMPARE_SAME,
		.low = -1,
		.high = INFINITY,
		.could_see = INFINITY,
		.p = 1};
	if (p == COMPARE_FAILURES) {
		compare_failures(old, new, alpha, ret);
		return;
	}
	ret->old_ns = (int64_t)quantity_of(old->values, old->n, p);
	ret->new_ns = (int64_t)quantity_of(new->values, new->n, p);
	if (within_runs(old, p) && within_runs(new, p))
		take_of_runs(old, new, limit, alpha, detect, ret);
	else
		compare_tail(old, new, limit, alpha, detect, ret);
}
