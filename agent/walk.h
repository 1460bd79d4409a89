/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_WALK_H
#define PARBAKE_AGENT_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Trees without cgroups, by walking /proc: what descends from a process, and what carries a
 * mark in its environment. Used only where the agent is an ordinary process.
 */

/* The mark of tree @id: a variable for its environment. */
void walk_mark(char *buf, size_t max, unsigned id);
/* @sig to the tree; SIGKILL is repeated until nothing is found. */
void walk_signal(pid_t main, const char *mark, int sig);
/* Does a process with @mark live? */
bool walk_any(const char *mark);

#endif
