/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench vm: what parbake-vmm takes to make a machine and to load its state, up to the first instruction of a
 * guest that has no more than two (benches/vm.c), and what the parts of it take.
 */
#include <stdlib.h>
#include <string.h>

#include "benches/series.h"
#include "benches/stats.h"
#include "benches/vm.h"
#include "cli/bench.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/progress.h"
#include "vmm/kvm/kvm.h"

#define SAMPLES_MAX 100000
#define MANY_MAX 10000
#define PAUSE_MS 60000

struct request {
	struct bench_output out;
	uint64_t n, many;
	struct vm_sample *samples;
	int64_t cold_ns; /* p50 */
	struct text text;
	json_t *run;
	struct progress *progress;
};

enum part { COLD, STANDBY, LOADED, N_PARTS };

static const char *const part_names[N_PARTS] = {"cold", "standby", "state loaded"};

static int64_t part_of(const struct vm_sample *s, enum part part)
{
	switch (part) {
	case COLD: /* without the look at its faults */
		return s->reached - s->asked + s->ready - s->begin;
	case STANDBY:
		return s->reached - s->asked;
	default:
		return s->loaded - s->asked;
	}
}

static void print_parts(struct request *rq)
{
	bench_print_head(&rq->text, "first instruction from", "ms");
	for (int p = 0; p < N_PARTS; p++) {
		struct bench_series s;

		bench_series_init(&s, part_names[p], false, false);
		for (uint64_t i = 0; i < rq->n; i++) {
			bench_series_add_time(&s, part_of(&rq->samples[i], (enum part)p));
		}
		if (p == COLD)
			rq->cold_ns = bench_series_percentile(&s, 50);
		bench_print_series(&rq->text, &s, 1e6);
		bench_run_append(rq->run, "series", bench_series_to_json(&s));
		bench_series_clear(&s);
	}
}

static void print_steps(struct request *rq)
{
	int64_t *values = calloc(rq->n, sizeof(*values));
	json_t *steps = json_object();

	if (!values || !steps)
		abort();
	text_add(&rq->text, "steps, us, p50:");
	for (int step = 0; step < KVM_STEPS; step++) {
		for (uint64_t i = 0; i < rq->n; i++)
			values[i] = rq->samples[i].steps[step];
		text_add(&rq->text, " %s %.0f", kvm_step_names[step],
			(double)stats_percentile(values, rq->n, 50) / 1e3);
		json_object_set_new(steps, kvm_step_names[step],
			json_integer(stats_percentile(values, rq->n, 50)));
	}
	bench_run_fact(rq->run, "steps_ns", steps);
	for (uint64_t i = 0; i < rq->n; i++)
		values[i] = (int64_t)rq->samples[i].faults;
	text_add(&rq->text, "\npage faults until ready, p50: %lld\n",
		(long long)stats_percentile(values, rq->n, 50));
	bench_run_fact(rq->run, "faults", json_integer(stats_percentile(values, rq->n, 50)));
	free(values);
}

/* All there at once. Each is paused once it has run: its guest does nothing but run. */
static int run_many(struct request *rq, struct vm_bench *b, struct err *err)
{
	struct machine **all = calloc(rq->many, sizeof(struct machine *));
	int64_t begin = clock_now_ns(), took;
	uint64_t n = 0;
	int r = 0;

	if (!all)
		abort();
	progress_stage(rq->progress, "many", "machines", rq->many);
	while (r == 0 && n < rq->many) {
		struct vm_sample s;

		r = vm_bench_sample(b, &s, &all[n], err);
		if (r == 0)
			r = machine_pause(all[n], clock_deadline(PAUSE_MS), err);
		if (r == 0)
			progress_update(rq->progress, ++n);
	}
	took = clock_now_ns() - begin;
	for (uint64_t i = 0; r == 0 && i < n; i++) {
		if (machine_get_state(all[i]) != MACHINE_PAUSED)
			r = err_set(err, EIO, "machine %llu has ended", (unsigned long long)i);
	}
	if (r == 0) {
		text_add(&rq->text,
			"%llu machines at once: %.2f s; as many times one alone (p50): %.2f s\n",
			(unsigned long long)n, (double)took / 1e9,
			(double)rq->cold_ns * (double)n / 1e9);
		bench_run_fact(rq->run, "many_ns", json_integer(took));
	}
	while (n)
		machine_free(all[--n]);
	free(all);
	progress_done(rq->progress, NULL);
	return r;
}

static int count_fds(void)
{
	cleanup_dir DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	return n;
}

static int run(struct request *rq, struct err *err)
{
	cleanup_vm_bench struct vm_bench *b = NULL;
	int r = vm_bench_new(&b, err), fds = r == 0 ? count_fds() : 0;

	progress_stage(rq->progress, "vm", "machines", rq->n);
	for (uint64_t i = 0; r == 0 && i < rq->n; i++) {
		r = vm_bench_sample(b, &rq->samples[i], NULL, err);
		progress_update(rq->progress, i + 1);
	}
	progress_done(rq->progress, NULL);
	if (r == 0 && count_fds() != fds)
		r = err_set(err, EIO, "descriptors are left behind: %d were open, now %d", fds,
			count_fds());
	if (r < 0)
		return r;
	print_parts(rq);
	print_steps(rq);
	return rq->many ? run_many(rq, b, err) : 0;
}

static int measure(void *args)
{
	struct request *rq = args;
	struct err err = {0};
	int r;

	rq->samples = calloc(rq->n, sizeof(*rq->samples));
	if (!rq->samples)
		abort();
	rq->run = bench_run_new("vm", "vm", "A machine of parbake-vmm made, its state loaded");
	rq->progress = progress_new(PROGRESS_AUTO);
	r = run(rq, &err);
	if (r == 0)
		r = bench_finish(&rq->out, rq->run, &rq->text, &err);
	else
		json_decref(rq->run);
	text_clear(&rq->text);
	progress_free(rq->progress);
	free(rq->samples);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	BENCH_COUNT(struct request, n, SAMPLES_MAX, "machines (200)"),
	{"many", .kind = OPTION_NUMBER, .min = 1, .max = MANY_MAX,
		.offset = offsetof(struct request, many), .value = "N",
		.help = "that many at once, beside it"},
	BENCH_OUTPUT(struct request, out),
	{0},
};

const struct command command_bench_vm = {
	.name = "bench vm",
	.summary = "a machine of parbake-vmm made, and its state loaded",
	.notes = "It needs a /dev/kvm that makes machines.",
	.options = options,
	.args_bytes = sizeof(struct request),
	.defaults = &(const struct request){.n = 200},
	.run = measure,
};
