/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_CREATE_H
#define PARBAKE_CLI_BENCH_CREATE_H

#include "benches/trace.h"
#include "benches/turns.h"
#include "cli/bench.h"
#include "cli/bench_sampler.h"

/* What `bench create` is asked for, has measured (bench_create.c), and says (bench_create_say.c). */
struct create_request {
	struct bench_output out;
	const char *ref, *monitor;
	uint64_t n, boots, firsts, clients, duration_ms;
	double rate;
	bool modes[N_MODES];
	int result; /* enum bench_result */
	struct template_options options;
	bool cold_cache, drop_all, trace;
	const char *perfetto;
};

struct create_bench {
	const struct create_request *rq;
	struct bench_sampler sampler,
		first_sampler; /* a first create shares nothing with the others */
	struct turns turns;
	uint64_t boots, firsts; /* done */
	struct bench_series first, series[N_MODES], boot;
	struct progress *progress;
	struct symbols *symbols;
	char no_symbols[256]; /* why there are none */
	enum bench_mode mode; /* of the creates under way */
	struct bench_trace *traces;
	size_t n_traces, room_traces;
	size_t medians[N_MODES]; /* in traces; SIZE_MAX: none */
};

/* How it was measured, in words. */
void bench_create_describe(const struct create_request *rq, char *ret, size_t len);
/* Tables of times and costs; the median of each mode taken apart. @what: as described. */
void bench_create_print(struct text *out, const struct create_bench *b, const char *what);
void bench_create_print_traces(struct text *out, const struct create_bench *b);
/* The run for the document. New reference. */
json_t *bench_create_run(const struct create_bench *b, const char *what);

#endif
