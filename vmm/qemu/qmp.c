/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The QMP client. The monitor answers commands in the order they were sent (out-of-band execution
 * is never asked for), so an id is a running number and the only id an answer may have is the next
 * one. Anything else that comes is an event, the greeting, or a breach of the protocol. A breach is
 * remembered, and every later call fails.
 *
 * A refused command that nobody waited for yet is remembered too, the first one: a caller that
 * waits for that command or for a later one gets the reason. That is what makes a pipeline safe.
 *
 * Lines end with a newline. The buffer grows up to LIMIT_QMP_LINE, and is freed when it is empty.
 */
#include "vmm/qemu/qmp.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/sock.h"

#define READ_SIZE (16 * KIB)
/* a monitor whose socket has closed ends at once; it gets this long to do so */
#define END_WAIT_MS 1000
#define READS_MAX 64 /* of one qmp_poll() */

struct qmp {
	int fd;
	int pidfd;
	qmp_event_fn *fn;
	void *user;
	bool greeted;
	uint64_t sent, answered; /* ids; 0: none */
	json_t *value; /* of the newest answer */
	uint64_t failed; /* the first refused command not yet reported; 0: none */
	struct err failed_why;
	int broken; /* negative errno: the connection is over */
	struct err broken_why;
	struct buffer in;
	size_t scanned; /* no newline in its first `scanned` bytes */
	struct {
		uint64_t id;
		char name[40];
	} names[16]; /* of commands, by id modulo their number, for messages */
};

#define N_NAMES (sizeof(((struct qmp *)NULL)->names) / sizeof(((struct qmp *)NULL)->names[0]))

int qmp_new(int fd, int pidfd, qmp_event_fn *fn, void *user, struct qmp **ret, struct err *err)
{
	struct qmp *q = calloc(1, sizeof(*q));

	if (!q)
		return err_set(err, ENOMEM, "out of memory");
	q->fd = fd;
	q->pidfd = pidfd;
	q->fn = fn;
	q->user = user;
	*ret = q;
	return 0;
}

void qmp_free(struct qmp *q)
{
	if (!q)
		return;
	close(q->fd);
	json_decref(q->value);
	buffer_free(&q->in);
	free(q);
}

int qmp_fd(const struct qmp *q)
{
	return q->fd;
}

static int still_broken(const struct qmp *q, struct err *err)
{
	return err_set(err, -q->broken, "%s", q->broken_why.text);
}

static int breach(struct qmp *q, const char *what, struct err *err)
{
	q->broken = err_set(&q->broken_why, EPROTO, "the monitor broke its protocol: %s", what);
	return still_broken(q, err);
}

static const char *name_of(const struct qmp *q, uint64_t id)
{
	return q->names[id % N_NAMES].id == id ? q->names[id % N_NAMES].name : "a command";
}

static int handle_answer(struct qmp *q, json_t *msg, struct err *err)
{
	json_t *value = json_object_get(msg, "return");
	json_t *error = json_object_get(msg, "error");
	json_t *id = json_object_get(msg, "id");
	const char *desc;

	if (!json_is_integer(id) || q->answered == q->sent ||
		(uint64_t)json_integer_value(id) != q->answered + 1)
		return breach(q, "an answer that nothing asked for", err);
	q->answered++;
	json_decref(q->value);
	q->value = json_incref(value);
	if (!error)
		return 0;
	desc = json_string_value(json_object_get(error, "desc"));
	if (!q->failed) {
		q->failed = q->answered;
		err_set(&q->failed_why, EREMOTEIO, "%s: %.1000s", name_of(q, q->failed),
			desc ?: "refused without a reason");
	}
	return 0;
}

