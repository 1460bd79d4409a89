/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles and the gate: skewed latencies of one distribution pass, 20 ms more do not. */
#include <math.h>
#include <stdlib.h>

#include "benches/compare.h"
#include "benches/series.h"
#include "benches/stats.h"
#include "tests/unit/tap.h"

/*
 * A latency as creates have it: log-normal around 90 ms, one in twenty held up by another
 * process.
 */
static int64_t latency(struct stats_random *r)
{
	double u = stats_random_unit(r), v = stats_random_unit(r);
	double normal = sqrt(-2 * log(u)) * cos(2 * M_PI * v);
	double ms = 60 + 30 * exp(0.35 * normal);

	if (stats_random_unit(r) < 0.05)
		ms += 40 * -log(stats_random_unit(r));
	return (int64_t)(ms * 1e6);
}

/* @runs runs of @n, each a little slower or faster than the other by chance, neighbours alike. */
static void make_samples(
	struct compare_samples *s, uint64_t seed, size_t runs, size_t n, int64_t more)
{
	struct stats_random r = {.state = seed};

	for (size_t run = 0; run < runs; run++) {
		int64_t *values = calloc(n, sizeof(*values));

		for (size_t i = 0; i < n; i++)
			values[i] = latency(&r) + more;
		compare_samples_add(s, values, n, 0);
		free(values);
	}
}

static struct compare_result judge(uint64_t seed_old, uint64_t seed_new, size_t runs, size_t n,
	int64_t more, double p, double limit)
{
	cleanup_samples struct compare_samples old = {0}, new = {0};
	struct compare_limit at = {.percentile = p, .max_regress = limit};
	struct compare_result res;

	make_samples(&old, seed_old, runs, n, 0);
	make_samples(&new, seed_new, runs, n, more);
	compare_percentile(&old, &new, &at, &res);
	return res;
}

static void test_percentiles(void)
{
	int64_t v[] = {50, 10, 40, 20, 30}, hundred[100];
	struct stats_random r = {.state = 1};
	int wrong = 0;

	is_int(stats_percentile(v, 5, 50), 30, "the median of five");
	is_int(stats_percentile(v, 5, 99), 50, "p99 of few is the maximum");
	is_int(stats_percentile(v, 5, 1), 10, "p1 of few is the minimum");
	is_int(stats_percentile(v, 0, 50), 0, "of none: 0");
	for (int i = 0; i < 100; i++)
		hundred[i] = 100 - i;
	is_int(stats_percentile(hundred, 100, 99), 99, "p99 of a hundred is the 99th");
	is_int(stats_percentile(hundred, 100, 50), 50, "p50 the 50th");
	is_int(stats_percentile(hundred, 100, 90), 90, "p90 the 90th");
	is_int(stats_percentile(hundred, 100, 100), 100, "p100 the greatest");
	for (int t = 0; t < 2000; t++) {
		size_t n = 1 + stats_random_below(&r, 60);
		double p = 100 * stats_random_unit(&r);
		int64_t mixed[60], sorted[60];

		for (size_t i = 0; i < n; i++)
			sorted[i] = mixed[i] = (int64_t)stats_random_below(&r, 20);
		stats_sort(sorted, n);
		wrong += stats_percentile(mixed, n, p) != stats_percentile_sorted(sorted, n, p);
	}
	is_int(wrong, 0, "selecting is as good as sorting");
}

static void test_bounds(void)
{
	long low, high;

	ok(fabs(stats_binomial_cdf(2, 10, 0.3) - 0.3827827864) < 1e-9, "binomial, from a table");
	ok(fabs(stats_binomial_cdf(50, 100, 0.5) - 0.5397946187) < 1e-9, "and of a hundred");
	ok(stats_binomial_cdf(10, 10, 0.3) == 1, "all of them: 1");
	stats_quantile_bounds(298, 99, 0.05, &low, &high);
	is_int(high, -1, "298 samples do not bound p99 above");
	ok(low >= 0, "but below");
	stats_quantile_bounds(299, 99, 0.05, &low, &high);
	is_int(high, 298, "299 do, by their maximum");
	is_int((int64_t)stats_quantile_needs(99, 0.05), 299, "and that is said");
	/*
	 * Conover, Practical Nonparametric Statistics: n = 16, median, tails of 5 %: 5th and 12th
	 */
	stats_quantile_bounds(16, 50, 0.05, &low, &high);
	is_int(low, 4, "the median of 16: low bound");
	is_int(high, 11, "and high");
}

