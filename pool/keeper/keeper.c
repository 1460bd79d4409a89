/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of a keeper: its requests, the keeper's answers, and its events.
 *
 * Requests go out in order and are answered in order, so an answer belongs to the oldest open
 * request. A request that fails before it is sent is answered as all others are: later, from the
 * loop.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "common/log.h"
#include "common/str.h"
#include "pool/keeper/end_private.h"

/* ---- life ---------------------------------------------------------------------------------- */

static void hear(void *user, short revents);

static struct keeper *make(struct loop *l, const struct keeper_ops *ops, void *user)
{
	struct keeper *k = calloc(1, sizeof(*k));

	if (!k)
		abort();
	k->l = l;
	k->ops = ops;
	k->user = user;
	k->sock = k->pid = k->monitor_pid = -1;
	TAILQ_INIT(&k->open);
	TAILQ_INIT(&k->failed);
	for (int i = 0; i < KEEPER_PROCS; i++)
		k->procs[i].pidfd = -1;
	return k;
}

static int watch(struct keeper *k, int sock, struct err *err)
{
	int flags = fcntl(sock, F_GETFL);

	if (flags < 0 || fcntl(sock, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_sys(err, errno, "a keeper's connection");
	k->on_sock = loop_add(k->l, sock, POLLIN, hear, k, err);
	if (!k->on_sock)
		return -EIO;
	k->sock = sock;
	return 0;
}

int keeper_new(struct loop *l, int sock, const char *sockets, const struct keeper_ops *ops,
	void *user, struct keeper **ret, struct err *err)
{
	struct keeper *k = make(l, ops, user);
	int r = watch(k, sock, err);

	k->sockets = str_dup(sockets);
	if (r < 0) {
		keeper_free(k);
		return r;
	}
	*ret = k;
	return 0;
}

/* Who listens where we are connected to: as the kernel noted it then (unix(7)). */
static int find_peer(struct keeper *k, int sock, struct err *err)
{
	struct pollfd pfd = {.fd = sock};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int r = sock_check_peer(sock, err);

	if (r < 0)
		return r;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return err_sys(err, errno, "ask who listens");
	k->procs[0].pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	if (k->procs[0].pidfd < 0)
		return err_sys(err, errno == ESRCH ? ECONNREFUSED : errno, "watch process %d",
			(int)cred.pid);
	/* it was there behind that, so the number was its own */
	if (poll(&pfd, 1, 0) != 0)
		return err_set(err, ECONNREFUSED, "its keeper has just ended");
	k->pid = cred.pid;
	k->known = true;
	return 0;
}

int keeper_adopt(struct loop *l, const char *path, const struct keeper_ops *ops, void *user,
	struct keeper **ret, struct err *err)
{
	cleanup_free char *dir_path = str_dup(path), *by_fd = NULL;
	cleanup_fd int dir = -1, sock = -1;
	char *slash = strrchr(dir_path, '/');
	struct keeper *k;
	int r;

	if (!slash)
		return err_set(err, EINVAL, "%s: not an absolute path", path);
	*slash = '\0';
	dir = open(*dir_path ? dir_path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, errno, "%s", dir_path);
	/* by way of the descriptor: a socket's path may have 107 bytes, the directory's any number */
	by_fd = str_printf("/proc/self/fd/%d/%s", dir, slash + 1);
	sock = sock_connect_packets(by_fd, false, err);
	if (sock < 0)
		return sock;
	k = make(l, ops, user);
	k->path = str_dup(path);
	r = find_peer(k, sock, err);
	if (r == 0)
		r = watch(k, sock, err);
	if (r < 0) {
		keeper_free(k);
		return r;
	}
	steal_fd(&sock);
	*ret = k;
	return 0;
}

void keeper_call_free(struct keeper_call *c)
{
	loop_timer_cancel(c->later);
	free(c->text);
	free(c->why);
	free(c);
}

static void calls_free(struct keeper_calls *calls)
{
	struct keeper_call *c;

	while ((c = TAILQ_FIRST(calls))) {
		TAILQ_REMOVE(calls, c, link);
		keeper_call_free(c);
	}
}

void keeper_proc_forget(struct keeper_proc *p)
{
	loop_remove(p->watch);
	p->watch = NULL;
	close_fd(&p->pidfd);
}

void keeper_disconnect(struct keeper *k)
{
	loop_remove(k->on_sock);
	k->on_sock = NULL;
	close_fd(&k->sock);
}

void keeper_free(struct keeper *k)
{
	if (!k)
		return;
	if (k->busy) {
		k->freed = true;
		return;
	}
	keeper_disconnect(k);
	loop_timer_cancel(k->timer);
	for (int i = 0; i < KEEPER_PROCS; i++)
		keeper_proc_forget(&k->procs[i]);
	calls_free(&k->open);
	calls_free(&k->failed);
	free(k->sockets);
	free(k->path);
	free(k->disk_error);
	free(k->end_text);
	free(k);
}

/* Around callbacks, which may free it. False: one did, and it is gone. */
void keeper_hold(struct keeper *k)
{
	k->busy++;
}

bool keeper_release(struct keeper *k)
{
	if (--k->busy || !k->freed)
		return !k->freed;
	keeper_free(k);
	return false;
}

const char *keeper_disk_error(const struct keeper *k)
{
	return k->disk_error;
}

/* ---- requests ------------------------------------------------------------------------------ */

static void failed_later(void *user)
{
	struct keeper_call *c = user;
	struct keeper *k = c->k;

	c->later = NULL;
	TAILQ_REMOVE(&k->failed, c, link);
	keeper_hold(k);
	if (c->fn)
		c->fn(c->user, c->error, c->why, NULL, NULL, 0);
	keeper_call_free(c);
	keeper_release(k);
}

struct keeper_call *keeper_call_new(struct keeper *k, keeper_fn *fn, void *user)
{
	struct keeper_call *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->k = k;
	c->fn = fn;
	c->user = user;
	return c;
}

/* It is answered with @error (0: with nothing to say), in the next round. */
void keeper_call_fail(struct keeper *k, struct keeper_call *c, int error, const char *why)
{
	c->error = error;
	c->why = str_dup(why);
	TAILQ_INSERT_TAIL(&k->failed, c, link);
	c->later = loop_defer(k->l, failed_later, c);
}

static void send_calls(struct keeper *k)
{
	while (k->unsent) {
		struct keeper_call *c = k->unsent;
		int r = sock_send_fds(k->sock, c->text, strlen(c->text), NULL, 0);

		if (r < 0) /* no room; or its end, which tells more */
			break;
		free(c->text);
		c->text = NULL;
		k->unsent = TAILQ_NEXT(c, link);
	}
	loop_set(k->on_sock, k->unsent ? POLLIN | POLLOUT : POLLIN);
}

/* @obj is taken. Returns the call, or NULL where it fails (later). */
static struct keeper_call *ask(
	struct keeper *k, enum keeper_op op, json_t *obj, keeper_fn *fn, void *user)
{
	cleanup_json json_t *owned = obj;
	struct keeper_call *c = keeper_call_new(k, fn, user);
	struct err err;
	int r;

	if (k->killing || k->state != KEEPER_OPEN) {
		keeper_call_fail(k, c, ECONNRESET, k->end_text ?: "the sandbox is being ended");
		return NULL;
	}
	c->n = ++k->n;
	if (!owned || json_object_set_new(owned, "op", json_string(keeper_op_name(op))) < 0 ||
		json_object_set_new(owned, "n", json_integer((json_int_t)c->n)) < 0) {
		keeper_call_fail(k, c, EINVAL, "a request whose text is not UTF-8");
		return NULL;
	}
	r = rpc_text(owned, &c->text, &err);
	if (r < 0) {
		keeper_call_fail(k, c, -r, err.text);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&k->open, c, link);
	if (!k->unsent)
		k->unsent = c;
	send_calls(k);
	return c;
}

void keeper_ready(struct keeper *k, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_READY, json_object(), fn, user);
}

void keeper_prepare(struct keeper *k, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_PREPARE, json_object(), fn, user);
}

