/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_KEEPER_END_PRIVATE_H
#define PARBAKE_POOL_KEEPER_END_PRIVATE_H

#include "pool/keeper/keeper_private.h"

/* What keeper.c (requests and answers) and end.c (the end) share: the daemon's end of a keeper. */

#define KEEPER_PROCS 4 /* keeper, machine, and who else is its child */

struct keeper_call { /* a request */
	struct keeper *k;
	uint64_t n;
	char *text; /* until it is sent */
	keeper_fn *fn;
	void *user;
	bool names; /* it gives the keeper its name */
	/* it failed here */
	int error;
	char *why;
	struct loop_timer *later;
	struct keeper_call *next;
};

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
	bool known; /* who it is */
	int pid, monitor_pid; /* -1: not known yet */
	struct keeper_proc
		procs[KEEPER_PROCS]; /* [0] the keeper, [1] the machine; pidfd -1: none */
	char *sockets; /* the directory; NULL: adopted */
	char *path; /* of its socket; NULL: it has none */
	char *disk_error; /* NULL: none */

	struct keeper_call *first, **last; /* open, in order; sent up to … */
	struct keeper_call *unsent; /* … this one; NULL: all are */
	struct keeper_call *failed;
	uint64_t n;

	int end_error;
	char *end_text;
	struct loop_timer *timer; /* of the end */
	bool killing;
	bool telling; /* GONE, and the open calls are being told: a kill now is told last */
	keeper_fn *kill_fn;
	void *kill_user;

	unsigned busy; /* callbacks running */
	bool freed; /* … by one of them */
	char buf[RPC_BUFFER];
};

/* Around callbacks, which may free it. False: one did, and it is gone. */
void keeper_hold(struct keeper *k);
bool keeper_release(struct keeper *k);
void keeper_disconnect(struct keeper *k);
struct keeper_call *keeper_call_new(struct keeper *k, keeper_fn *fn, void *user);
void keeper_call_free(struct keeper_call *c);
/* It is answered with @error (0: with nothing to say), in the next round. */
void keeper_call_fail(struct keeper *k, struct keeper_call *c, int error, const char *why);
/* Take the oldest open request. */
struct keeper_call *keeper_call_take(struct keeper *k);
void keeper_proc_forget(struct keeper_proc *p);
/* OPEN → ENDING. */
void keeper_end(struct keeper *k, int error, const char *text);

#endif
