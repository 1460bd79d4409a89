/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CGROUP_H
#define PARBAKE_POOL_CGROUP_H

/*
 * Cgroups for the machines of a pool: can they be had on this host?
 *
 * Can machines get cgroups of their own, below the cgroup @below (NULL: the process's own)? A
 * sentence for people in @ret. Returns 0 where they can and 1 where they cannot. Nothing is
 * changed.
 */
int pool_cgroups_probe(const char *below, char ret[static 256]);

#endif
