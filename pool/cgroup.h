/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CGROUP_H
#define PARBAKE_POOL_CGROUP_H

/*
 * Can machines of a pool get cgroups of their own, below @below (NULL: the process's own)? A sentence for
 * people in @ret. 0 where they can, 1 where not. Nothing is changed.
 */
int pool_cgroups_probe(const char *below, char ret[static 256]);

#endif
