/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_FAULT_H
#define PARBAKE_BENCHES_FAULT_H

#include <stdint.h>

#include "benches/series.h"

/*
 * What a page costs a machine at its first touch, by where it comes from. The pager's engine runs
 * in this process and serves a child, the machine, that touches every page once, from the first
 * to the last, and reads the clock.
 */
enum fault_source {
	FAULT_PRIVATE, /* no userfaultfd: a private mapping of the filled memfd; the kernel alone */
	FAULT_FILLED, /* userfaultfd, its frame is in the memfd already */
	FAULT_FRAME, /* userfaultfd, its frame has to be decompressed */
	FAULT_HOLE, /* userfaultfd, a page that the image does not hold */
	FAULT_SOURCES
};
extern const char *const fault_source_names[FAULT_SOURCES];

struct fault_spec {
	enum fault_source source;
	uint64_t bytes; /* of memory: a multiple of 1 MiB */
	uint32_t window_bytes, frame_bytes;
	bool write; /* the machine writes, so that a page that is shared gets copied */
};

struct fault_result {
	int64_t total_ns; /* of touching every page */
	uint64_t pages, faults; /* faults the pager answered */
	/* of each touch that had to wait (≥ FAULT_WAITED_NS) */
	struct bench_series waits;
};
#define FAULT_WAITED_NS 1000

/*
 * Measure once. Single-threaded callers only: it forks. Caller clears ret->waits. -EOPNOTSUPP: no
 * userfaultfd here (but for FAULT_PRIVATE).
 */
int fault_measure(const struct fault_spec *spec, struct fault_result *ret, struct err *err);

#endif
