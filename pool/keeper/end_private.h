/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_KEEPER_END_PRIVATE_H
#define PARBAKE_POOL_KEEPER_END_PRIVATE_H

#include <sys/queue.h>

#include "pool/keeper/keeper_private.h"

/* The daemon's end of a keeper: what keeper.c (requests and answers) and end.c (the end) share. */

#define KEEPER_PROCS 4 /* the keeper, its machine, and other children of the keeper */

struct keeper_call { /* a request */
	struct keeper *k;
	uint64_t n;
	char *text; /* until it is sent */
	keeper_fn *fn;
	void *user;
	bool names; /* it is a hand_out, which gives the keeper its name */
	/* it failed in this process, before it was sent */
	int error;
	char *why;
	struct loop_timer *later;
	TAILQ_ENTRY(keeper_call) link; /* keeper.open or keeper.failed */
};
TAILQ_HEAD(keeper_calls, keeper_call);

struct keeper_proc {
	int pidfd;
	struct loop_watch *watch;
};

struct keeper {
	struct loop *l;
	int sock; /* -1: not OPEN any more */
	struct loop_watch *on_sock;
	const struct keeper_ops *ops;
	void *user;
	enum { KEEPER_OPEN, KEEPER_ENDING, KEEPER_GONE } state;
	bool known; /* its greeting has come */
	int pid, monitor_pid; /* -1: not known yet */
	struct keeper_proc
		procs[KEEPER_PROCS]; /* [0] the keeper, [1] the machine; pidfd -1: none */
	char *sockets; /* the directory; NULL: adopted */
	char *path; /* of its socket; NULL: it has none */
	char *disk_error; /* NULL: none */

	struct keeper_calls open; /* requests, in order; all before unsent are sent */
	struct keeper_call *unsent; /* the first that is not sent; NULL: all are */
	struct keeper_calls failed;
	uint64_t n;

	int end_error;
	char *end_text;
	struct loop_timer *timer; /* the deadline of its end */
	bool killing;
	bool telling; /* GONE, open requests are being answered: a kill is answered last */
	keeper_fn *kill_fn;
	void *kill_user;

	unsigned busy; /* callbacks that are running */
	bool freed; /* keeper_free() was called by one of them */
	char buf[RPC_BUFFER];
};

/*
 * Hold @k around callbacks, which may free it. keeper_release() returns false where one did, and @k
 * is gone.
 */
void keeper_hold(struct keeper *k);
bool keeper_release(struct keeper *k);
void keeper_disconnect(struct keeper *k);
struct keeper_call *keeper_call_new(struct keeper *k, keeper_fn *fn, void *user);
void keeper_call_free(struct keeper_call *c);
/* Answer @c with @error (0: success, without a reply) in the loop's next round. */
void keeper_call_fail(struct keeper *k, struct keeper_call *c, int error, const char *why);
/* Take the oldest open request off the list. */
struct keeper_call *keeper_call_take(struct keeper *k);
void keeper_proc_forget(struct keeper_proc *p);
/* OPEN → ENDING. @error and @text say why. */
void keeper_end(struct keeper *k, int error, const char *text);

#endif
