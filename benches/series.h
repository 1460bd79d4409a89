/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_SERIES_H
#define PARBAKE_BENCHES_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "benches/cost.h"
#include "common/err.h"
#include "common/json.h"
#include "restore/sandbox.h"

/*
 * The parts of a create, one after the other: they add up to its time. A part that a mode does
 * not have (a spare's monitor was started long before) is 0.
 */
enum bench_part {
	PART_WAIT, /* an open loop's request waits for whoever is to carry it out */
	PART_OPEN, /* the template opened, where that is part of the request */
	PART_OVERLAY, /* a file for what the guest writes to its disk */
	PART_MEMORY, /* the pager gives the memory */
	PART_SPAWN, /* the monitor's program: fork, exec */
	PART_MONITOR, /* … starts, until its control socket answers */
	PART_STATE, /* device state */
	PART_ASK, /* identity made, requests laid into the channel */
	PART_RESUME, /* the machine is told to run */
	PART_HELLO, /* … until the agent says hello */
	PART_IDENTITY, /* … has its new identity */
	PART_THAW, /* … and the root takes writes */
	PART_RESULT, /* the first command's or Python result */
	BENCH_PARTS
};

extern const char *const bench_part_names[BENCH_PARTS];

/* One measured operation that succeeded. Times are in nanoseconds. */
struct bench_sample {
	int64_t at; /* when it was to begin, from the series' begin */
	int64_t total; /* from then to its end */
	int64_t parts[BENCH_PARTS];
	uint64_t faults, premapped;
	struct cost_sample cost; /* where the series has costs */
	/* processor time by part, without the pager's: hello and identity are in thaw, as nothing divides them */
	int64_t cpu_parts[BENCH_PARTS];
};

struct bench_series {
	char name[32];
	bool has_parts, has_faults;
	unsigned costs; /* bit 1 << COST_…: its samples have that */
	struct bench_sample *samples; /* in the order they ended */
	size_t n, room;
	size_t failed;
	struct err first_error;
	int64_t span; /* ns that the whole series took; 0: not known */
};

void bench_series_init(struct bench_series *s, const char *name, bool has_parts, bool has_faults);
void bench_series_clear(struct bench_series *s);
#define cleanup_series __attribute__((__cleanup__(bench_series_clear)))
void bench_series_add(struct bench_series *s, const struct bench_sample *one);
/* One sample without parts. */
void bench_series_add_time(struct bench_series *s, int64_t ns);
void bench_series_fail(struct bench_series *s, const struct err *err);

/* Moments around a sandbox's own, CLOCK_MONOTONIC ns; 0: no such part. */
struct bench_moments {
	int64_t begin; /* when the request was to begin */
	int64_t started; /* did begin (open loop) */
	int64_t opened; /* the template was open */
	int64_t end;
};

/*
 * What was read around a create: its counters, the costs at its begin and end, and the processor time (cost_cpu_now()) when it began
 * and when the template was open (0: it was open before).
 */
struct bench_counted {
	struct cost_counters counters;
	struct cost_reading before, after;
	int64_t cpu_begin, cpu_opened, cpu_end;
};

/*
 * The parts of @ret from a sandbox's moments: what lies before the begin (a spare's start) counts
 * nothing, what no moment divides belongs to the part that ends next.
 */
void bench_sample_fill(
	struct bench_sample *ret, const struct bench_moments *m, const struct sandbox_trace *t);
/* The costs of @ret, and by the same rule the processor time of its parts (@cpu: sandbox_cpu()). */
void bench_sample_cost(
	struct bench_sample *ret, const struct bench_counted *c, const struct sandbox_trace *cpu);
/* What this host counts, as bits for a series. */
unsigned bench_costs_here(void);

/* Percentile (stats_percentile()) of the total; of the sum of parts @first … @last. */
int64_t bench_series_percentile(const struct bench_series *s, double p);
int64_t bench_series_parts(
	const struct bench_series *s, enum bench_part first, enum bench_part last, double p);
uint64_t bench_median_faults(const struct bench_series *s);
uint64_t bench_median_premapped(const struct bench_series *s);
/* The median of a cost; -1: the series has none. */
int64_t bench_median_cost(const struct bench_series *s, enum cost cost);
/* The sample whose total is the median's (the first such); -1: there is none. */
long bench_series_median_sample(const struct bench_series *s);

/*
 * {"name","n","failed","p50_ns","p90_ns","p99_ns","max_ns","span_ns",
 * "total_ns":[…],"at_ns":[…],"parts_ns":{name:[…]},"faults":[…],"premapped":[…],"costs":{"cpu_ns":[…],
 * "minor_faults":[…],…,"cpu_of_ns":{"own":[…],"monitor":[…],"pager":[…]},"cpu_parts_ns":{name:[…]}},"first_error"}; a
 * new reference. Of costs there is what was counted, of their parts those that took any.
 */
json_t *bench_series_to_json(const struct bench_series *s);
/* A series' name as it is now: documents and command lines may say what it was called once. */
const char *bench_series_name(const char *name);
/* Reads what bench_series_to_json() wrote: whatever is missing or of another type is an error. */
int bench_series_from_json(const json_t *obj, struct bench_series *ret, struct err *err);

#endif
