/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles and the gate: skewed latencies of one distribution pass, 20 ms more do not. */
#include <math.h>
#include <stdlib.h>

#include "benches/compare_documents.h"
#include "benches/permute.h"
#include "benches/series.h"
#include "benches/stats.h"
#include "common/str.h"
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
		compare_samples_add(s, values, n, 0, -1);
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
	compare_quantity(&old, &new, &at, 0.001, 0.05, &res);
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
	is_int(stats_percentile(v, 0, 50), 0, "the percentile of no sample is 0");
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

/* ---- exact tests, by figures from tables and by hand ---- */

static void test_permute(void)
{
	const unsigned ten[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, ties[] = {2, 2, 2};
	const double d[] = {0.1, 0.2, 0.15, 0.3, 0.05, 0.12}, a[] = {1, 2, 3, 4},
		     b[] = {2.5, 3.5, 4.5, 5.5};
	struct permute_shift s;

	/* Hollander, Wolfe, Chicken, table A.4: P(T+ ≥ 47) of n = 10 is 0.024 */
	ok(fabs(permute_signs(ten, 10, 47) - 25.0 / 1024) < 1e-12, "signed ranks of ten");
	ok(fabs(permute_groups(ten, 10, 5, 40) - 1.0 / 252) < 1e-12, "the five greatest of ten");
	ok(fabs(permute_groups(ten, 10, 5, 39) - 2.0 / 252) < 1e-12,
		"the sum next to the five greatest of ten has its probability");
	ok(fabs(permute_signs(ties, 3, 4) - 0.5) < 1e-12, "weights that are equal");
	is_int((int)permute_signs(ten, 0, 0), 1, "of no difference every sum is likely");
	permute_pairs(d, 6, 0, &s);
	ok(fabs(s.estimate - 0.15) < 1e-12 && fabs(s.low - 0.05) < 1e-12 &&
			fabs(s.high - 0.3) < 1e-12,
		"six pairs: the interval is from the least to the greatest");
	ok(fabs(s.above - 1.0 / 64) < 1e-12, "six pairs that are all above have an interval above");
	permute_pairs(d, 5, 0, &s);
	ok(isinf(s.low) && isinf(s.high), "five pairs have no 95 %% interval");
	permute_two(a, 4, b, 4, 0, &s);
	ok(fabs(s.estimate - 1.5) < 1e-12 && fabs(s.above - 7.0 / 70) < 1e-12,
		"two groups of four: 13 of 16 pairs above");
	ok(fabs(permute_normal_tail(0.025) - 1.959964) < 1e-5,
		"the tail of the normal distribution is right");
}

/* The normal approximation takes over where counting would be long: the two agree there. */
static void test_permute_many(void)
{
	struct stats_random r = {.state = 3};
	struct permute_shift exact, normal;
	double d[66];

	for (int i = 0; i < 66; i++)
		d[i] = stats_random_unit(&r) - 0.4;
	permute_pairs(d, 64, 0, &exact);
	permute_pairs(d, 66, 0, &normal);
	ok(fabs(exact.low - normal.low) < 0.05 && fabs(exact.high - normal.high) < 0.05,
		"bounds of 64 pairs (%.3f to %.3f) and of 66 (%.3f to %.3f)", exact.low, exact.high,
		normal.low, normal.high);
	ok(normal.above < 0.05, "bounds of what lies above are above");
}

/* ---- decisions ---- */

static int found(
	size_t runs, size_t n, int64_t more, double p, double limit, enum compare_verdict verdict)
{
	int hits = 0;

	for (uint64_t seed = 1; seed <= 20; seed++)
		hits += judge(seed, seed + 1000, runs, n, more, p, limit).verdict == verdict;
	return hits;
}

static void test_same(void)
{
	is_int(found(10, 40, 0, 50, 0.05, COMPARE_SLOWER), 0,
		"the p50 of one distribution twice gives no alarm");
	is_int(found(10, 40, 0, 90, 0.10, COMPARE_SLOWER), 0, "p90: no alarm");
	is_int(found(10, 100, 0, 99, 0.10, COMPARE_SLOWER), 0, "p99: no alarm");
	is_int(found(1, 400, 0, 50, 0.05, COMPARE_UNDECIDED), 20,
		"one run of each is never decided");
	is_int(found(1, 400, 200000000, 50, 0.05, COMPARE_SLOWER), 0, "whatever it shows");
}

static void test_slower(void)
{
	is_int(found(10, 40, 20000000, 50, 0.05, COMPARE_SLOWER), 20, "20 ms more at p50: found");
	is_int(found(10, 100, 60000000, 90, 0.10, COMPARE_SLOWER), 20, "60 ms more at p90: found");
	is_int(found(10, 120, 400000000, 99, 0.10, COMPARE_SLOWER), 20,
		"400 ms more at p99: found");
	is_int(found(10, 40, -20000000, 50, 0.05, COMPARE_FASTER), 20, "20 ms less are faster");
}

/* Nine slow creates in one run of five are one run's matter, not the build's. */
static void test_one_bad_run(void)
{
	cleanup_samples struct compare_samples old = {0}, new = {0};
	const struct compare_limit at = {.percentile = 99, .max_regress = 0.10};
	struct compare_result res;

	make_samples(&old, 1, 5, 80, 0);
	make_samples(&new, 2, 5, 80, 0);
	for (int i = 0; i < 9; i++)
		new.values[160 + i * 5] += 400000000;
	compare_quantity(&old, &new, &at, 0.005, 0.05, &res);
	ok(res.verdict != COMPARE_SLOWER, "nine slow creates in one run of five are no verdict");
}

static void test_decisions(void)
{
	struct compare_result few = judge(1, 2, 10, 10, 0, 99.9, 0.10), again, once;

	is_int(few.verdict, COMPARE_UNTESTED, "p99.9 of 100 samples is not tested");
	ok(few.needs >= 3000, "%zu would be enough", few.needs);
	once = judge(3, 4, 6, 60, 1000000, 50, 0.05);
	again = judge(3, 4, 6, 60, 1000000, 50, 0.05);
	ok(!memcmp(&once, &again, sizeof(once)), "the same samples, the same answer");
	ok(once.low <= once.change && once.change <= once.high, "the interval holds the estimate");
}

static void test_failures(void)
{
	const struct compare_limit at = {.percentile = COMPARE_FAILURES};
	cleanup_samples struct compare_samples none = {0}, one = {0}, many = {0}, old = {0},
					       new = {0};
	int64_t values[20];
	struct compare_result res;

	for (int i = 0; i < 20; i++)
		values[i] = 1000000;
	compare_samples_add(&none, values, 20, 0, -1);
	compare_samples_add(&one, values, 19, 1, -1);
	compare_samples_add(&many, values, 8, 12, -1);
	compare_quantity(&none, &none, &at, 0.001, 0.05, &res);
	is_int(res.verdict, COMPARE_SAME, "no failures");
	compare_quantity(&none, &one, &at, 0.001, 0.05, &res);
	is_int(res.verdict, COMPARE_UNDECIDED,
		"one failure of twenty decides nothing, and is not passed over");
	compare_quantity(&none, &many, &at, 0.001, 0.05, &res);
	is_int(res.verdict, COMPARE_SLOWER, "twelve of twenty do");
	for (int i = 0; i < 12; i++) {
		compare_samples_add(&old, values, 20, 0, i);
		compare_samples_add(&new, values, 19, 1, i);
	}
	compare_quantity(&old, &new, &at, 0.001, 0.05, &res);
	is_int(res.verdict, COMPARE_SLOWER, "a failure in each of twelve rounds decides");
}

/* A slow minute meets both runs of a round, and is neither build's. */
static void test_rounds(void)
{
	cleanup_samples struct compare_samples old = {0}, new = {0}, slow = {0};
	const struct compare_limit p50 = {.percentile = 50}, p99 = {.percentile = 99};
	struct stats_random r = {.state = 5};
	struct compare_result res;

	for (long round = 0; round < 24; round++) {
		double minute = exp(2 * stats_random_unit(&r));
		int64_t a[30], b[30], c[30];

		for (int i = 0; i < 30; i++) {
			a[i] = (int64_t)((double)latency(&r) * minute);
			b[i] = (int64_t)((double)latency(&r) * minute);
			c[i] = (int64_t)((double)latency(&r) * minute * 1.1);
		}
		compare_samples_add(&old, a, 30, 0, round);
		compare_samples_add(&new, b, 30, 0, round);
		compare_samples_add(&slow, c, 30, 0, round);
	}
	compare_quantity(&old, &new, &p50, 0.001, 0.05, &res);
	is_int(res.verdict, COMPARE_SAME,
		"minutes that differ sevenfold: the same build is the same");
	compare_quantity(&old, &slow, &p50, 0.001, 0.05, &res);
	is_int(res.verdict, COMPARE_SLOWER,
		"minutes that differ sevenfold do not hide 10 %% of slowness");
	compare_quantity(&old, &new, &p99, 0.001, 0.05, &res);
	ok(res.method == COMPARE_PAIRED_COUNTS && res.verdict != COMPARE_SLOWER, "p99 too");
}

static void test_limits(void)
{
	struct compare_limit limits[COMPARE_LIMITS_MAX];
	static const char *const bad[] = {"", "p50", "p50=5", "50=5%", "p0=5%", "p100=5%",
		"p50=-1%", "p50=5%x", "p50=%", "px=5%", "p50=5%,", ",p50=5%",
		"p1=1%,p2=1%,p3=1%,p4=1%,p5=1%,p6=1%,p7=1%,p8=1%,p9=1%"};
	struct err err;
	size_t n = 0;

	is_int(compare_limits_parse("p50=5%,p99.9=10.5%", limits, &n, &err), 0, "limits are read");
	is_int((int64_t)n, 2, "two of them");
	ok(limits[1].percentile == 99.9 && fabs(limits[1].max_regress - 0.105) < 1e-12,
		"limits are as they were written");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (i == 10)
			continue; /* a comma at the end is let pass */
		is_int(compare_limits_parse(bad[i], limits, &n, &err), i == 12 ? -E2BIG : -EINVAL,
			"\"%s\" is refused: %s", bad[i], err.text);
	}
}

