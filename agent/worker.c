/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers. The result comes as one message over a socketpair: u32 error, then its
 * text or the reply's fields. In the worker only the descriptors it needs stay open, as
 * any other (a pipe's end) would keep its owner from seeing an end of file.
 */
#include "agent/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum worker_fd { WORKER_CONTROL = 3, WORKER_DATA = 4, WORKER_ROOT = 5, WORKER_FDS = 6 };

static int worker_fds(int control, int data)
{
	int fds[3] = {control, data, agent.root};

	for (unsigned i = 0; i < 3; i++) {
		if (fds[i] >= 0)
			fds[i] = fcntl(fds[i], F_DUPFD, WORKER_FDS);
		if (fds[i] < 0 && i != 1)
			return -1;
	}
	for (unsigned i = 0; i < 3; i++)
		if (fds[i] >= 0 && dup2(fds[i], WORKER_CONTROL + (int)i) < 0)
			return -1;
	if (data < 0)
		close(WORKER_DATA);
	agent.root = WORKER_ROOT;
	return (int)syscall(SYS_close_range, WORKER_FDS, ~0u, 0);
}

__attribute__((noreturn)) static void worker_main(
	worker_fn *fn, const void *arg, int control, int data)
{
	static uint8_t buf[4 + WORKER_REPLY_MAX];
	struct proto_out reply = {.buf = buf + 4, .max = WORKER_REPLY_MAX};
	struct fail f = {.err = EIO, .text = "a worker could not be set up"};
	uint32_t err = EIO;
	size_t len;

	if (worker_fds(control, data) == 0)
		err = fn(arg, data < 0 ? -1 : WORKER_DATA, WORKER_CONTROL, &reply, &f) < 0
			? (uint32_t)f.err
			: 0;
	len = reply.len;
	if (err) {
		len = strlen(f.text);
		memcpy(buf + 4, f.text, len);
	}
	memcpy(buf, &err, 4);
	(void)!send(WORKER_CONTROL, buf, 4 + len, MSG_NOSIGNAL);
	_exit(0);
}

static void worker_close(struct worker *w)
{
	watch_remove(w->watch);
	w->watch = NULL;
	close_fd(&w->control);
	reap_forget(&w->child);
}

static void worker_ready(void *user, uint32_t events)
{
	static uint8_t buf[4 + WORKER_REPLY_MAX];
	struct worker *w = user;
	char text[sizeof(((struct fail *)0)->text) + 1];
	uint32_t err;
	ssize_t n;

	(void)events;
	n = recv(w->control, buf, sizeof(buf), MSG_DONTWAIT);
	if (n < 0 &&
		errno == ECONNRESET) /* it ended without reading a commit: its result is next */
		n = recv(w->control, buf, sizeof(buf), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	worker_close(w);
	if (n < 4) {
		w->done(w->user, EIO, "the worker ended without a result", NULL, 0);
		return;
	}
	memcpy(&err, buf, 4);
	if (!err) {
		w->done(w->user, 0, NULL, buf + 4, (uint32_t)n - 4);
		return;
	}
	n = n - 4 < (ssize_t)sizeof(text) ? n - 4 : (ssize_t)sizeof(text) - 1;
	memcpy(text, buf + 4, (size_t)n);
	text[n] = '\0';
	w->done(w->user, (int)err, text, NULL, 0);
}

/* Nothing to do: the result or the socket's end says it. Registered to know the pid is ours. */
static void worker_exited(void *user, int status)
{
	(void)user;
	(void)status;
}

int worker_start(struct worker *w, worker_fn *fn, const void *arg, int data,
	void (*done)(void *user, int err, const char *text, const uint8_t *body, uint32_t len),
	void *user, struct fail *f)
{
	int pair[2];
	pid_t pid;

	*w = (struct worker){.control = -1, .done = done, .user = user};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, errno, "cannot start a worker: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		worker_main(fn, arg, pair[1], data);
	if (pid < 0) {
		fail_set(f, errno, "cannot start a worker: %s", strerror(errno));
		close(pair[0]);
		close(pair[1]);
		return -f->err;
	}
	close(pair[1]);
	reap_add(&w->child, pid, worker_exited, w);
	w->control = pair[0];
	w->watch = watch_add(w->control, EPOLLIN, worker_ready, w);
	if (!w->watch) {
		worker_kill(w);
		return fail_set(f, EIO, "cannot watch a worker");
	}
	return 0;
}

void worker_commit(struct worker *w)
{
	const char byte = WORKER_COMMIT;

	if (w->control >= 0)
		(void)!send(w->control, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void worker_hangup(struct worker *w)
{
	if (w->control >= 0)
		worker_close(w);
}

void worker_kill(struct worker *w)
{
	if (w->child.pid)
		kill(w->child.pid, SIGKILL);
	worker_hangup(w);
}
