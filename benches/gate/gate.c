/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the gate is right, on creates that were never made (model.h): false alarms, what it finds, how often its
 * intervals hold. `make bench-gate` prints this; what benches/METHOD.md says of the gate it says from here.
 *
 *     bench_gate [TIMES]        so many of each (200); the exit status is 1 where one misses what it must
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/gate/gate.h"
#include "benches/gate/model.h"
#include "benches/history.h"
#include "benches/plan.h"

unsigned gate_times = 200;
static unsigned missed;

void gate_say(const char *what, unsigned hits, unsigned of, bool least, double percent)
{
	double share = of ? 100.0 * hits / of : 0;
	bool bad = percent >= 0 && (least ? share < percent : share > percent);

	printf("  %-66s %4u of %4u", what, hits, of);
	if (percent >= 0)
		printf("   must be %s %g %%%s", least ? "≥" : "≤", percent, bad ? "   MISSED" : "");
	printf("\n");
	missed += bad;
}

/* ---- two builds in turn -------------------------------------------------------------------- */

struct tally {
	unsigned slower, faster, undecided, same;
	double rounds, seconds;
};

/* What `bench ab` would say: judged as compare_documents() does. */
static enum compare_verdict judge(const struct compare_samples *old,
	const struct compare_samples *new, const struct compare_limit *limits, size_t n,
	double detect)
{
	enum compare_verdict all = COMPARE_SAME;
	double alpha[COMPARE_LIMITS_MAX];
	bool faster = false;

	compare_share_alpha(limits, n, 1, alpha);
	for (size_t i = 0; i < n; i++) {
		struct compare_result res;

		compare_quantity(old, new, &limits[i], alpha[i], detect, &res);
		if (res.verdict == COMPARE_SLOWER)
			return COMPARE_SLOWER;
		if (res.verdict == COMPARE_UNDECIDED &&
			(limits[i].percentile == 50 || limits[i].percentile == COMPARE_FAILURES))
			all = COMPARE_UNDECIDED;
		faster |= res.verdict == COMPARE_FASTER;
	}
	return all == COMPARE_SAME && faster ? COMPARE_FASTER : all;
}

static struct tally in_turn(const struct model *m, const struct change *change, uint64_t seed)
{
	struct tally t = {0};

	for (unsigned i = 0; i < gate_times; i++) {
		cleanup_samples struct compare_samples old = {0}, new = {0};
		struct model_state state;
		enum compare_verdict v;

		model_begin(m, &state, seed * 100000 + i);
		model_ab(m, &state, change, PLAN_DETECT, PLAN_TIME_MS, &old, &new);
		v = judge(&old, &new, plan_limits, PLAN_LIMITS, PLAN_DETECT);
		t.slower += v == COMPARE_SLOWER;
		t.faster += v == COMPARE_FASTER;
		t.undecided += v == COMPARE_UNDECIDED;
		t.same += v == COMPARE_SAME;
		t.rounds += (double)old.n_runs / gate_times;
		t.seconds += state.clock_ms / 1e3 / gate_times;
	}
	return t;
}

static void simulate_in_turn(void)
{
	static const struct {
		const char *name;
		struct change change;
		double least; /* percent found; < 0: not asked */
	} changes[] = {
		{"p50 5 % slower: found", {.slower = 0.05}, 80},
		{"p50 10 % slower: found", {.slower = 0.10}, 99},
		{"a tenth of creates twice as long: found", {.share = 0.1, .times = 2}, 95},
		{"3 % of creates 50 ms longer: found", {.share = 0.03, .more_ms = 50}, 95},
		{"2 % of creates fail: found", {.fails = 0.02}, -1},
	};
	static const struct change none = {0}, better = {.slower = -0.05};
	struct tally t = in_turn(&model_idle, &none, 1);

	printf("\nbench ab, default size (5 %%) and time (3 minutes), an idle host\n");
	gate_say("one build with itself: called slower", t.slower, gate_times, false, 1);
	gate_say("  called faster", t.faster, gate_times, false, 1);
	gate_say("  called the same", t.same, gate_times, true, 80);
	gate_say("  undecided", t.undecided, gate_times, false, -1);
	printf("  %.0f rounds, %.0f s of measuring, on the average\n", t.rounds, t.seconds);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		t = in_turn(&model_idle, &changes[i].change, 2 + i);
		gate_say(changes[i].name, t.slower, gate_times, true, changes[i].least);
		gate_say("  called the same", t.same, gate_times, false,
			changes[i].least > 0 ? 5 : -1);
	}
	t = in_turn(&model_idle, &better, 20);
	gate_say("p50 5 % faster: called slower", t.slower, gate_times, false, 1);
	gate_say("  called faster", t.faster, gate_times, true, -1);

	printf("\nthe same beside other work (run to run 10 %%, a fifth of runs held up)\n");
	t = in_turn(&model_busy, &none, 30);
	gate_say("one build with itself: called slower", t.slower, gate_times, false, 1);
	gate_say("  called faster", t.faster, gate_times, false, 1);
	gate_say("  undecided", t.undecided, gate_times, false, -1);
	t = in_turn(&model_busy, &changes[0].change, 31);
	gate_say("p50 5 % slower: found", t.slower, gate_times, true, -1);
	gate_say("  called the same", t.same, gate_times, false, 5);
	t = in_turn(&model_busy, &(struct change){.slower = 0.3}, 32);
	gate_say("p50 30 % slower: found", t.slower, gate_times, true, -1);
}

