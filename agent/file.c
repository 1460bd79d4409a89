/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File requests: a worker (fileop.c) does the work, a pipe carries PUT's bytes to it
 * and GET's and LIST's from it. The request is over when the worker has answered and,
 * where it sent bytes, these are through. A PUT that is not ended by EOF is undone by the
 * worker, which sees that nobody told it to commit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/fileop.h"
#include "agent/pump.h"
#include "agent/request.h"
#include "agent/worker.h"

struct file {
	struct stream *stream;
	struct worker worker;
	struct source out;
	struct sink in;
	bool put;
	bool answered;
	int err;
	char text[sizeof(((struct fail *)0)->text)];
	uint8_t body[WORKER_REPLY_MAX];
	uint32_t len;
};

static void file_free(struct file *j)
{
	source_close(&j->out);
	sink_close(&j->in);
	free(j);
}

static void file_check(void *user)
{
	struct file *j = user;
	struct proto_out out = {.buf = j->body, .len = j->len, .max = j->len};

	if (!j->answered || (!j->out.done && !j->err))
		return;
	source_close(&j->out);
	if (j->err)
		stream_reply_error(j->stream, j->err, j->text);
	else
		stream_reply(j->stream, &out);
	file_free(j);
}

static void file_answer(void *user, int err, const char *text, const uint8_t *body, uint32_t len)
{
	struct file *j = user;

	j->answered = true;
	j->err = err;
	if (err) {
		snprintf(j->text, sizeof(j->text), "%s", text);
	} else {
		memcpy(j->body, body, len);
		j->len = len;
	}
	file_check(j);
}

/* All of the host's bytes are in the pipe, and it is closed: they may be made a file. */
static void file_whole(void *user)
{
	struct file *j = user;

	if (!j->in.broken)
		worker_commit(&j->worker);
}

static void file_data(struct stream *s, unsigned channel, const uint8_t *bytes, uint32_t len)
{
	struct file *j = stream_user(s);

	if (channel == PROTO_IN && !j->in.done)
		sink_data(&j->in, bytes, len);
	else
		stream_consumed(s, channel, len);
}

static void file_eof(struct stream *s, unsigned channel)
{
	struct file *j = stream_user(s);

	if (channel == PROTO_IN)
		sink_eof(&j->in);
}

static void file_credit(struct stream *s, unsigned channel)
{
	struct file *j = stream_user(s);

	if (channel == PROTO_OUT)
		source_credit(&j->out);
}

/* A PUT's worker is left to undo what it made; any other is killed. */
static void file_abort(struct stream *s)
{
	struct file *j = stream_user(s);

	if (j->put)
		worker_hangup(&j->worker);
	else
		worker_kill(&j->worker);
	file_free(j);
}

static void file_cancel(struct stream *s)
{
	file_abort(s);
	stream_reply_error(s, ECANCELED, "canceled");
}

static const struct stream_ops file_ops = {
	.data = file_data,
	.eof = file_eof,
	.credit = file_credit,
	.cancel = file_cancel,
	.abort = file_abort,
};

static const char *file_fault(unsigned type, const struct request *r)
{
	if (!r->path || r->path[0] != '/')
		return "a path must be absolute";
	if (type == PROTO_FILE_RENAME && (!r->path2 || r->path2[0] != '/'))
		return "the new path must be absolute";
	return NULL;
}

/* Start the worker with its end of a pipe, where there is data, and ours with the stream. */
static int file_start(struct file *j, const struct fileop *op, struct fail *f)
{
	bool put = op->type == PROTO_FILE_PUT;
	bool get = op->type == PROTO_FILE_GET || op->type == PROTO_FILE_LIST;
	int pipe[2] = {-1, -1}, ours, theirs, res;

	if ((put || get) && pipe2(pipe, O_CLOEXEC) < 0)
		return fail_set(f, errno, "cannot make a pipe: %s", strerror(errno));
	ours = put ? pipe[1] : pipe[0];
	theirs = put ? pipe[0] : pipe[1];
	res = worker_start(&j->worker, fileop_run, op, theirs, file_answer, j, f);
	close_fd(&theirs);
	if (res < 0) {
		close_fd(&ours);
		return res;
	}
	if (put || get)
		fcntl(ours, F_SETFL, O_NONBLOCK);
	j->put = put;
	if (put)
		sink_start(&j->in, ours, SINK_CLOSE, j->stream, PROTO_IN, file_whole, j);
	else if (get)
		source_start(&j->out, ours, j->stream, PROTO_OUT, file_check, j);
	return 0;
}

void file_request(struct stream *s, unsigned type, struct request *r)
{
	struct fileop op = {.request = r, .type = type, .has_user = r->user != NULL};
	const char *fault = file_fault(type, r);
	struct file *j;
	struct fail f;

	if (fault) {
		stream_reply_error(s, EINVAL, fault);
		return;
	}
	if (op.has_user && user_find(r->user, &op.user, &f) < 0) {
		stream_reply_error(s, f.err, f.text);
		return;
	}
	j = agent_alloc(sizeof(*j));
	j->stream = s;
	j->out.done = j->in.done = true; /* unless they are started */
	if (file_start(j, &op, &f) < 0) {
		stream_reply_error(s, f.err, f.text);
		free(j);
		return;
	}
	stream_set(s, &file_ops, j);
}
