/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_EXEC_PRIVATE_H
#define PARBAKE_AGENT_EXEC_PRIVATE_H

#include <sys/queue.h>

#include "agent/loop.h"
#include "agent/pump.h"
#include "agent/reap.h"
#include "agent/request.h"
#include "agent/tree.h"

/* What EXEC (exec.c) and the commands that are kept (kept.c) share. Nobody else includes this. */

/* Of a kept command: how others find it. */
struct kept {
	bool kept;
	uint32_t pid;
	char *tag; /* or NULL */
	char *cwd; /* as it was asked for, or NULL */
	char **words; /* nwords of them, as far as PROTO_WORDS_MAX */
	unsigned nwords;
	TAILQ_ENTRY(exec) link;
	bool linked;
};

struct exec {
	struct stream *
		stream; /* NULL: it has been replied to, is detached, or is kept and nobody follows it */
	struct tree tree;
	struct child child;
	struct source out, err;
	struct sink in;
	uint64_t out_before, err_before; /* bytes that came on former streams */
	bool has_in, has_err;
	bool out_empty,
		err_empty; /* all that the main process wrote has been read; others hold the pipe */
	int master; /* of the terminal; -1 */
	struct timer timeout, grace;
	int64_t started, ended;
	int status;
	uint64_t oom_kills;
	bool exited, timed_out, canceled, detached;
	bool left; /* it has ended, and what it left behind lives: its pipes are read until they end */
	struct kept kept;
};

/* The reply's fields, of a command that has ended or is given up. */
void exec_result(const struct exec *e, struct proto_out *o);
/* Its stream is @s from now on. */
void exec_follow(struct exec *e, struct stream *s, uint64_t limit_out, uint64_t limit_err);

/* May @r begin? 0, or -errno with @f. */
int kept_check(const struct request *r, struct fail *f);
/* It runs: others may find it. */
void kept_add(struct exec *e, const struct request *r);
/* Tell its follower that it runs. */
void kept_tell(const struct exec *e);
/* It is found no more. Harmless twice. */
void kept_remove(struct exec *e);
/* It has ended while nobody followed it: who asks for it later is told how. */
void kept_note_end(const struct exec *e);

#endif
