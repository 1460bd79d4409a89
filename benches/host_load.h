/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_HOST_LOAD_H
#define PARBAKE_BENCHES_HOST_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "common/json.h"

/*
 * How busy the host was while something was measured: what other processes took of its cores, what its own host took
 * of it (steal), how much work waited for a core (pressure), and how long a fixed loop took at the worst and usually,
 * against its best.
 */
#define HOST_LOAD_LOOPS 4096

struct host_load {
	int64_t began_ns;
	uint64_t busy_ticks, steal_ticks, waited_us; /* of the host, at the begin */
	int64_t own_ns; /* processor time of this process and its children, at the begin */
	int64_t loops[HOST_LOAD_LOOPS]; /* ns that each took */
	size_t n_loops;
};

enum host_busy { HOST_IDLE, HOST_BUSY, HOST_TOO_BUSY };

/* What a share of the cores, or a loop's delay, makes a host busy (benches/METHOD.md has why). */
#define HOST_BUSY_OTHERS 0.25
#define HOST_BUSY_STEAL 0.05
#define HOST_BUSY_LOOP 1.3
#define HOST_TOO_BUSY_STEAL 0.5
#define HOST_TOO_BUSY_LOOP 3.0

void host_load_begin(struct host_load *h);
/* Run the loop once more (a millisecond or two): between two runs, when nothing of them is under way. */
void host_load_loop(struct host_load *h);

struct host_load_result {
	double others, steal,
		pressure; /* shares: of all cores, of all cores, of the time; < 0: not known */
	double loop_usual,
		loop_worst; /* times as long as the best: the median and the longest; 0: none ran */
	enum host_busy busy;
};

void host_load_end(const struct host_load *h, struct host_load_result *ret);
/* "other work took 12 % of the cores, …". Caller frees. */
char *host_load_text(const struct host_load_result *r);
/* "idle", "busy", "too busy". */
const char *host_busy_name(enum host_busy busy);

#endif
