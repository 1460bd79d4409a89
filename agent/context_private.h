/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_CONTEXT_PRIVATE_H
#define PARBAKE_AGENT_CONTEXT_PRIVATE_H

/* A context from within: context.c has its process, code.c what runs in it. */
#include <sys/queue.h>

#include "agent/agent.h"
#include "agent/context.h"
#include "agent/language.h"
#include "agent/loop.h"
#include "agent/pump.h"
#include "agent/reap.h"
#include "agent/request.h"
#include "agent/run_timer.h"
#include "agent/tree.h"
#include "agent/user.h"

enum context_state {
	CONTEXT_STARTING, /* its process runs, H has not come */
	CONTEXT_IDLE,
	CONTEXT_BUSY, /* a cell runs */
	CONTEXT_EMPTYING, /* the cell is done, its output is not through */
	CONTEXT_DYING, /* its process has ended, the cell's output is not through */
	CONTEXT_DEAD, /* no process; how it was started is kept for the next */
};

/* One CODE. */
struct cell {
	struct stream *stream; /* NULL: the connection has gone */
	struct context *context;
	char *code;
	char **env, **sandbox_env; /* "K=V": its own, and those of all cells of the sandbox */
	unsigned nenv, nsandbox_env;
	uint64_t timeout_ms, limit_out, limit_err;
	int64_t started;
	bool timed_out, canceled;
	TAILQ_ENTRY(cell) link; /* context.queue */
};

struct context {
	char name[AGENT_CONTEXT_NAME_MAX + 1];
	enum context_state state;
	struct tree tree;
	struct child child;
	int control;
	struct watch *watch;
	uint8_t *rx, *tx;
	size_t rx_len, rx_max, tx_len;
	struct source out, err, results;
	unsigned emptying; /* sources not through yet */
	struct cell *cell;
	TAILQ_HEAD(, cell) queue;
	unsigned queued;
	STAILQ_HEAD(, ask) asks;
	LIST_HEAD(, waiter) waiters;
	struct timer timer; /* of the cell: its timeout, then the wait for who reads its output */
	struct run_timer grace; /* from its interrupt to its end by force */
	char why[320]; /* it is killed, or ended */
	bool stopping, restart;
	bool told; /* DEAD: a CODE has learned of it; else the next must */
	bool ready; /* H has come */
	bool hung_up; /* its end of the socket was closed */
	bool finished; /* the cell's D came before the process ended */
	const struct language *language;
	/* how it was asked to be started */
	struct user user;
	char **env, *cwd;
	unsigned nenv;
	/* what D said */
	uint8_t *done;
	uint32_t done_len;
	TAILQ_ENTRY(context) link;
};

extern TAILQ_HEAD(contexts, context) contexts;

/* Does its process run? */
bool context_alive(const struct context *c);
/* It has answered what it was asked first, by @kind; or (@late: its name) never will. False: it
 * was not asked that. */
bool context_answer(struct context *c, char kind, const char *late);
/* Is the request's language one that we have? false: answered. */
bool context_language(struct stream *s, const struct request *r);
/* Find a context by the request's name, or its language's own. The language is known. */
struct context *context_find(const struct request *r);
/* Make and start one as @r asks (its lists are taken). NULL: *@f. */
struct context *context_make(struct request *r, struct fail *f);
/* Queue a message for its driver. */
void context_send(struct context *c, char kind, const void *body, uint32_t len);
/* SIGKILL; @why goes into what its cell is told. The rest follows when it has been reaped. */
void context_kill(struct context *c, const char *why);
/* Its process has ended and its cell, if any, been told: start again, or go. */
void context_over(struct context *c);

/* The driver is ready for a cell (again). */
void code_next(struct context *c);
/* D came. False: it is broken. */
bool code_done(struct context *c, const uint8_t *body, uint32_t len);
/* The process has ended: tell its cells; context_over() follows, now or later. */
void code_gone(struct context *c);
/* Answer the cells that wait: its interpreter is gone, or (c->ready is false) did not start. */
void code_queue_gone(struct context *c);
/* A source has ended. */
void code_source_done(void *user);

#endif
