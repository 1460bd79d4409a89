/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_PROCESSES_H
#define PARBAKE_BAKE_PROCESSES_H

#include "bake/scan/lent.h"
#include "common/err.h"
#include "common/json.h"
#include "vmm/guest/guest.h"

/*
 * The record of a guest's processes: which there are, which files they map, how much of each is in memory, and what the
 * kernel uses memory for. It stands for the memory of a snapshot where two are compared, since bytes of memory are never
 * the same twice.
 */

/*
 * Ask the agent for it, as docs/format.md describes it; *@ret is the caller's reference. Secrets of @lent (may be NULL) are masked
 * in commands. @also_fd as guest_wait() has it. A process that ends meanwhile is left out. -E2BIG: more processes than
 * LIMIT_PROCESSES. Blocks for some milliseconds a process.
 */
int processes_read(struct guest *g, const struct lent *lent, int64_t deadline, int also_fd,
	json_t **ret, struct err *err);
/*
 * One process, from its /proc/PID/cmdline (@command, of @len bytes) and /proc/PID/smaps: new reference; NULL where it has
 * no memory, as threads of the kernel.
 */
json_t *processes_one(const char *command, size_t len, const char *smaps, const struct lent *lent);
/* What the kernel uses memory for, from /proc/meminfo: new reference, an object of numbers of bytes. */
json_t *processes_kernel(const char *meminfo);

#endif