static int handle_line(struct qmp *q, const char *line, size_t len, struct err *err)
{
	cleanup_json json_t *msg = NULL;
	const char *event;

	while (len && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (!len)
		return 0;
	if (json_parse("monitor", line, len, &msg, NULL) < 0 || !json_is_object(msg))
		return breach(q, "a line that is no JSON object", err);
	if (json_object_get(msg, "QMP")) {
		if (q->greeted)
			return breach(q, "a second greeting", err);
		q->greeted = true;
		return 0;
	}
	if (!q->greeted)
		return breach(q, "no greeting", err);
	event = json_string_value(json_object_get(msg, "event"));
	if (event) {
		if (q->fn)
			q->fn(q->user, event, json_object_get(msg, "data"));
		return 0;
	}
	if (json_object_get(msg, "return") || json_object_get(msg, "error"))
		return handle_answer(q, msg, err);
	return breach(q, "neither an answer nor an event", err);
}

/* Handle the whole lines of the buffer, keep the rest. */
static int handle_lines(struct qmp *q, struct err *err)
{
	int r = 0;

	while (r == 0 && q->in.len > q->scanned) {
		char *line = buffer_text(&q->in);
		char *end = memchr(line + q->scanned, '\n', q->in.len - q->scanned);

		if (!end) {
			q->scanned = q->in.len;
			break;
		}
		r = handle_line(q, line, (size_t)(end - line), err);
		buffer_consume(&q->in, (size_t)(end - line) + 1);
		q->scanned = 0;
	}
	return r;
}

/* The socket ended or failed. The process's end follows; waiting for it lets the caller say how. */
static int gone(struct qmp *q, struct err *err)
{
	struct pollfd p = {.fd = q->pidfd, .events = POLLIN};

	if (q->pidfd >= 0)
		poll(&p, 1, END_WAIT_MS);
	q->broken = err_set(&q->broken_why, ECONNABORTED, "the monitor is gone");
	return still_broken(q, err);
}

int qmp_poll(struct qmp *q, struct err *err)
{
	if (q->broken)
		return still_broken(q, err);
	/* bounded, so that a monitor that never stops talking cannot hold its caller */
	for (int reads = 0; reads < READS_MAX; reads++) {
		ssize_t n;
		int r;

		if (q->in.len >= LIMIT_QMP_LINE)
			return breach(q, "a line longer than 4 MiB", err);
		n = recv(q->fd, buffer_reserve(&q->in, READ_SIZE), READ_SIZE, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!q->in.len)
				buffer_free(&q->in);
			return 0;
		}
		if (n <= 0)
			return gone(q, err);
		q->in.len += (size_t)n;
		r = handle_lines(q, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Wait for bytes or the end of the monitor, and take them in. 1: @deadline has passed. */
static int wait_some(struct qmp *q, int64_t deadline, struct err *err)
{
	struct pollfd p[2] = {{.fd = q->fd, .events = POLLIN}, {.fd = q->pidfd, .events = POLLIN}};
	int r;

	if (q->broken)
		return still_broken(q, err);
	if (poll(p, 2, clock_left_ms(deadline)) < 0 && errno != EINTR)
		return err_sys(err, errno, "poll");
	r = qmp_poll(q, err);
	if (r == 0 && p[1].revents)
		return gone(q, err);
	return r < 0 ? r : clock_left_ms(deadline) == 0;
}

static int late(struct err *err)
{
	return err_set(err, ETIMEDOUT, "the monitor did not answer in time");
}

int qmp_send(
	struct qmp *q, const char *command, json_t *args, int fd, uint64_t *ret_id, struct err *err)
{
	cleanup_json json_t *owned = args;
	cleanup_json json_t *msg = json_object();
	cleanup_free char *text = NULL;
	uint64_t id = q->sent + 1;
	size_t len;
	ssize_t n;

	if (q->broken)
		return still_broken(q, err);
	if (q->sent - q->answered >= N_NAMES)
		return breach(q, "it does not answer its commands", err);
	json_object_set_new(msg, "execute", json_string(command));
	json_object_set_new(msg, "id", json_integer((json_int_t)id));
	if (owned)
		json_object_set(msg, "arguments", owned);
	text = json_text(msg);
	len = strlen(text);
	text[len++] = '\n'; /* in place of the NUL */
	if (fd >= 0) {
		int r = sock_send_fds(q->fd, text, len, &fd, 1);

		n = r < 0 ? r : (ssize_t)len;
		errno = r < 0 ? -r : 0;
	} else {
		n = send(q->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
		return gone(q, err);
	/* what is outstanding is a few hundred bytes: where they do not fit, nobody reads */
	if (n != (ssize_t)len)
		return breach(q, "it does not read its commands", err);
	q->sent = id;
	q->names[id % N_NAMES].id = id;
	snprintf(q->names[id % N_NAMES].name, sizeof(q->names[0].name), "%s", command);
	if (ret_id)
		*ret_id = id;
	return 0;
}

int qmp_wait(struct qmp *q, uint64_t id, int64_t deadline, json_t **ret, struct err *err)
{
	assert(id && id <= q->sent);
	while (q->answered < id) {
		int r = wait_some(q, deadline, err);

		if (r > 0 && q->answered < id)
			r = late(err);
		if (r < 0) {
			err_prefix(err, "%s", name_of(q, id));
			return r;
		}
	}
	if (q->failed && q->failed <= id) {
		q->failed = 0;
		return err_set(err, EREMOTEIO, "%s", q->failed_why.text);
	}
	if (ret)
		*ret = q->answered == id ? json_incref(q->value) : NULL;
	return 0;
}

int qmp_call(struct qmp *q, const char *command, json_t *args, int64_t deadline, json_t **ret,
	struct err *err)
{
	uint64_t id;
	int r = qmp_send(q, command, args, -1, &id, err);

	return r < 0 ? r : qmp_wait(q, id, deadline, ret, err);
}

int qmp_wait_flag(struct qmp *q, const bool *flag, int64_t deadline, struct err *err)
{
	while (!*flag) {
		int r = wait_some(q, deadline, err);

		if (r > 0 && !*flag)
			r = late(err);
		if (r < 0)
			return r;
	}
	return 0;
}