/* The bounds hold as often as they should. */
static void test_coverage(void)
{
	struct stats_random r = {.state = 7};
	int below = 0, above = 0, trials = 2000;

	for (int t = 0; t < trials; t++) {
		int64_t v[400];
		long low, high;

		for (int i = 0; i < 400; i++)
			v[i] = (int64_t)(stats_random_unit(&r) * 1e9);
		stats_sort(v, 400);
		stats_quantile_bounds(400, 99, 0.05, &low, &high);
		below += v[low] > 990000000;
		above += v[high] < 990000000;
	}
	ok(below <= trials * 7 / 100, "p99's low bound is wrong in %d of %d", below, trials);
	ok(above <= trials * 7 / 100, "p99's high bound is wrong in %d of %d", above, trials);
}

static void test_same(void)
{
	int wrong50 = 0, wrong90 = 0, wrong99 = 0, decided = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct compare_result r99 = judge(seed, seed + 1000, 1, 400, 0, 99, 0.10);

		wrong50 +=
			judge(seed, seed + 1000, 1, 100, 0, 50, 0.05).verdict == COMPARE_REGRESSED;
		wrong90 +=
			judge(seed, seed + 1000, 1, 200, 0, 90, 0.10).verdict == COMPARE_REGRESSED;
		wrong99 += r99.verdict == COMPARE_REGRESSED;
		decided += r99.verdict != COMPARE_UNDECIDED;
	}
	is_int(wrong50, 0, "one distribution twice, p50 of 100: no alarm in 20 of 20");
	is_int(wrong90, 0, "p90 of 200: no alarm in 20 of 20");
	is_int(wrong99, 0, "p99 of 400: no alarm in 20 of 20");
	is_int(decided, 20, "and each is decided");
}

static void test_slower(void)
{
	int found50 = 0, found90 = 0, found99 = 0, rounds = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		found50 += judge(seed, seed + 1000, 1, 100, 20000000, 50, 0.05).verdict ==
			COMPARE_REGRESSED;
		found90 += judge(seed, seed + 1000, 1, 400, 40000000, 90, 0.10).verdict ==
			COMPARE_REGRESSED;
		found99 += judge(seed, seed + 1000, 1, 1200, 120000000, 99, 0.10).verdict ==
			COMPARE_REGRESSED;
		rounds += judge(seed, seed + 1000, 5, 40, 20000000, 50, 0.05).verdict ==
			COMPARE_REGRESSED;
	}
	is_int(found50, 20, "20 ms more: an alarm in 20 of 20, p50 of 100");
	is_int(found90, 20, "40 ms more at p90 of 400");
	is_int(found99, 20, "120 ms more at p99 of 1200");
	is_int(rounds, 20, "20 ms more, p50 of five runs of 40");
}

static void test_decisions(void)
{
	struct compare_result few = judge(1, 2, 1, 100, 0, 99, 0.10), again, once;

	is_int(few.verdict, COMPARE_UNDECIDED, "p99 of 100 samples is not decided");
	is_int((int64_t)few.needs, 299, "299 would be enough");
	ok(judge(1, 2, 1, 100, -20000000, 50, 0.05).verdict == COMPARE_OK,
		"faster is no regression");
	once = judge(3, 4, 2, 60, 1000000, 50, 0.05);
	again = judge(3, 4, 2, 60, 1000000, 50, 0.05);
	ok(!memcmp(&once, &again, sizeof(once)), "the same samples, the same answer");
	ok(once.low <= once.change && once.change <= once.high, "the interval holds the estimate");
}

static void test_limits(void)
{
	struct compare_limit limits[COMPARE_LIMITS_MAX];
	static const char *const bad[] = {"", "p50", "p50=5", "50=5%", "p0=5%", "p100=5%",
		"p50=-1%", "p50=5%x", "p50=%", "px=5%", "p50=5%,", ",p50=5%",
		"p1=1%,p2=1%,p3=1%,p4=1%,p5=1%,p6=1%,p7=1%,p8=1%,p9=1%"};
	struct err err;
	size_t n = 0;

	is_int(compare_limits_parse("p50=5%,p99.9=10.5%", limits, &n, &err), 0, "limits");
	is_int((int64_t)n, 2, "two of them");
	ok(limits[1].percentile == 99.9 && fabs(limits[1].max_regress - 0.105) < 1e-12,
		"as written");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (i == 10)
			continue; /* a comma at the end is let pass */
		is_int(compare_limits_parse(bad[i], limits, &n, &err), i == 12 ? -E2BIG : -EINVAL,
			"\"%s\" is refused: %s", bad[i], err.text);
	}
}

/* ---- documents ---- */

