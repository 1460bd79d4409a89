/* SPDX-License-Identifier: Apache-2.0 */
/* What a create costs: counted on this process and a child, kept in documents, and judged. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benches/compare_documents.h"
#include "benches/document.h"
#include "benches/plan.h"
#include "benches/series.h"
#include "common/clock.h"
#include "tests/unit/tap.h"

#define PAGES 300
#define CALLS 500

/* Uses processor time until the thread has had @ns of it. */
static void burn(int64_t ns)
{
	int64_t until = clock_thread_ns() + ns;

	while (clock_thread_ns() < until)
		;
}

static void touch(void)
{
	char *memory = mmap(
		NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	madvise(memory, PAGES * 4096, MADV_NOHUGEPAGE);
	for (int i = 0; i < PAGES; i++)
		memory[i * 4096] = 1;
	munmap(memory, PAGES * 4096);
}

static void test_this_thread(void)
{
	struct cost_counters c;
	struct cost_reading before, after;
	struct cost_sample cost;

	cost_open(&c);
	cost_read(&c, 0, 0, &before);
	burn(3000000);
	touch();
	for (int i = 0; i < CALLS; i++)
		getppid();
	cost_read(&c, 0, 0, &after);
	cost_between(&before, &after, &cost);
	cost_close(&c);
	ok(cost.total[COST_CPU] >= 3000000, "processor time is counted");
	is_int(cost.cpu_of[COST_OWN], cost.total[COST_CPU],
		"all processor time is the thread's own");
	ok(cost.total[COST_MINOR] >= PAGES, "page faults are counted: %lld of %d",
		(long long)cost.total[COST_MINOR], PAGES);
	if (*cost_absent(COST_CALLS)) {
		is_int(cost.total[COST_CALLS], -1,
			"system calls are not, and are not said to be 0");
		ok(strlen(cost_absent(COST_CALLS)) > 10,
			"the error says why system calls are not counted: %s",
			cost_absent(COST_CALLS));
	} else {
		ok(cost.total[COST_CALLS] >= CALLS, "system calls are counted: %lld of %d",
			(long long)cost.total[COST_CALLS], CALLS);
		ok(cost.total[COST_CALLS] < 100 * CALLS, "those of this thread alone");
	}
	if (*cost_absent(COST_INSTRUCTIONS))
		is_int(cost.total[COST_INSTRUCTIONS], -1, "instructions are not: %s",
			cost_absent(COST_INSTRUCTIONS));
	else
		ok(cost.total[COST_INSTRUCTIONS] > 10000, "instructions are counted");
}

/* A child works and waits to be looked at; what it did is the monitor's part. */
static void test_child(void)
{
	struct cost_counters c;
	struct cost_reading before, after;
	struct cost_sample cost;
	int done[2], end[2];
	char byte;
	pid_t pid;

	cost_open(&c);
	cost_read(&c, 0, 0, &before);
	if (pipe(done) < 0 || pipe(end) < 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0) {
		close(end[1]);
		burn(3000000);
		touch();
		for (int i = 0; i < CALLS; i++)
			getppid();
		if (write(done[1], "x", 1) == 1 && read(end[0], &byte, 1) == 0)
			_exit(0);
		_exit(1);
	}
	is_int(read(done[0], &byte, 1), 1, "a child has worked");
	cost_read(&c, pid, 0, &after);
	cost_between(&before, &after, &cost);
	ok(cost.cpu_of[COST_MONITOR] >= 3000000,
		"a child's processor time is counted while it lives");
	ok(cost_cpu_now(pid) - cost_cpu_now(0) >= 3000000,
		"a child's processor time is counted with the thread's");
	ok(cost.total[COST_MINOR] >= PAGES, "a child's page faults are counted");
	ok(*cost_absent(COST_CALLS) || cost.total[COST_CALLS] >= CALLS,
		"a child's system calls are counted");
	close(end[0]);
	close(end[1]);
	waitpid(pid, NULL, 0);
	cost_read(&c, pid, 0, &after);
	is_int(after.cpu[COST_MONITOR], 0, "a process that is gone reads 0");
	cost_close(&c);
	close(done[0]);
	close(done[1]);
}

static void test_series(void)
{
	const struct sandbox_trace cpu = {.overlay_made = 120,
		.memory_got = 130,
		.monitor_started = 200,
		.monitor_ready = 900,
		.state_loaded = 950,
		.asked = 955,
		.resumed = 960,
		.answered = 1100};
	struct bench_counted counted = {.cpu_begin = 100,
		.cpu_end = 1110,
		.before = {.cpu = {100, 0, 50}, .instructions = -1, .calls = 10},
		.after = {.cpu = {300, 810, 60},
			.minor = {5, 20, 0},
			.major = {0, 1, 0},
			.instructions = -1,
			.calls = 60}};
	cleanup_series struct bench_series s = {0}, back = {0};
	cleanup_json json_t *obj = NULL, *again = NULL;
	struct bench_sample one = {.total = 5};
	int64_t sum = 0;
	struct err err;

	bench_sample_cost(&one, &counted, &cpu);
	for (int i = 0; i < BENCH_PARTS; i++)
		sum += one.cpu_parts[i];
	is_int(sum, 1000, "the parts' processor time adds up to thread and monitor, to the answer");
	is_int(one.cpu_parts[PART_MONITOR], 700, "the monitor's start");
	is_int(one.cpu_parts[PART_THAW], 140, "the wait for the answer has what the guest used");
	is_int(one.cost.total[COST_CPU], 1020, "the whole has the pager's too");
	is_int(one.cost.cpu_of[COST_PAGER], 10, "which is told apart");
	is_int(one.cost.total[COST_CALLS], 50, "calls are a difference");
	is_int(one.cost.total[COST_INSTRUCTIONS], -1, "what is not counted stays so");

	bench_series_init(&s, "cold", false, false);
	s.costs = 1 << COST_CPU | 1 << COST_MINOR | 1 << COST_MAJOR | 1 << COST_CALLS;
	bench_series_add(&s, &one);
	obj = bench_series_to_json(&s);
	is_int(bench_series_from_json(obj, &back, &err), 0, "a series with costs comes back");
	again = bench_series_to_json(&back);
	ok(json_equal(obj, again), "a series with costs comes back as it was");
	is_int(bench_median_cost(&back, COST_CALLS), 50,
		"a series with costs comes back with its counts");
	is_int(bench_median_cost(&back, COST_INSTRUCTIONS), -1,
		"a series with costs comes back without what was not counted");
	bench_series_clear(&back);
	json_array_append_new(
		json_object_get(json_object_get(obj, "costs"), "minor_faults"), json_integer(1));
	is_int(bench_series_from_json(obj, &back, &err), -EINVAL,
		"a column that is longer is refused");
}

/* ---- judged --------------------------------------------------------------------------------- */

#define ROUNDS 14
#define CREATES 20

struct more {
	double time, cpu, faults, calls;
};

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* One in a hundred up or down. */
static int64_t about(uint64_t *state, double value)
{
	return (int64_t)(value * (1 + ((double)(next(state) % 2001) - 1000) / 1e5));
}

static void add_run(json_t *doc, uint64_t *state, bool is_new, int round, const struct more *m,
	double noise, bool costs)
{
	cleanup_series struct bench_series s = {0};
	double level = 1 + noise * ((double)(next(state) % 2001) - 1000) / 1000;

	bench_series_init(&s, "cold", false, false);
	s.costs = costs ? 1 << COST_CPU | 1 << COST_MINOR | 1 << COST_CALLS : 0;
	for (int i = 0; i < CREATES; i++) {
		struct bench_sample one = {.total = about(state, 1e7 * level * m->time)};

		one.cost.total[COST_CPU] = about(state, 12e6 * m->cpu);
		one.cost.total[COST_MINOR] = about(state, 1500 * m->faults);
		one.cost.total[COST_CALLS] = about(state, 900 * m->calls);
		bench_series_add(&s, &one);
	}
	json_array_append_new(json_object_get(doc, "runs"),
		json_pack("{s:s, s:s, s:s, s:s, s:i, s:[o]}", "bench", "create", "id",
			"create base", "title", "x", "side", is_new ? "new" : "old", "round", round,
			"series", bench_series_to_json(&s)));
}

/* The verdict on a document of `bench ab` whose new side differs by @m. Caller frees. */
static char *judged(const struct more *m, double noise, const char *busy, enum compare_judge judge,
	double accepted, bool costs)
{
	static const struct more none = {1, 1, 1, 1};
	cleanup_json json_t *doc = json_pack("{s:i, s:s, s:{}, s:[], s:{s:s, s:s}}", "format", 1,
		"parbake", "1", "host", "runs", "ab", "busy", busy, "host", "-");
	const struct compare_request rq = {.limits = plan_limits,
		.n_limits = PLAN_LIMITS,
		.detect = 0.05,
		.judge = judge,
		.cost_regress = accepted};
	cleanup_json json_t *result = NULL;
	cleanup_text struct text out = {0};
	uint64_t state = 7;
	struct err err;

	for (int i = 0; i < ROUNDS; i++) {
		add_run(doc, &state, false, i, &none, noise, costs);
		add_run(doc, &state, true, i, m, noise, costs);
	}
	if (compare_documents(doc, doc, &rq, &result, &err) < 0)
		return strdup(err.text);
	compare_print(&out, result);
	return strdup(out.s);
}

static void verdict(const struct more *m, double noise, const char *busy, enum compare_judge judge,
	double accepted, const char *want, const char *name)
{
	char *text = judged(m, noise, busy, judge, accepted, true);

	has_str(text, want, "%s", name);
	free(text);
}

static void test_judged(void)
{
	static const struct more none = {1, 1, 1, 1}, cpu = {1, 1.1, 1, 1}, calls = {1, 1, 1, 1.05},
				 slow = {1.3, 1, 1, 1}, few = {1, 1, 1, 1.002};
	char *text;

	verdict(&none, 0.01, "idle", JUDGE_ALL, 0, "verdict: same", "nothing changed: the same");
	verdict(&cpu, 0.01, "idle", JUDGE_ALL, 0, "verdict: slower",
		"a tenth more processor time fails the gate");
	verdict(&cpu, 0.01, "idle", JUDGE_ALL, 0, "cold: cpu is +",
		"the verdict names the cost that has risen");
	verdict(&calls, 0.01, "idle", JUDGE_ALL, 0, "calls is +",
		"a twentieth more system calls does");
	verdict(&few, 0.01, "idle", JUDGE_ALL, 0, "verdict: same",
		"two in a thousand are too few to speak of");
	verdict(&calls, 0.01, "idle", JUDGE_ALL, 0.1, "verdict: same",
		"a rise that is accepted is the same");
	verdict(&calls, 0.01, "idle", JUDGE_TIME, 0, "verdict: same",
		"where times alone are judged, costs do not matter");
	verdict(&slow, 0.01, "idle", JUDGE_COSTS, 0, "verdict: same",
		"where costs alone are, times do not");
	verdict(&none, 0.5, "busy", JUDGE_ALL, 0, "verdict: undecided",
		"beside other work times are undecided");
	verdict(&none, 0.5, "busy", JUDGE_COSTS, 0, "verdict: same",
		"where costs alone are judged a busy host does not matter");
	verdict(&calls, 0.5, "busy", JUDGE_ALL, 0, "verdict: slower",
		"a rise of costs is seen where times show nothing");
	verdict(&cpu, 0.5, "too busy", JUDGE_ALL, 0, "verdict: undecided",
		"on a host that is too busy processor time proves nothing");
	verdict(&calls, 0.5, "too busy", JUDGE_ALL, 0, "verdict: slower",
		"on a host that is too busy counts still say slower");
	text = judged(&none, 0.01, "idle", JUDGE_ALL, 0, false);
	has_str(text, "verdict: same", "documents without costs are judged by their times");
	free(text);
	text = judged(&none, 0.01, "idle", JUDGE_COSTS, 0, false);
	has_str(text, "verdict: incomparable", "documents without costs are not judged by costs");
	free(text);
}

int main(void)
{
	test_this_thread();
	test_child();
	test_series();
	test_judged();
	return tap_done();
}
