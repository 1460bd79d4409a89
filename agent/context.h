/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_CONTEXT_H
#define PARBAKE_AGENT_CONTEXT_H

/*
 * Warm interpreters, as the rest of the agent sees them: all contexts at once. Everything runs in the agent's one
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct stream;

enum context_ask {
	CONTEXT_RESEED = 'S',
	CONTEXT_COLLECT = 'G',
	CONTEXT_EXERCISE = 'E',
	CONTEXT_PREPARE = 'P',
};

/*
 * Ask every living context and call @done once: @late is NULL, or names a context that has not
 * answered after @ms of the time in which the machine ran (or died); @done is called at once where there are no contexts.
 */
void context_ask_all(
	enum context_ask what, uint64_t ms, void (*done)(void *user, const char *late), void *user);
/* CONTEXT with the action "exercise" or "prepare": all contexts, whatever its name. Replies, now or later. */
void context_exercise(struct stream *s, enum context_ask what);
unsigned context_count(void);
/* Kill all contexts. */
void context_kill_all(void);

#endif
