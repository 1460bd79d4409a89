/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics page, to the byte. */
#include "common/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/limits.h"
#include "tests/unit/tap.h"

static void test_plain(void)
{
	struct metrics *m = metrics_new();
	struct metrics_family *a, *b, *c;
	char *text = metrics_text(m);

	is_str(text, "", "no families, no page");
	free(text);
	a = metrics_family(
		m, METRICS_COUNTER, "x_total", "Things, as \"they\" come \\ go.\nYes.", "");
	b = metrics_family(m, METRICS_GAUGE, "y_bytes", "Bytes.", "template,state");
	c = metrics_family(m, METRICS_GAUGE, "z", "Nothing yet.", "a");
	(void)c;
	metrics_add(a, 1, NULL);
	metrics_add(a, 2, NULL);
	metrics_set(b, 1e12, "base", "running", NULL);
	metrics_set(b, 0.25, "a\"b\\c\nd", "", NULL);
	metrics_set(b, 7, "base", "running", NULL);
	metrics_set(b, -1, "base", "x", NULL);
	text = metrics_text(m);
	is_str(text,
		"# HELP x_total Things, as \"they\" come \\\\ go.\\nYes.\n"
		"# TYPE x_total counter\n"
		"x_total 3\n"
		"# HELP y_bytes Bytes.\n"
		"# TYPE y_bytes gauge\n"
		"y_bytes{template=\"base\",state=\"running\"} 7\n"
		"y_bytes{template=\"a\\\"b\\\\c\\nd\",state=\"\"} 0.25\n"
		"y_bytes{template=\"base\",state=\"x\"} -1\n"
		"# HELP z Nothing yet.\n"
		"# TYPE z gauge\n",
		"counters and gauges");
	free(text);
	metrics_reset(b);
	metrics_set(b, INFINITY, "new", "x", NULL);
	metrics_set(b, NAN, "new", "y", NULL);
	metrics_set(b, 123456789012.0, "new", "z", NULL);
	text = metrics_text(m);
	ok(!strstr(text, "base"), "a gauge forgets its series");
	has_str(text, "state=\"x\"} +Inf\n", "infinity");
	has_str(text, "state=\"y\"} NaN\n", "no number");
	has_str(text, "state=\"z\"} 123456789012\n", "a large number is whole");
	free(text);
	metrics_free(m);
}

static void test_histogram(void)
{
	struct metrics *m = metrics_new();
	struct metrics_family *f =
		metrics_family(m, METRICS_HISTOGRAM, "t_seconds", "Time.", "mode");
	struct metrics_family *bare =
		metrics_family(m, METRICS_HISTOGRAM, "u_seconds", "Time.", "");
	char *text;

	metrics_observe(f, 0.001, "spare", NULL); /* on a bound: in it */
	metrics_observe(f, 0.0011, "spare", NULL);
	metrics_observe(f, 31, "spare", NULL);
	metrics_observe(f, 0, "standby", NULL);
	metrics_observe(bare, 0.05, NULL);
	text = metrics_text(m);
	has_str(text, "# TYPE t_seconds histogram\n", "a histogram tells its type");
	has_str(text,
		"t_seconds_bucket{mode=\"spare\",le=\"0.0005\"} 0\n"
		"t_seconds_bucket{mode=\"spare\",le=\"0.001\"} 1\n"
		"t_seconds_bucket{mode=\"spare\",le=\"0.002\"} 2\n",
		"buckets add up");
	has_str(text,
		"t_seconds_bucket{mode=\"spare\",le=\"30\"} 2\n"
		"t_seconds_bucket{mode=\"spare\",le=\"+Inf\"} 3\n"
		"t_seconds_sum{mode=\"spare\"} 31.0021\n"
		"t_seconds_count{mode=\"spare\"} 3\n",
		"the last bucket, sum and count");
	has_str(text, "t_seconds_bucket{mode=\"standby\",le=\"0.0005\"} 1\n",
		"a series of its own");
	has_str(text, "u_seconds_bucket{le=\"0.04\"} 0\nu_seconds_bucket{le=\"0.06\"} 1\n",
		"without labels");
	has_str(text, "u_seconds_sum 0.05\nu_seconds_count 1\n",
		"a histogram tells its sum and count");
	free(text);
	metrics_free(m);
}

static void test_bound(void)
{
	struct metrics *m = metrics_new();
	struct metrics_family *f = metrics_family(m, METRICS_COUNTER, "n", "N.", "a,b");
	unsigned lines = 0;
	char *text, name[16];

	for (int i = 0; i < LIMIT_METRICS_SERIES + 50; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		metrics_add(f, 1, name, "x", NULL);
	}
	metrics_add(f, 1, "k0", "x", NULL);
	text = metrics_text(m);
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	is_int(lines, LIMIT_METRICS_SERIES + 1 + 2, "series are bounded");
	has_str(text, "n{a=\"other\",b=\"other\"} 50\n", "the rest are added up");
	has_str(text, "n{a=\"k0\",b=\"x\"} 2\n", "old ones go on");
	free(text);
	metrics_free(m);
}

int main(void)
{
	test_plain();
	test_histogram();
	test_bound();
	return tap_done();
}
