/* SPDX-License-Identifier: Apache-2.0 */
/*
 * EXEC: one program in a tree of its own, its input and output carried over a stream.
 *
 * It is over when its main process is. What that leaves behind has AGENT_GRACE_MS to
 * finish what it was writing, is then killed, and what is in the pipes is read to the end:
 * so output is complete, and no background child keeps an exec from ending. A timeout or a
 * cancel kills the whole tree at once; after a timeout the host has AGENT_DRAIN_MS to
 * take what was written, then the rest is counted and marked as cut.
 *
 * The stream may go before the processes do (a new SYNC, a process that cannot die): the
 * exec then stays until its main process has been reaped.
 *
 * One that is kept (kept.c) is not killed where its stream goes: what it writes is dropped until it has another.
 * Nor is what it leaves behind at its end: that lives on, in the tree, its pipes read to their end.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/agent.h"
#include "agent/exec_private.h"
#include "agent/spawn.h"

/* A detached command that has ended has nobody to tell it to, and took its tree along: QUIESCE asks. */
static char exec_ended[128];

const char *exec_detached_ended(void)
{
	return exec_ended;
}

/* The child's three descriptors and our ends of them. */
struct exec_fds {
	int child[3], in, out, err, master;
};

static void exec_free(struct exec *e)
{
	timer_stop(&e->timeout);
	timer_stop(&e->grace);
	source_close(&e->out);
	source_close(&e->err);
	sink_close(&e->in);
	close_fd(&e->master);
	reap_forget(&e->child);
	kept_remove(e);
	tree_bury(&e->tree);
	free(e);
}

/* What it left behind lives on, and may write: nobody hears it, but it must not be stopped by that. */
static void exec_leave(struct exec *e)
{
	kept_remove(e);
	tree_leave(&e->tree);
	timer_stop(&e->timeout);
	timer_stop(&e->grace);
	sink_close(&e->in);
	close_fd(&e->master);
	e->left = true;
	if (e->out.done && e->err.done)
		exec_free(e);
}

/* Does it leave something behind that is to live? */
static bool exec_leaves(struct exec *e)
{
	return e->kept.kept && e->exited && !e->timed_out && !e->canceled && !tree_remove(&e->tree);
}

/* No more of a source goes to the stream; it is read on. */
static void exec_part(struct exec *e, struct source *s)
{
	if (s->done)
		return;
	stream_eof(e->stream, s->channel);
	source_attach(s, NULL, s->channel, UINT64_MAX);
}

void exec_result(const struct exec *e, struct proto_out *o)
{
	if (e->exited && WIFEXITED(e->status))
		proto_put_u32(o, PROTO_T_EXIT_CODE, (uint32_t)WEXITSTATUS(e->status));
	else
		proto_put_u32(o, PROTO_T_EXIT_SIGNAL,
			e->exited ? (uint32_t)WTERMSIG(e->status) : SIGKILL);
	proto_put_bool(o, PROTO_T_TIMED_OUT, e->timed_out);
	proto_put_bool(o, PROTO_T_OOM, e->oom_kills > 0);
	proto_put_u64(o, PROTO_T_TOTAL_OUT, e->out_before + e->out.total);
	proto_put_u64(o, PROTO_T_TOTAL_ERR, e->err_before + e->err.total);
	proto_put_bool(o, PROTO_T_CUT_OUT, e->out.cut);
	proto_put_bool(o, PROTO_T_CUT_ERR, e->err.cut);
	proto_put_u64(o, PROTO_T_DURATION_NS,
		(uint64_t)((e->ended ? e->ended : agent_now()) - e->started));
}

static void exec_reply(struct exec *e)
{
	uint8_t buf[256];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	bool leaves = exec_leaves(e);
	struct stream *s = e->stream;

	if (!leaves) {
		source_finish(&e->out);
		source_finish(&e->err);
	}
	exec_result(e, &o);
	if (leaves) {
		exec_part(e, &e->out);
		exec_part(e, &e->err);
	}
	sink_close(&e->in);
	e->stream = NULL;
	stream_reply(s, &o);
	timer_stop(&e->timeout);
	timer_stop(&e->grace);
	if (leaves)
		exec_leave(e);
	else if (e->exited)
		exec_free(e);
}