void keeper_hand_out(struct keeper *k, const struct keeper_lease *lease, const char *hostname,
	keeper_fn *fn, void *user)
{
	json_t *obj = json_pack("{s:s, s:I, s:s*, s:s*, s:O*}", "id", lease->id, "lease_ms",
		(json_int_t)lease->lease_ms, "pause_dir", lease->pause_dir, "hostname", hostname,
		"record", lease->record);
	struct keeper_call *c = ask(k, KEEPER_HAND_OUT, obj, fn, user);

	if (!c)
		return;
	c->names = true;
	if (!k->path && k->sockets && keeper_id_valid(lease->id))
		k->path = str_printf("%s/%s", k->sockets, lease->id);
}

void keeper_describe(struct keeper *k, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_DESCRIBE, json_object(), fn, user);
}

void keeper_renew(struct keeper *k, uint64_t lease_ms, const char *pause_dir, const json_t *record,
	keeper_fn *fn, void *user)
{
	ask(k, KEEPER_RENEW,
		json_pack("{s:I, s:s*, s:O*}", "lease_ms", (json_int_t)lease_ms, "pause_dir",
			pause_dir, "record", record),
		fn, user);
}

void keeper_capture(struct keeper *k, const char *dir, bool stop, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_CAPTURE, json_pack("{s:s, s:b}", "dir", dir, "stop", stop), fn, user);
}

