/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CGROUP_PRIVATE_H
#define PARBAKE_POOL_CGROUP_PRIVATE_H

/* A cgroup for each machine (pool/cgroup.c). */

#include <stdint.h>

struct pool_cgroup;

struct pool_cgroups;
/* Never fails: where the host gives no right to it, that is said once. */
struct pool_cgroups *pool_cgroups_open(const char *below);
void pool_cgroups_free(struct pool_cgroups *c);
/* Put the monitor @pid of sandbox @id into one of its own. */
struct pool_cgroup *pool_cgroup_new(struct pool_cgroups *c, const char *id, int pid,
	uint64_t memory_bytes, uint64_t pids, unsigned vcpus);
/* Its machine is gone. */
void pool_cgroup_free(struct pool_cgroup *g);
/* Remove those whose machine is gone by now. */
void pool_cgroups_sweep(struct pool_cgroups *c);

#endif
