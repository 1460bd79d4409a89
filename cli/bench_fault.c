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

#define SIZES_MAX 16
#define ROUNDS_MAX 100

struct request {
	struct bench_output out;
	uint64_t windows[SIZES_MAX], frames[SIZES_MAX], mib, rounds;
	size_t n_windows, n_frames;
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
	struct fault_spec spec = {.bytes = rq->mib * MIB, .frame_bytes = (uint32_t)rq->frames[0]};
	size_t cells = 2 + 3 * rq->n_windows + rq->n_windows * rq->n_frames;
	int r = 0;

	progress_stage(rq->progress, "fault", "measurements", cells * rq->rounds);
	for (int write = 0; write < 2 && r == 0; write++) {
		spec.write = write;
		spec.source = FAULT_PRIVATE;
		r = cell(rq, &spec, err);
	}
	for (size_t w = 0; w < rq->n_windows && r == 0; w++) {
		spec.window_bytes = (uint32_t)rq->windows[w];
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
		for (size_t f = 0; f < rq->n_frames && r == 0; f++) {
			spec.frame_bytes = (uint32_t)rq->frames[f];
			r = cell(rq, &spec, err);
		}
		spec.frame_bytes = (uint32_t)rq->frames[0];
	}
	progress_done(rq->progress, NULL);
	return r;
}

static int take_sizes(const char *option, uint64_t *list, size_t *n, struct err *err)
{
	int r = bench_list(option, optarg, 4, 4096, list, SIZES_MAX, n, err);

	for (size_t i = 0; i < *n && r == 0; i++) {
		if (list[i] & (list[i] - 1))
			r = err_set(err, EINVAL, "%s %s: KiB, powers of two", option, optarg);
		list[i] *= KIB;
	}
	return r;
}

static int take_option(int opt, struct request *rq, struct err *err)
{
	int r = 0;

	switch (opt) {
	case 'n':
		return cli_number("-n", optarg, 1, ROUNDS_MAX, &rq->rounds, err);
	case 'w':
		return take_sizes("--window", rq->windows, &rq->n_windows, err);
	case 'f':
		return take_sizes("--frame", rq->frames, &rq->n_frames, err);
	case 'm':
		return cli_number("--memory", optarg, 1, 4096, &rq->mib, err);
	default:
		return bench_take_output(opt, &rq->out, &r, err)
			? r
			: err_set(err, EINVAL, "see above");
	}
}

int bench_fault_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"window", required_argument, NULL, 'w'},
		{"frame", required_argument, NULL, 'f'},
		{"memory", required_argument, NULL, 'm'},
		BENCH_OUTPUT_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	static const char *const columns[] = {"source", "access", "window KiB", "frame KiB",
		"µs a page", "faults", "wait p50 µs", "p99 µs", "max µs"};
	struct request rq = {
		.windows = {4 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, 1 * MIB},
		.n_windows = 5,
		.frames = {64 * KIB, 16 * KIB, 256 * KIB},
		.n_frames = 3,
		.mib = 32,
		.rounds = 5,
	};
	struct err err = {0};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (take_option(opt, &rq, &err) < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (optind != argc)
		return cli_usage("bench", "fault takes no template");
	rq.run = bench_run_new("fault", "fault", "What a page costs at its first touch");
	bench_run_columns(rq.run, columns, sizeof(columns) / sizeof(columns[0]));
	bench_run_fact(rq.run, "memory_mib", json_integer((json_int_t)rq.mib));
	rq.progress = progress_new(PROGRESS_AUTO);
	text_add(&rq.text, "%-16s %-5s %8s %8s %10s %10s %10s %10s %10s\n", "source", "", "window",
		"frame", "us a page", "faults", "wait p50", "p99", "max us");
	r = run(&rq, &err);
	if (r == 0)
		r = bench_finish(&rq.out, rq.run, &rq.text, &err);
	else
		json_decref(rq.run);
	text_clear(&rq.text);
	progress_free(rq.progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