/* ---- documents of different times ---------------------------------------------------------- */

static void runs(const struct model *m, struct model_state *s, const struct change *change,
	size_t n_runs, size_t n, struct compare_samples *to)
{
	for (size_t i = 0; i < n_runs; i++)
		model_run(m, s, change, n, -1, to);
}

static unsigned stored(const struct change *change, size_t n_runs, size_t n, bool other_day,
	enum compare_verdict counted, uint64_t seed)
{
	static const struct compare_limit limits[] = {{50, 0.05}, {90, 0.10}, {99, 0.10},
		{99.9, 0.20}, {COMPARE_MEAN, 0.05}, {COMPARE_FAILURES, 0}};
	static const struct change none = {0};
	unsigned hits = 0;

	for (unsigned i = 0; i < gate_times; i++) {
		cleanup_samples struct compare_samples old = {0}, new = {0};
		struct model_state state;

		model_begin(&model_idle, &state, seed * 100000 + i);
		runs(&model_idle, &state, &none, n_runs, n, &old);
		if (other_day)
			model_new_session(&model_idle, &state);
		runs(&model_idle, &state, change, n_runs, n, &new);
		hits += judge(&old, &new, limits, 6, PLAN_DETECT) == counted;
	}
	return hits;
}

static void simulate_stored(void)
{
	static const struct change none = {0}, more = {.slower = 0.2};

	printf("\nbench compare, documents of different times, limits p50=5%%,p90=10%%,p99=10%%\n");
	gate_say("one build, one run of 300 each: called slower",
		stored(&none, 1, 300, false, COMPARE_SLOWER, 40), gate_times, false, 1);
	gate_say("  undecided", stored(&none, 1, 300, false, COMPARE_UNDECIDED, 40), gate_times,
		true, 99);
	gate_say("one build, 10 runs of 60 each, one hour: called slower",
		stored(&none, 10, 60, false, COMPARE_SLOWER, 41), gate_times, false, 1);
	gate_say("one build, 10 runs of 60 each, another day (7 %): called slower",
		stored(&none, 10, 60, true, COMPARE_SLOWER, 42), gate_times, false, -1);
	gate_say("20 % slower, 10 runs of 60 each, another day: called slower",
		stored(&more, 10, 60, true, COMPARE_SLOWER, 43), gate_times, true, -1);
}

/* Five runs of 80; in one of the new ones nine creates are slow. */
static void simulate_one_bad_run(void)
{
	static const struct compare_limit limits[] = {{50, 0.05}, {99, 0.10}};
	static const struct change none = {0};
	unsigned slower = 0;

	for (unsigned i = 0; i < gate_times; i++) {
		cleanup_samples struct compare_samples old = {0}, new = {0};
		struct model_state state;

		model_begin(&model_idle, &state, 5000000 + i);
		runs(&model_idle, &state, &none, 5, 80, &old);
		runs(&model_idle, &state, &none, 5, 80, &new);
		for (size_t j = 0; j < 9; j++)
			new.values[new.runs[2].begin + j * 7] += 60000000;
		slower += judge(&old, &new, limits, 2, PLAN_DETECT) == COMPARE_SLOWER;
	}
	gate_say("5 runs of 80, nine slow creates in one of them: called slower", slower,
		gate_times, false, 1);
}

/* ---- intervals ----------------------------------------------------------------------------- */

/* Does the 95 % interval hold 0, where nothing changed? */
static void coverage(
	const char *what, double percentile, size_t n_runs, size_t n, bool paired, uint64_t seed)
{
	const struct compare_limit limit = {.percentile = percentile};
	static const struct change none = {0};
	unsigned holds = 0, closed = 0;

	for (unsigned i = 0; i < gate_times; i++) {
		cleanup_samples struct compare_samples old = {0}, new = {0};
		struct compare_result res;
		struct model_state state;

		model_begin(&model_idle, &state, seed * 100000 + i);
		for (size_t round = 0; round < n_runs; round++) {
			bool swap = plan_new_first(round);

			model_run(&model_idle, &state, &none, n, paired ? (long)round : -1,
				swap ? &new : &old);
			model_run(&model_idle, &state, &none, n, paired ? (long)round : -1,
				swap ? &old : &new);
		}
		compare_quantity(&old, &new, &limit, 0.001, PLAN_DETECT, &res);
		closed += res.low > -1 && isfinite(res.high);
		holds += res.low <= 0 && res.high >= 0;
	}
	if (!closed)
		printf("  %-66s none is given\n", what);
	else
		gate_say(what, holds, gate_times, true, gate_times >= 200 ? 92 : 88);
}

