/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_REAP_H
#define PARBAKE_AGENT_REAP_H

#include <sys/queue.h>
#include <sys/types.h>

/*
 * Children. As PID 1 (in tests: as subreaper) the agent inherits every orphan; all
 * that end are collected, and whoever registered a pid is told its status.
 */
struct child {
	pid_t pid; /* 0: not registered */
	void (*fn)(void *user, int status); /* waitpid(2)'s status */
	void *user;
	LIST_ENTRY(child) link;
};

/* Block SIGCHLD and watch for it; once, after loop_init(). -errno. */
int reap_init(void);
/* Register: before the next turn of the loop after the fork. Cleared before @fn is called. */
void reap_add(struct child *c, pid_t pid, void (*fn)(void *user, int status), void *user);
/* Forget: its status is dropped when it ends. Harmless for a child that is not registered. */
void reap_forget(struct child *c);
/* Collect everything that has ended. */
void reap_all(void);

#endif