/* Reply once the main process has ended and the output is through. */
static void exec_check(void *user)
{
	struct exec *e = user;

	if (e->left && e->out.done && e->err.done)
		exec_free(e);
	else if (e->stream && e->exited && (e->out.done || e->out_empty) &&
		(!e->has_err || e->err.done || e->err_empty))
		exec_reply(e);
}

static void exec_out_empty(void *user)
{
	struct exec *e = user;

	e->out_empty = true;
	exec_check(e);
}

static void exec_err_empty(void *user)
{
	struct exec *e = user;

	e->err_empty = true;
	exec_check(e);
}

/* Whoever it left behind holds its pipes: what the main process has written is there to be read. */
static void exec_settle(struct exec *e)
{
	if (!e->out.done)
		source_empty(&e->out, exec_out_empty);
	if (!e->err.done)
		source_empty(&e->err, exec_err_empty);
	exec_check(e);
}

static void exec_give_up(void *user)
{
	struct exec *e = user;

	if (e->stream)
		exec_reply(e);
}

/* The rest of the tree has had its time: kill it (unless it is kept) and read what there is. */
static void exec_finish(void *user)
{
	struct exec *e = user;

	if (e->kept.kept && !e->timed_out) {
		exec_settle(e);
		return;
	}
	tree_kill(&e->tree);
	if (e->has_err)
		source_drain(&e->err);
	if (e->out.terminal) /* its end always comes; unless someone outside the tree holds it */
		timer_arm(&e->grace, AGENT_DRAIN_MS, exec_give_up, e);
	source_drain(&e->out);
	exec_check(e);
}

static void exec_exited(void *user, int status)
{
	struct exec *e = user;

	e->exited = true;
	e->status = status;
	e->tree.main = 0;
	e->ended = agent_now();
	e->oom_kills = tree_oom_kills(&e->tree);
	if (e->detached) {
		snprintf(exec_ended, sizeof(exec_ended),
			"the command that was to go on running has ended: %s %d%s",
			WIFEXITED(status) ? "exit status" : "signal",
			WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
			e->oom_kills ? " (out of memory)" : "");
		agent_log("%s", exec_ended);
	}
	if (!e->stream) {
		if (e->kept.linked)
			kept_note_end(e);
		if (exec_leaves(e))
			exec_leave(e);
		else
			exec_free(e);
		return;
	}
	if (!e->timed_out)
		timer_stop(&e->timeout);
	if (e->canceled) {
		exec_reply(e);
		return;
	}
	if (e->timed_out || tree_remove(&e->tree)) {
		exec_finish(e);
		return;
	}
	timer_arm(&e->grace, AGENT_GRACE_MS, exec_finish, e);
	exec_check(e);
}

/* The main process has run for too long (its end stops this timer). */
static void exec_timeout(void *user)
{
	struct exec *e = user;

	e->timed_out = true;
	timer_arm(&e->timeout, AGENT_DRAIN_MS, exec_give_up, e);
	tree_kill(&e->tree);
}

/* ---- the stream ----------------------------------------------------------------------- */

static const struct stream_ops exec_ops;

static void exec_data(struct stream *s, unsigned channel, const uint8_t *bytes, uint32_t len)
{
	struct exec *e = stream_user(s);

	if (channel == PROTO_IN && e->has_in)
		sink_data(&e->in, bytes, len);
	else
		stream_consumed(s, channel, len);
}

static void exec_eof(struct stream *s, unsigned channel)
{
	struct exec *e = stream_user(s);

	if (channel == PROTO_IN && e->has_in)
		sink_eof(&e->in);
}

static void exec_credit(struct stream *s, unsigned channel)
{
	struct exec *e = stream_user(s);

	if (channel == PROTO_OUT)
		source_credit(&e->out);
	else if (channel == PROTO_ERR && e->has_err)
		source_credit(&e->err);
}

static void exec_cancel(struct stream *s)
{
	struct exec *e = stream_user(s);

	e->canceled = true;
	tree_kill(&e->tree);
	if (e->exited)
		exec_reply(e);
	else
		timer_arm(&e->grace, AGENT_DRAIN_MS, exec_give_up, e);
}