static void simulate_coverage(void)
{
	printf("\n95 %% intervals that hold the truth\n");
	coverage("p50, 1 run each", 50, 1, 300, false, 60);
	coverage("p50, 3 runs each", 50, 3, 100, false, 61);
	coverage("p50, 4 runs each", 50, 4, 80, false, 62);
	coverage("p50, 10 runs each", 50, 10, 80, false, 63);
	coverage("p50, 5 rounds", 50, 5, 25, true, 64);
	coverage("p50, 8 rounds", 50, 8, 25, true, 65);
	coverage("p50, 30 rounds", 50, 30, 25, true, 66);
	coverage("p90, 30 rounds", 90, 30, 25, true, 67);
	coverage("mean, 30 rounds", COMPARE_MEAN, 30, 25, true, 68);
	coverage("p99, 30 rounds", 99, 30, 25, true, 69);
	coverage("p99, 10 runs of 100 each", 99, 10, 100, false, 70);
}

/* ---- histories ----------------------------------------------------------------------------- */

/* Entries of another day each, of three runs of 30, whose builds become slower by @each from number @from on. */
static void entries(
	struct model_state *state, double each, size_t from, bool steps, double *values, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct change change = {.slower = i < from ? 0
				: steps ? pow(1 + each, (double)(i - from + 1)) - 1
					: each};
		double sum = 0;

		model_new_session(&model_idle, state);
		for (int run = 0; run < 3; run++) {
			cleanup_samples struct compare_samples s = {0};

			model_run(&model_idle, state, &change, 30, -1, &s);
			sum += log((double)stats_percentile(s.values, s.n, 50)) / 3;
		}
		values[i] = sum;
	}
}

static void simulate_histories(void)
{
	unsigned false_marks = 0, found = 0, alarms = 0, seen = 0;
	size_t commits = 0;

	for (unsigned i = 0; i < gate_times; i++) {
		double values[50], limit;
		bool marks[50];
		struct model_state state;

		model_begin(&model_idle, &state, 8000000 + i);
		entries(&state, 0, 50, false, values, 50);
		history_changes(values, 50, marks);
		for (size_t j = 0, any = 0; j < 50; j++) {
			any |= marks[j];
			false_marks += j == 49 && any;
		}
		for (size_t j = 0; j < 50; j++)
			values[j] = exp(values[j]);
		alarms += history_above(values, 50, HISTORY_BASELINE, &limit) > 0;

		entries(&state, 0.25, 25, false, values, 50);
		history_changes(values, 50, marks);
		found += marks[24] || marks[25] || marks[26];

		entries(&state, 0.03, 10, true, values, 50);
		for (size_t j = 0; j < 50; j++)
			values[j] = exp(values[j]);
		for (size_t n = HISTORY_BASELINE + 1; n <= 50; n++) {
			if (history_above(values, n, HISTORY_BASELINE, &limit) <= 0)
				continue;
			seen++;
			commits += n - HISTORY_BASELINE;
			break;
		}
	}
	printf("\nbench history, 50 commits, each of another day (7 %% apart)\n");
	gate_say("no change: any step marked", false_marks, gate_times, false, 8);
	gate_say("a step of 25 % in the middle: marked within one commit", found, gate_times, true,
		80);
	gate_say("no change: the gate calls the newest slower", alarms, gate_times, false, 2);
	gate_say("3 % a commit: seen at all", seen, gate_times, true, 99);
	printf("  … after %.1f commits on the average, that is %+.0f %%\n",
		(double)commits / (seen ?: 1),
		(pow(1.03, (double)commits / (seen ?: 1)) - 1) * 100);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		gate_times = (unsigned)strtoul(argv[1], NULL, 10);
	if (!gate_times || argc > 2) {
		fprintf(stderr, "bench_gate: write `bench_gate [TIMES]`\n");
		return 2;
	}
	printf("The gate on simulated creates, %u of each: %.1f ms, run to run %.0f %%, sample to "
	       "sample %.0f %%\n",
		gate_times, model_idle.median_ms, model_idle.run_sd * 100,
		model_idle.sample_sd * 100);
	simulate_in_turn();
	simulate_stored();
	simulate_one_bad_run();
	gate_simulate_costs();
	simulate_coverage();
	simulate_histories();
	printf("\n%u missed\n", missed);
	return missed ? 1 : 0;
}