void keeper_settled(struct keeper *k, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_SETTLED, json_object(), fn, user);
}

void keeper_stats(struct keeper *k, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_STATS, json_object(), fn, user);
}

void keeper_console(struct keeper *k, keeper_fn *fn, void *user)
{
	ask(k, KEEPER_CONSOLE, json_object(), fn, user);
}

/* ---- what it says -------------------------------------------------------------------------- */

/* Take the oldest open request. */
struct keeper_call *keeper_call_take(struct keeper *k)
{
	struct keeper_call *c = TAILQ_FIRST(&k->open);

	if (k->unsent == c)
		k->unsent = TAILQ_NEXT(c, link);
	TAILQ_REMOVE(&k->open, c, link);
	return c;
}

static void forget_name(struct keeper *k)
{
	free(k->path);
	k->path = NULL;
}

/* Answer the oldest request. False: @k is gone, or its connection. */
static bool answered(struct keeper *k, const struct keeper_answer *a, int *fds, size_t n_fds)
{
	struct keeper_call *c = keeper_call_take(k);

	if (a->error && c->names) /* what it had of that name it has cleared */
		forget_name(k);
	keeper_hold(k);
	if (c->fn)
		c->fn(c->user, a->error, a->error ? a->text : NULL, a->error ? NULL : a->obj, fds,
			(unsigned)n_fds);
	else
		rpc_close_fds(fds, n_fds);
	keeper_call_free(c);
	return keeper_release(k) && k->sock >= 0;
}

/* It says who it is; and again, when it has a machine. */
static void greeted(struct keeper *k, const struct keeper_answer *a, int *fds, size_t n_fds)
{
	for (size_t i = 0; i < n_fds; i++) {
		close_fd(&k->procs[i].pidfd);
		k->procs[i].pidfd = steal_fd(&fds[i]);
	}
	if (n_fds) {
		k->known = true;
		k->pid = a->pid;
	}
	if (n_fds > 1)
		k->monitor_pid = a->monitor_pid;
	if (*a->text) {
		log_warn("%s: %s", k->path ? strrchr(k->path, '/') + 1 : "a sandbox", a->text);
		free(k->disk_error);
		k->disk_error = str_dup(a->text);
	}
	if (k->killing)
		keeper_end(k, ECONNRESET, "the sandbox is being ended");
}

/* One message. False: @k is gone, or its connection. */
static bool said(struct keeper *k, const struct keeper_answer *a, int *fds, size_t n_fds)
{
	const struct keeper_call *oldest = TAILQ_FIRST(&k->open);

	if (!a->event) {
		if (oldest && oldest != k->unsent && a->n == oldest->n)
			return answered(k, a, fds, n_fds);
		rpc_close_fds(fds, n_fds);
		keeper_end(k, EPROTO, "its keeper answered what nobody asked");
		return false;
	}
	if (strcmp(a->event, "hello") == 0)
		greeted(k, a, fds, n_fds);
	else if (strcmp(a->event, "ended") == 0)
		keeper_end(k, a->error ? a->error : ECONNRESET, a->text);
	rpc_close_fds(fds, n_fds);
	return k->sock >= 0;
}

static void hear(void *user, short revents)
{
	struct keeper *k = user;

	if (revents & POLLOUT)
		send_calls(k);
	for (bool more = true; more;) {
		cleanup_keeper_answer struct keeper_answer a = {0};
		int fds[KEEPER_FDS];
		size_t n_fds = KEEPER_FDS;
		ssize_t n = rpc_receive(k->sock, k->buf, fds, &n_fds);
		struct err err;

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			keeper_end(k, ECONNRESET, "its keeper has ended");
			return;
		}
		if (keeper_answer_parse(k->buf, (size_t)n, &a, &err) < 0) {
			rpc_close_fds(fds, n_fds);
			err_prefix(&err, "its keeper makes no sense");
			keeper_end(k, EPROTO, err.text);
			return;
		}
		more = said(k, &a, fds, n_fds);
	}
}