static void exec_signal(struct stream *s, uint32_t sig)
{
	struct exec *e = stream_user(s);

	if (sig == SIGKILL)
		tree_kill(&e->tree);
	else if (sig > 0 && sig < NSIG && !e->exited)
		tree_signal(&e->tree, (int)sig);
}

static void exec_resize(struct stream *s, unsigned rows, unsigned cols)
{
	struct exec *e = stream_user(s);
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

	if (e->master >= 0)
		ioctl(e->master, TIOCSWINSZ, &size);
}

/* The connection is gone, and the command goes on. */
static void exec_unfollow(struct exec *e)
{
	e->stream = NULL;
	e->out_before += e->out.total;
	e->err_before += e->err.total;
	source_attach(&e->out, NULL, PROTO_OUT, UINT64_MAX);
	source_attach(&e->err, NULL, PROTO_ERR, UINT64_MAX);
	sink_attach(&e->in, NULL);
	if (!e->exited)
		return;
	kept_note_end(e);
	if (exec_leaves(e))
		exec_leave(e);
	else
		exec_free(e);
}

void exec_follow(struct exec *e, struct stream *s, uint64_t limit_out, uint64_t limit_err)
{
	e->stream = s;
	e->out_before += e->out.total;
	e->err_before += e->err.total;
	source_attach(&e->out, s, PROTO_OUT, limit_out);
	source_attach(&e->err, s, PROTO_ERR, limit_err);
	sink_attach(&e->in, s);
	if (e->out.done)
		stream_eof(s, PROTO_OUT);
	if (e->has_err && e->err.done)
		stream_eof(s, PROTO_ERR);
	stream_set(s, &exec_ops, e);
}

static void exec_abort(struct stream *s)
{
	struct exec *e = stream_user(s);

	if (e->kept.kept && !e->canceled) {
		exec_unfollow(e);
		return;
	}
	e->stream = NULL;
	e->out.stream = e->err.stream = NULL;
	tree_kill(&e->tree);
	timer_stop(&e->timeout);
	timer_stop(&e->grace);
	source_close(&e->out);
	source_close(&e->err);
	sink_close(&e->in);
	if (e->exited)
		exec_free(e);
}

static const struct stream_ops exec_ops = {
	.data = exec_data,
	.eof = exec_eof,
	.credit = exec_credit,
	.cancel = exec_cancel,
	.signal = exec_signal,
	.resize = exec_resize,
	.abort = exec_abort,
};

/* ---- starting ------------------------------------------------------------------------- */

static int pipe_make(int *reader, int *writer, bool ours_reads)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	*reader = fds[0];
	*writer = fds[1];
	return fcntl(ours_reads ? fds[0] : fds[1], F_SETFL, O_NONBLOCK);
}