/* ---- documents ---- */

/* @runs runs of one measurement. */
static json_t *document(uint64_t seed, size_t runs, size_t n, int64_t more, size_t failed)
{
	json_t *doc = json_pack("{s:i, s:s, s:{s:i}, s:[]}", "format", 1, "parbake", "1", "host",
		"cores", 2, "runs");
	struct err why = {.text = "the machine \"broke\""};

	for (size_t run = 0; run < runs; run++) {
		cleanup_samples struct compare_samples s = {0};
		cleanup_series struct bench_series series = {0};

		make_samples(&s, seed * 100 + run, 1, n, more);
		bench_series_init(&series, "cold", true, true);
		for (size_t i = 0; i < n; i++) {
			struct bench_sample one = {
				.total = s.values[i], .at = (int64_t)i, .faults = i};

			one.parts[PART_MONITOR] = s.values[i];
			bench_series_add(&series, &one);
		}
		for (size_t i = 0; i < failed; i++)
			bench_series_fail(&series, &why);
		json_array_append_new(json_object_get(doc, "runs"),
			json_pack("{s:s, s:s, s:s, s:{s:s}, s:[o]}", "bench", "create", "id",
				"create base", "title", "x", "facts", "digest", "sha256:1",
				"series", bench_series_to_json(&series)));
	}
	return doc;
}

