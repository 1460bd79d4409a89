/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_TRACE_H
#define PARBAKE_BENCHES_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "benches/series.h"
#include "benches/symbols.h"
#include "benches/text.h"
#include "restore/pager/pager.h"

/*
 * One create, taken apart: its parts one after the other, what the pager did beside them, and
 * every fault. Times are in nanoseconds from the create's begin (and may be negative: a spare was
 * attached long before).
 */
struct bench_span {
	char name[24];
	int64_t begin, end;
};

struct bench_fault {
	int64_t begin, end;
	uint64_t offset;
	uint32_t pages;
	enum pager_trace_kind kind;
	bool minor, write, filled;
	char meaning[80];
};

#define BENCH_SPANS_MAX 24

struct bench_trace {
	char name[32]; /* the mode */
	unsigned lane; /* which client made it, from 0; not in documents */
	uint64_t sample; /* which of its series */
	int64_t at; /* its begin, from the run's */
	int64_t total;
	struct bench_span parts[BENCH_SPANS_MAX], pager[BENCH_SPANS_MAX];
	size_t n_parts, n_pager;
	struct bench_fault *faults;
	size_t n_faults;
	uint64_t premapped, lost;
};

void bench_trace_clear(struct bench_trace *t);
#define cleanup_trace __attribute__((__cleanup__(bench_trace_clear)))

extern const char *const bench_fault_kinds[PAGER_TRACE_KINDS];

/*
 * From a sample's parts and, where it was traced (else NULL), what the pager did until it ended.
 * @begin: the create's, on the pager's clock. Of several machines in @pager the newest is the one
 * (others are leaving).
 */
void bench_trace_make(struct bench_trace *ret, const struct bench_sample *one, int64_t begin,
	const struct pager_trace *pager, const struct symbols *symbols);
/* Faults that begin within part @i; those after the last part do not count. */
size_t bench_trace_part_faults(const struct bench_trace *t, size_t i);

/* A waterfall for a terminal, @columns wide; at most @max_faults of the faults. */
void bench_trace_print(
	struct text *out, const struct bench_trace *t, unsigned columns, size_t max_faults);
json_t *bench_trace_to_json(const struct bench_trace *t);
int bench_trace_from_json(const json_t *obj, struct bench_trace *ret, struct err *err);

/*
 * The traces of a run as a Chrome trace ("JSON Object Format" of the Trace Event Format, which
 * ui.perfetto.dev opens): a process for each mode. In it each client has a track for its creates, and, where these
 * were traced, one for the pager's work and one for faults; all on the run's own time. New reference.
 */
json_t *bench_traces_perfetto(const struct bench_trace *traces, size_t n);

#endif
