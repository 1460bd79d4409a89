/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_USER_H
#define PARBAKE_AGENT_USER_H

#include <limits.h>
#include <sys/types.h>

#include "agent/agent.h"

/* Who a program runs as: looked up in the root's own /etc/passwd and /etc/group. */
struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[AGENT_GROUPS_MAX];
	unsigned ngroups;
	char name[256];
	char home[PATH_MAX];
};

/* @spec: NULL (root), a name, or uid[:gid]. A number needs no entry; a name does. */
int user_find(const char *spec, struct user *ret, struct fail *f);
/* The name of the user (@group: of the group) @id in the root, or the number as text, into @ret of @size bytes. The
 * files are read once a process: for workers. */
void user_id_name(bool group, uint32_t id, char *ret, size_t size);

#endif