static const struct compare_limit document_limits[] = {
	{50, 0.05}, {99, 0.10}, {COMPARE_FAILURES, 0}};

static char *verdict_of(const json_t *old, const json_t *new, const char *only, unsigned across)
{
	const struct compare_request rq = {.only = only,
		.limits = document_limits,
		.n_limits = 3,
		.detect = 0.05,
		.across = across};
	cleanup_json json_t *result = NULL;
	cleanup_text struct text out = {0};
	struct err err;

	if (compare_documents(old, new, &rq, &result, &err) < 0)
		return str_dup(err.text);
	compare_print(&out, result);
	return str_printf("%d %s", (int)compare_outcome_of(result), out.s);
}

static void said(const json_t *old, const json_t *new, const char *only, unsigned across,
	const char *what, const char *name)
{
	cleanup_free char *text = verdict_of(old, new, only, across);

	has_str(text, what, "%s", name);
}

static void test_documents(void)
{
	cleanup_json json_t *old = document(1, 10, 40, 0, 0), *same = document(2, 10, 40, 0, 0);
	cleanup_json json_t *slow = document(3, 10, 40, 20000000, 0),
			    *bad = document(4, 10, 20, 0, 15);
	cleanup_json json_t *single = document(5, 1, 100, 0, 0), *none = document(6, 1, 0, 0, 9);
	cleanup_json json_t *other = document(7, 10, 40, 0, 0), *gone = document(8, 10, 40, 0, 0);

	json_object_set_new(json_object_get(other, "host"), "cores", json_integer(4));
	json_object_set_new(
		json_array_get(
			json_object_get(json_array_get(json_object_get(gone, "runs"), 0), "series"),
			0),
		"name", json_string("warm"));
	json_object_set_new(
		gone, "runs", json_pack("[O]", json_array_get(json_object_get(gone, "runs"), 0)));
	said(old, same, NULL, 0, "0 ", "documents of one build: exit status 0");
	said(old, same, NULL, 0, "verdict: same", "the same");
	said(old, same, NULL, 0, "measured at different times",
		"with a word on what that is worth");
	said(old, slow, "cold", 0, "1 ", "a slower one: 1");
	said(old, slow, "cold", 0, "because: create base cold: p50 is +",
		"a slower one is told with its reason");
	said(old, bad, NULL, 0, "1 ", "one that fails more often: 1");
	said(old, bad, NULL, 0, "150 of 350 failed, 0 of 400 before", "with both counts");
	said(old, single, NULL, 0, "3 ", "one run: undecided, 3");
	said(old, single, NULL, 0, "fewer than 4", "since nothing is known of how runs differ");
	said(old, none, NULL, 0, "1 ", "none of whose creates succeeded: 1");
	said(old, gone, NULL, 0, "1 ", "without a series that the old one has: 1");
	said(old, gone, NULL, 0, "does not have it any more", "a series that vanished is named");
	said(old, other, NULL, 0, "2 ", "a comparison with another host ends with 2");
	said(old, other, NULL, ACROSS_HOST, "0 ", "unless that is asked for");
	said(old, same, "warm", 0, "2 ", "nothing to compare: 2");
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
	is_int(one.parts[PART_ASK], 5, "a part of a series that was not asked for is no part");
	bench_series_init(&s, "cold", true, true);
	bench_series_add(&s, &one);
	bench_series_add(&s, &one);
	bench_series_fail(&s, &(struct err){.text = "no"});
	obj = bench_series_to_json(&s);
	is_int(bench_series_from_json(obj, &back, &err), 0, "a series comes back");
	again = bench_series_to_json(&back);
	ok(json_equal(obj, again), "a series comes back as it was");
	bench_series_clear(&back);
	json_object_set_new(obj, "name", json_string("shell"));
	is_int(bench_series_from_json(obj, &back, &err), 0, "a series of an older document");
	is_str(back.name, "standby", "a series called shell is read as standby");
	bench_series_clear(&back);
	json_array_append_new(json_object_get(obj, "total_ns"), json_integer(1));
	is_int(bench_series_from_json(obj, &back, &err), -EINVAL, "columns of different length");
	json_object_set_new(obj, "total_ns", json_pack("[s]", "x"));
	is_int(bench_series_from_json(obj, &back, &err), -EINVAL, "text among the numbers");
}

int main(void)
{
	test_percentiles();
	test_permute();
	test_permute_many();
	test_same();
	test_slower();
	test_one_bad_run();
	test_decisions();
	test_failures();
	test_rounds();
	test_limits();
	test_documents();
	test_series();
	return tap_done();
}
