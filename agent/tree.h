/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_TREE_H
#define PARBAKE_AGENT_TREE_H

#include <sys/types.h>

#include "agent/agent.h"

/*
 * A process tree that can be killed whole, whatever it did to get away: a cgroup of
 * its own. Without cgroups (tests on a host), the descendants and whoever carries
 * the tree's mark in its environment.
 */
#define TREE_MARK "PARBAKE_TREE="

struct tree {
	int fd; /* the cgroup's directory, -1: none */
	unsigned id;
	pid_t main; /* its first process, once it runs */
	char name[32]; /* of the directory */
	char mark[80]; /* for the environment; empty where there is a cgroup */
};

struct tree_limits {
	uint64_t memory_max, pids_max; /* 0: none */
	bool oom_group;
};

/* Use the cgroup directory @fd (taken; -1: none) for trees. Once. */
void tree_init(int fd);
/* Make an empty tree; its name begins with @kind. Limits without cgroups: an error. */
int tree_make(struct tree *t, const char *kind, const struct tree_limits *limits, struct fail *f);
/* SIGKILL to all of it. */
void tree_kill(const struct tree *t);
/* @sig to all of it. */
void tree_signal(const struct tree *t, int sig);
/* How many of its processes the out-of-memory killer took. */
uint64_t tree_oom_kills(const struct tree *t);
/* Remove it where nothing lives in it any more: true, it is gone. */
bool tree_remove(struct tree *t);
/* Kill what is left and remove it when it is empty, in the background. @t is emptied. */
void tree_bury(struct tree *t);
/* Let what is left live, and remove the tree when it is empty, in the background. @t is emptied. */
void tree_leave(struct tree *t);
/* Kill every tree (shutdown). */
void tree_kill_all(void);

#endif
