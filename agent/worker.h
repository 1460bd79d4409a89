/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_WORKER_H
#define PARBAKE_AGENT_WORKER_H

#include "agent/agent.h"
#include "agent/loop.h"
#include "agent/proto.h"
#include "agent/reap.h"

/*
 * What may block (disks, freezing, a root that is frozen or a file system that hangs)
 * runs in a forked copy of the agent, so that the loop never does.
 */
#define WORKER_REPLY_MAX (16u << 10)

/*
 * Runs in the worker. @data is the descriptor given (or -1), @control a socket on which the
 * agent may say one byte (WORKER_COMMIT) or hang up. Puts a reply's fields into @reply, or
 * fails with @f set.
 */
typedef int worker_fn(const void *arg, int data, int control, struct proto_out *reply,
	struct fail *f);
#define WORKER_COMMIT 'C'

struct worker {
	struct child child;
	int control; /* -1: not running */
	struct watch *watch;
	/* @err 0 or a positive errno with @text; else @body, borrowed until this returns */
	void (*done)(void *user, int err, const char *text, const uint8_t *body, uint32_t len);
	void *user;
};

/* Fork and run @fn(@arg) there, with @data (borrowed, -1: none). done() is called exactly once,
 * unless worker_kill() comes before. */
int worker_start(struct worker *w, worker_fn *fn, const void *arg, int data,
	void (*done)(void *user, int err, const char *text, const uint8_t *body, uint32_t len),
	void *user, struct fail *f);
/* Tell it to commit. */
void worker_commit(struct worker *w);
/* Hang up: it undoes what it made and ends; done() is not called. */
void worker_hangup(struct worker *w);
/* SIGKILL; done() is not called. */
void worker_kill(struct worker *w);

#endif
