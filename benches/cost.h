/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_COST_H
#define PARBAKE_BENCHES_COST_H

#include <stdint.h>
#include <sys/types.h>

/*
 * What a create costs beside its time: what is counted, not waited for, so a busy host changes little of it. Counted
 * are the thread that makes the create, the monitor, and the template's pager.
 */
enum cost {
	COST_CPU, /* processor time, ns */
	COST_INSTRUCTIONS, /* of the thread and the monitor; perf_event_open(2) */
	COST_MINOR, /* page faults that need no reading */
	COST_MAJOR, /* page faults that wait for a read */
	COST_CALLS, /* system calls of the thread and the monitor; perf_event_open(2) */
	COSTS
};
/* As documents name them: "cpu_ns", … */
extern const char *const cost_names[COSTS];
/* As tables do: "cpu", … */
extern const char *const cost_titles[COSTS];

enum cost_whose { COST_OWN, COST_MONITOR, COST_PAGER, COST_WHOSE };
extern const char *const cost_whose_names[COST_WHOSE];

/* Counters of one create: of the thread that opens them and of all that it starts from then on. -1: not counted here. */
struct cost_counters {
	int instructions, calls;
};
void cost_open(struct cost_counters *ret);
void cost_close(struct cost_counters *c);
/* Why this host does not count @cost, for people; "": it does. Any thread; the text stays. */
const char *cost_absent(enum cost cost);

/* Totals so far. The thread's are the caller's. */
struct cost_reading {
	int64_t cpu[COST_WHOSE], minor[COST_WHOSE], major[COST_WHOSE];
	int64_t instructions, calls; /* -1: not counted */
};
/* @monitor, @pager: their pids; 0: there is none (yet). One that is gone reads 0. Any thread, for itself. */
void cost_read(const struct cost_counters *c, pid_t monitor, pid_t pager, struct cost_reading *ret);

/* Processor time that the calling thread and the process @monitor (0: none) have used, ns. */
int64_t cost_cpu_now(pid_t monitor);
/* Page faults of the process @pid so far; 0 where it is gone. */
void cost_faults(pid_t pid, int64_t *ret_minor, int64_t *ret_major);

/* The difference of two readings. */
struct cost_sample {
	int64_t total[COSTS]; /* -1: not counted */
	int64_t cpu_of[COST_WHOSE];
};
void cost_between(const struct cost_reading *before, const struct cost_reading *after,
	struct cost_sample *ret);

#endif