static int pty_make(const struct request *r, struct exec_fds *fds)
{
	struct winsize size = {.ws_row = r->rows, .ws_col = r->cols};
	int unlock = 0, slave;

	fds->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (fds->master < 0 || ioctl(fds->master, TIOCSPTLCK, &unlock) < 0)
		return -1;
	slave = ioctl(fds->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -1;
	ioctl(fds->master, TIOCSWINSZ, &size);
	fds->child[0] = slave;
	fds->child[1] = fcntl(slave, F_DUPFD_CLOEXEC, 3);
	fds->child[2] = fcntl(slave, F_DUPFD_CLOEXEC, 3);
	fds->out = fcntl(fds->master, F_DUPFD_CLOEXEC, 3);
	if (r->stdin_wanted) {
		fds->in = fcntl(fds->master, F_DUPFD_CLOEXEC, 3);
		if (fds->in < 0)
			return -1;
	}
	return fds->child[1] < 0 || fds->child[2] < 0 || fds->out < 0 ? -1 : 0;
}

static int fds_make(const struct request *r, struct exec_fds *fds)
{
	if (r->has_pty && !r->detach)
		return pty_make(r, fds);
	if (r->stdin_wanted && !r->detach) {
		if (pipe_make(&fds->child[0], &fds->in, false) < 0)
			return -1;
	} else {
		fds->child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	if (r->detach) {
		fds->child[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
		fds->child[2] = open("/dev/null", O_WRONLY | O_CLOEXEC);
		return fds->child[0] < 0 || fds->child[1] < 0 || fds->child[2] < 0 ? -1 : 0;
	}
	if (fds->child[0] < 0 || pipe_make(&fds->out, &fds->child[1], true) < 0)
		return -1;
	return pipe_make(&fds->err, &fds->child[2], true);
}

static void fds_close(struct exec_fds *fds)
{
	for (unsigned i = 0; i < 3; i++)
		close_fd(&fds->child[i]);
	close_fd(&fds->in);
	close_fd(&fds->out);
	close_fd(&fds->err);
	close_fd(&fds->master);
}

static int exec_spawn(
	const struct request *r, struct tree *t, const struct exec_fds *fds, struct fail *f)
{
	static char sh[] = "/bin/sh", dash_c[] = "-c";
	char *line[] = {sh, dash_c, r->shell, NULL};
	struct user user;
	struct spawn spec = {.argv = r->shell ? line : r->args,
		.user = &user,
		.fds = {fds->child[0], fds->child[1], fds->child[2]},
		.nfds = 3,
		.terminal = r->has_pty && !r->detach};
	struct tree_limits limits = {
		.memory_max = r->memory_max, .pids_max = r->pids_max, .oom_group = r->oom_group};
	char **env;
	int res;

	res = r->keep ? kept_check(r, f) : 0;
	if (res == 0)
		res = user_find(r->user, &user, f);
	if (res == 0)
		res = tree_make(t, "exec", &limits, f);
	if (res < 0)
		return res;
	env = env_make(&user, r->env, r->nenv, t->mark, spec.terminal);
	spec.envp = env;
	spec.cwd = r->cwd ? r->cwd : user.home;
	spec.cwd_optional = !r->cwd;
	res = spawn(&spec, t, f);
	env_free(env);
	if (res < 0)
		tree_bury(t);
	return res;
}

static void exec_start(
	struct exec *e, struct stream *s, const struct request *r, struct exec_fds *fds)
{
	e->stream = s;
	stream_set(s, &exec_ops, e);
	source_start(&e->out, fds->out, s, PROTO_OUT, exec_check, e);
	e->out.limit = r->limit_out;
	e->out.terminal = fds->master >= 0;
	fds->out = -1;
	e->has_err = fds->err >= 0;
	if (e->has_err) {
		source_start(&e->err, fds->err, s, PROTO_ERR, exec_check, e);
		e->err.limit = r->limit_err;
		fds->err = -1;
	}
	e->has_in = fds->in >= 0;
	if (e->has_in)
		sink_start(&e->in, fds->in, fds->master >= 0 ? SINK_TERMINAL : SINK_CLOSE, s,
			PROTO_IN, NULL, NULL);
	fds->in = -1;
	e->master = fds->master;
	fds->master = -1;
	if (r->timeout_ms)
		timer_arm(&e->timeout, r->timeout_ms, exec_timeout, e);
	if (r->keep) {
		kept_add(e, r);
		kept_tell(e);
	}
}

void exec_request(struct stream *s, unsigned type, struct request *r)
{
	struct exec_fds fds = {{-1, -1, -1}, -1, -1, -1, -1};
	struct exec *e;
	struct fail f;
	int res;

	(void)type;
	if (r->keep && r->detach) {
		stream_reply_error(s, EINVAL, "EXEC is kept or detached, not both");
		return;
	}
	if (r->shell ? r->nargs > 0 : r->nargs == 0 || !r->args[0][0]) {
		stream_reply_error(s, EINVAL, "EXEC takes a program or a shell line, one of them");
		return;
	}
	e = agent_alloc(sizeof(*e));
	*e = (struct exec){
		.tree.fd = -1, .master = -1, .started = agent_now(), .detached = r->detach};
	e->out.done = e->err.done = e->in.done = true; /* until they are started */
	if (fds_make(r, &fds) < 0)
		res = fail_set(&f, errno, "cannot make pipes or a terminal: %s", strerror(errno));
	else
		res = exec_spawn(r, &e->tree, &fds, &f);
	if (res < 0) {
		stream_reply_error(s, f.err, f.text);
		fds_close(&fds);
		free(e);
		return;
	}
	reap_add(&e->child, e->tree.main, exec_exited, e);
	if (r->detach)
		stream_reply(s, NULL);
	else
		exec_start(e, s, r, &fds);
	fds_close(&fds);
}
