/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_WORK_PRIVATE_H
#define PARBAKE_POOL_WORK_PRIVATE_H

/* Work on the disk, in threads beside the loop (pool/work.c). */

#include "common/err.h"

struct loop;
struct pool;

struct pool_works;
int pool_works_new(struct loop *l, struct pool_works **ret, struct err *err);
/*
 * Wait until all work is done, that which is only queued too, and free @w. done() is not called any
 * more.
 */
void pool_works_free(struct pool_works *w);
/*
 * Call @run(@arg) in another thread, then @done(@arg) in the loop (may be NULL). There are two
 * threads; work begins in the order it came.
 */
void pool_work(struct pool_works *w, void (*run)(void *arg), void (*done)(void *arg), void *arg);
/* Rename @path into STATE/trash now, and remove it later. What is not there is no error. */
int pool_trash(struct pool *p, const char *path, struct err *err);

#endif
