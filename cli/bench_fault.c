/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench fault: what a page costs at its first touch, by window and frame size and by
 * where it comes from (benches/fault.c). Each cell is measured several times and the median told.
 */
#include <string.h>

#include "benches/fault.h"
#include "benches/stats.h"
#include "cli/bench.h"
#include "common/progress.h"

#define ROUNDS_MAX 100

struct request {
	struct bench_output out;
	struct bench_numbers windows, frames; /* KiB */
	uint64_t mib, rounds;
	struct text text;
	json_t *run;
	struct progress *progress;
	uint64_t done;
};

/* The measurement whose total is the median's, of rq->rounds. Caller clears its waits. */
static int measure(struct request *rq, const struct fault_spec *spec, struct fault_result *ret,
	struct err *err)
{
	struct fault_result all[ROUNDS_MAX];
	int64_t totals[ROUNDS_MAX], median;
	size_t n = 0;
	bool found = false;
	int r = 0;

	while (n < rq->rounds && r == 0) {
		r = fault_measure(spec, &all[n], err);
		if (r == 0) {
			totals[n] = all[n].total_ns;
			n++;
		}
		progress_update(rq->progress, ++rq->done);
	}
	median = stats_percentile(totals, n, 50);
	for (size_t i = 0; i < n; i++) {
		if (r == 0 && !found && all[i].total_ns == median) {
			*ret = all[i];
			found = true;
		} else {
			bench_series_clear(&all[i].waits);
		}
	}
	return r;
}

static int cell(struct request *rq, const struct fault_spec *spec, struct err *err)
{
	struct fault_result res = {0};
	double us;
	int r = measure(rq, spec, &res, err);

	if (r < 0)
		return r;
	us = (double)res.total_ns / 1e3 / (double)res.pages;
	text_add(&rq->text, "%-16s %-5s %8u %8u %10.2f %10llu %10.1f %10.1f %10.1f\n",
		fault_source_names[spec->source], spec->write ? "write" : "read",
		spec->window_bytes / 1024, spec->frame_bytes / 1024, us,
		(unsigned long long)res.faults,
		(double)bench_series_percentile(&res.waits, 50) / 1e3,
		(double)bench_series_percentile(&res.waits, 99) / 1e3,
		(double)bench_series_percentile(&res.waits, 100) / 1e3);
	bench_run_row(rq->run,
		json_pack("[s, s, I, I, f, I, f, f, f]", fault_source_names[spec->source],
			spec->write ? "write" : "read", (json_int_t)spec->window_bytes / 1024,
			(json_int_t)spec->frame_bytes / 1024, us, (json_int_t)res.faults,
			(double)bench_series_percentile(&res.waits, 50) / 1e3,
			(double)bench_series_percentile(&res.waits, 99) / 1e3,
			(double)bench_series_percentile(&res.waits, 100) / 1e3));
	bench_series_clear(&res.waits);
	return 0;
}

/* Windows matter to what userfaultfd serves, frames to what has to be decompressed. */
static int run(struct request *rq, struct err *err)
{
	struct fault_spec spec = {
		.bytes = rq->mib * MIB, .frame_bytes = (uint32_t)(rq->frames.items[0] * KIB)};
	size_t cells = 2 + 3 * rq->windows.n + rq->windows.n * rq->frames.n;
	int r = 0;

	progress_stage(rq->progress, "fault", "measurements", cells * rq->rounds);
	for (int write = 0; write < 2 && r == 0; write++) {
		spec.write = write;
		spec.source = FAULT_PRIVATE;
		r = cell(rq, &spec, err);
	}
	for (size_t w = 0; w < rq->windows.n && r == 0; w++) {
		spec.window_bytes = (uint32_t)(rq->windows.items[w] * KIB);
		spec.write = false;
		spec.source = FAULT_HOLE;
		r = cell(rq, &spec, err);
		for (int write = 0; write < 2 && r == 0; write++) {
			spec.source = FAULT_FILLED;
			spec.write = write;
			r = cell(rq, &spec, err);
		}
		spec.write = false;
		spec.source = FAULT_FRAME;
		for (size_t f = 0; f < rq->frames.n && r == 0; f++) {
			spec.frame_bytes = (uint32_t)(rq->frames.items[f] * KIB);
			r = cell(rq, &spec, err);
		}
		spec.frame_bytes = (uint32_t)(rq->frames.items[0] * KIB);
	}
	progress_done(rq->progress, NULL);
	return r;
}

static int run_all(void *args)
{
	static const char *const columns[] = {"source", "access", "window KiB", "frame KiB",
		"µs a page", "faults", "wait p50 µs", "p99 µs", "max µs"};
	struct request *rq = args;
	struct err err = {0};
	int r;

	rq->run = bench_run_new("fault", "fault", "What a page costs at its first touch");
	bench_run_columns(rq->run, columns, sizeof(columns) / sizeof(columns[0]));
	bench_run_fact(rq->run, "memory_mib", json_integer((json_int_t)rq->mib));
	rq->progress = progress_new(PROGRESS_AUTO);
	text_add(&rq->text, "%-16s %-5s %8s %8s %10s %10s %10s %10s %10s\n", "source", "", "window",
		"frame", "us a page", "faults", "wait p50", "p99", "max us");
	r = run(rq, &err);
	if (r == 0)
		r = bench_finish(&rq->out, rq->run, &rq->text, &err);
	else
		json_decref(rq->run);
	text_clear(&rq->text);
	progress_free(rq->progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"window", .kind = OPTION_CALL, .take = bench_take_kib,
		.offset = offsetof(struct request, windows), .value = "KIB,…",
		.help = "pages mapped around a fault (4,32,64,256,1024)"},
	{"frame", .kind = OPTION_CALL, .take = bench_take_kib,
		.offset = offsetof(struct request, frames), .value = "KIB,…",
		.help = "sizes of frames (64,16,256)"},
	{"memory", .kind = OPTION_NUMBER, .min = 1, .max = 4096,
		.offset = offsetof(struct request, mib), .value = "MIB",
		.help = "memory that is touched (32)"},
	BENCH_COUNT(struct request, rounds, ROUNDS_MAX, "rounds (5)"),
	BENCH_OUTPUT(struct request, out),
	{0},
};

const struct command command_bench_fault = {
	.name = "bench fault",
	.summary = "what a page costs a machine at its first touch",
	.options = options,
	.args_bytes = sizeof(struct request),
	.defaults =
		&(const struct request){
			.windows = {{4, 32, 64, 256, 1024}, 5},
			.frames = {{64, 16, 256}, 3},
			.mib = 32,
			.rounds = 5,
		},
	.run = run_all,
};
