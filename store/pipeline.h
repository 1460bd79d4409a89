/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_PIPELINE_H
#define PARBAKE_STORE_PIPELINE_H

#include <stdbool.h>

#include "common/err.h"

/*
 * A pipeline: pieces of a long input are worked on in parallel and used in order. A piece lives in
 * one of a fixed number of slots (their contents are the caller's own array), so what is in flight
 * is bounded. Each callback returns 0 or -errno with @err set; the first failure stops the run.
 */
struct pipeline_ops {
	/* The calling thread, in order: describe the next piece in @slot. 1: done, 0: no more
	 * pieces. *@ret_work (true at first): does a worker have to see it? */
	int (*next)(void *ctx, unsigned slot, bool *ret_work, struct err *err);
	/* Worker number @worker, several pieces at once, in no order. */
	int (*work)(void *ctx, unsigned slot, unsigned worker, struct err *err);
	/* The calling thread, in order, after work. NULL: nothing to do. */
	int (*take)(void *ctx, unsigned slot, struct err *err);
	/* A thread of its own, in order, after work, beside take. NULL: nothing to do. */
	int (*follow)(void *ctx, unsigned slot, struct err *err);
};

#define PIPELINE_WORKERS_MAX 64

/* The number of processors this thread may use, at most PIPELINE_WORKERS_MAX. */
unsigned pipeline_cores(void);
/*
 * Run to the end with @slots (≥ 2) slots and @workers (1 … PIPELINE_WORKERS_MAX) threads, fewer
 * where the system gives no more. All threads have ended when this returns.
 */
int pipeline_run(const struct pipeline_ops *ops, void *ctx, unsigned slots, unsigned workers,
	struct err *err);

#endif
