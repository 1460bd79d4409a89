/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CGROUP_PRIVATE_H
#define PARBAKE_POOL_CGROUP_PRIVATE_H

/* A cgroup for each machine (pool/cgroup.c). One thread: the loop's. */

#include <stdint.h>

struct pool_cgroup;

struct pool_cgroups;
/*
 * Never fails: where the host does not allow cgroups, that is logged once, and machines run
 * without.
 */
struct pool_cgroups *pool_cgroups_open(const char *below);
void pool_cgroups_free(struct pool_cgroups *c);
/* Put the monitor, process @pid of sandbox @id, into a cgroup of its own. */
struct pool_cgroup *pool_cgroup_new(struct pool_cgroups *c, const char *id, int pid,
	uint64_t memory_bytes, uint64_t pids, unsigned vcpus);
/* The machine of @g is gone: remove its cgroup. */
void pool_cgroup_free(struct pool_cgroup *g);
/* Remove the cgroups that could not be removed before, and whose machines are gone by now. */
void pool_cgroups_sweep(struct pool_cgroups *c);

#endif