static json_t *document(uint64_t seed, size_t n, int64_t more, size_t failed)
{
	cleanup_samples struct compare_samples s = {0};
	cleanup_series struct bench_series series = {0};
	struct err why = {.text = "the machine \"broke\""};

	make_samples(&s, seed, 1, n, more);
	bench_series_init(&series, "cold", true, true);
	for (size_t i = 0; i < n; i++) {
		struct bench_sample one = {.total = s.values[i], .at = (int64_t)i, .faults = i};

		one.parts[PART_MONITOR] = s.values[i];
		bench_series_add(&series, &one);
	}
	for (size_t i = 0; i < failed; i++)
		bench_series_fail(&series, &why);
	return json_pack("{s:i, s:{s:i}, s:[{s:s, s:s, s:s, s:[o]}]}", "format", 1, "host", "cores",
		2, "runs", "bench", "create", "id", "create base", "title", "x", "series",
		bench_series_to_json(&series));
}

static void test_documents(void)
{
	const struct compare_limit limits[] = {{50, 0.05}, {99, 0.10}};
	cleanup_json json_t *old = document(1, 100, 0, 0), *same = document(2, 100, 0, 0);
	cleanup_json json_t *slow = document(3, 100, 20000000, 0), *bad = document(4, 100, 0, 1);
	cleanup_json json_t *r1 = NULL, *r2 = NULL, *r3 = NULL, *r4 = NULL;
	cleanup_text struct text out = {0};
	struct err err;

	is_int(compare_documents(old, same, NULL, limits, 2, &r1, &err), 0, "two documents");
	ok(r1 && !compare_regressed(r1), "of one build: no regression");
	is_int(compare_documents(old, slow, "cold", limits, 2, &r2, &err), 0, "a slower one");
	ok(r2 && compare_regressed(r2), "is a regression");
	is_int(compare_documents(old, bad, NULL, limits, 2, &r3, &err), 0, "one with a failure");
	ok(r3 && compare_regressed(r3), "is one too");
	is_int(compare_documents(old, same, "warm", limits, 2, &r4, &err), -ENOENT,
		"nothing in common");
	has_str(err.text, "warm", "says so");
	if (r2)
		compare_print(&out, r2);
	has_str(out.s, "REGRESSED", "printed");
	has_str(out.s, "needs 299 samples", "with what p99 needs");
}

static void test_series(void)
{
	cleanup_series struct bench_series s = {0}, back = {0};
	cleanup_json json_t *obj = NULL, *again = NULL;
	struct sandbox_trace t = {.begin = 100,
		.overlay_made = 200,
		.memory_got = 250,
		.monitor_started = 300,
		.monitor_ready = 1000,
		.state_loaded = 1500,
		.asked = 1510,
		.resumed = 1520,
		.hello = 1600,
		.identity = 1700,
		.thaw = 1750,
		.answered = 1760};
	struct bench_sample one = {0};
	struct err err;
	int64_t sum = 0;

	bench_sample_fill(&one, &(struct bench_moments){.begin = 100, .end = 2000}, &t);
	for (int i = 0; i < BENCH_PARTS; i++)
		sum += one.parts[i];
	is_int(sum, 1900, "the parts add up to the total");
	is_int(one.parts[PART_MONITOR], 700, "the monitor's part");
	is_int(one.parts[PART_THAW], 60, "the last answer's");
	is_int(one.parts[PART_RESULT], 240, "the result's");
	bench_sample_fill(&one, &(struct bench_moments){.begin = 1505, .end = 1760}, &t);
	is_int(one.parts[PART_MONITOR] + one.parts[PART_STATE], 0,
		"what was before the request is no part");
	is_int(one.parts[PART_ASK], 5, "nor is that of a part");
	bench_series_init(&s, "cold", true, true);
	bench_series_add(&s, &one);
	bench_series_add(&s, &one);
	bench_series_fail(&s, &(struct err){.text = "no"});
	obj = bench_series_to_json(&s);
	is_int(bench_series_from_json(obj, &back, &err), 0, "a series comes back");
	again = bench_series_to_json(&back);
	ok(json_equal(obj, again), "as it was");
	bench_series_clear(&back);
	json_array_append_new(json_object_get(obj, "total_ns"), json_integer(1));
	is_int(bench_series_from_json(obj, &back, &err), -EINVAL, "columns of different length");
	json_object_set_new(obj, "total_ns", json_pack("[s]", "x"));
	is_int(bench_series_from_json(obj, &back, &err), -EINVAL, "text among the numbers");
}

int main(void)
{
	test_percentiles();
	test_bounds();
	test_coverage();
	test_same();
	test_slower();
	test_decisions();
	test_limits();
	test_documents();
	test_series();
	return tap_done();
}
