/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_WORK_PRIVATE_H
#define PARBAKE_POOL_WORK_PRIVATE_H

/* Work on the disk, off the loop (pool/work.c). */

#include "common/err.h"

struct loop;
struct pool;

struct pool_works;
int pool_works_new(struct loop *l, struct pool_works **ret, struct err *err);
/* Waits for what is being done; what is only queued is done too. done() is not called any more. */
void pool_works_free(struct pool_works *w);
/* @run in another thread, then @done in the loop (may be NULL). Two threads, first come first served. */
void pool_work(struct pool_works *w, void (*run)(void *arg), void (*done)(void *arg), void *arg);
/* Rename @path into the trash now, remove it later. What is not there is no error. */
int pool_trash(struct pool *p, const char *path, struct err *err);

#endif
