/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_SPAWN_H
#define PARBAKE_AGENT_SPAWN_H

/*
 * Starting programs in the guest: a command of the host's, an interpreter, a service. Everything is borrowed until the
 * call returns. The agent's one thread.
 */
#include "agent/agent.h"
#include "agent/tree.h"
#include "agent/user.h"

#define SPAWN_FDS_MAX 10

/* A program to start in a tree. */
struct spawn {
	char *const *argv; /* argv[0] is looked up in the PATH of envp */
	char *const *envp;
	const char *cwd; /* NULL: / */
	bool cwd_optional; /* where it is not there, / instead */
	const struct user *user;
	int fds[SPAWN_FDS_MAX]; /* the child's descriptors 0, 1, … */
	unsigned nfds;
	bool terminal; /* descriptor 0 becomes the controlling terminal */
};

/*
 * Start it: the pid is in t->main on success. Errors say which program or directory, so that
 * one that cannot be started is never mistaken for one that ran and failed. Blocks only until
 * the exec(2).
 */
int spawn(const struct spawn *s, struct tree *t, struct fail *f);

/* The environment of a program run as @u: ours, then the @n of @extra on top by name, and @mark.
 * Free it with env_free(). */
char **env_make(
	const struct user *u, char *const *extra, unsigned n, const char *mark, bool terminal);
void env_free(char **env);

#endif
