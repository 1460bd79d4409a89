/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of a zygote. A request for a keeper carries the keeper's end of a new
 * connection, and has no answer of its own. The other end of that connection shows what became of
 * the request: a greeting, an error that says why there is no keeper, or just its end, where the
 * zygote ended with the request unread.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/proc.h"
#include "common/str.h"
#include "pool/keeper/keeper_private.h"

#define FREE_WAIT_MS 100 /* who is killed ends in less */

struct order {
	char *text;
	int conn; /* the keeper's end */
	STAILQ_ENTRY(order) link;
};

struct zygote {
	struct loop *l;
	int sock; /* -1: it has ended */
	struct loop_watch *on_sock, *on_end;
	struct proc proc;
	char *sockets;
	STAILQ_HEAD(, order) orders; /* not sent yet */
	char *text; /* what it said of its end */
	void (*ended)(void *user, const char *text);
	void *user;
	char buf[RPC_BUFFER];
};

static void order_free(struct order *o)
{
	close_fd(&o->conn);
	free(o->text);
	free(o);
}

/* Nobody is there to make what was ordered. */
static void close_down(struct zygote *n)
{
	struct order *o;

	loop_remove(n->on_sock);
	n->on_sock = NULL;
	close_fd(&n->sock);
	while ((o = STAILQ_FIRST(&n->orders))) {
		STAILQ_REMOVE_HEAD(&n->orders, link);
		order_free(o);
	}
}

static void send_orders(struct zygote *n)
{
	struct order *o;

	while ((o = STAILQ_FIRST(&n->orders))) {
		int r = sock_send_fds(n->sock, o->text, strlen(o->text), &o->conn, 1);

		/* many descriptors that nobody has taken yet are refused for now (unix(7)) */
		if (r == -EAGAIN || r == -ETOOMANYREFS)
			break;
		if (r < 0) /* its end tells more */
			break;
		STAILQ_REMOVE_HEAD(&n->orders, link);
		order_free(o);
	}
	if (n->on_sock)
		loop_set(n->on_sock, o ? POLLIN | POLLOUT : POLLIN);
}

static void hear(struct zygote *n)
{
	cleanup_keeper_answer struct keeper_answer a = {0};
	int fds[KEEPER_FDS];
	size_t n_fds = KEEPER_FDS;
	ssize_t len = rpc_receive(n->sock, n->buf, fds, &n_fds);

	rpc_close_fds(fds, n_fds);
	if (len == -EAGAIN)
		return;
	if (len <= 0) { /* the process's end is what counts */
		close_down(n);
		return;
	}
	if (keeper_answer_parse(n->buf, (size_t)len, &a, NULL) == 0 && a.event && !n->text)
		n->text = str_dup(a.text);
}

static void on_sock(void *user, short revents)
{
	struct zygote *n = user;

	if (revents & (POLLIN | POLLHUP | POLLERR))
		hear(n);
	if (n->sock >= 0 && revents & POLLOUT)
		send_orders(n);
}

static void on_end(void *user, short revents)
{
	struct zygote *n = user;
	cleanup_free char *text = NULL;
	int status = 0;

	(void)revents;
	while (n->sock >= 0) { /* its last words may lie here still */
		struct pollfd pfd = {.fd = n->sock, .events = POLLIN};

		if (poll(&pfd, 1, 0) <= 0)
			break;
		hear(n);
	}
	close_down(n);
	loop_remove(n->on_end);
	n->on_end = NULL;
	proc_wait(&n->proc, CLOCK_NEVER, &status);
	if (n->text)
		text = str_dup(n->text);
	else if (WIFSIGNALED(status))
		text = str_printf("the zygote was killed by signal %d (%s)", WTERMSIG(status),
			sigdescr_np(WTERMSIG(status)) ?: "unknown");
	else
		text = str_printf("the zygote exited with status %d", WEXITSTATUS(status));
	n->ended(n->user, text);
}

static int start(struct zygote *n, const char *const argv[], const char *sockets, struct err *err)
{
	struct proc_spec spec = {.argv = argv,
		.cwd = "/",
		.keep_stderr = true,
		.die_with_parent = true,
		.new_session = true};
	cleanup_fd int dir = open(sockets, O_PATH | O_DIRECTORY | O_CLOEXEC), far = -1;
	int pair[2], r;

	if (dir < 0)
		return err_sys(err, errno, "%s", sockets);
	r = sock_pair_packets(pair, err);
	if (r < 0)
		return r;
	n->sock = pair[0];
	far = pair[1];
	fcntl(n->sock, F_SETFL, O_RDWR | O_NONBLOCK);
	proc_map_fd(&spec, far, ZYGOTE_FD_CONTROL);
	proc_map_fd(&spec, dir, ZYGOTE_FD_SOCKETS);
	r = proc_start(&spec, &n->proc, err);
	if (r < 0)
		return r;
	n->on_sock = loop_add(n->l, n->sock, POLLIN, on_sock, n, err);
	n->on_end = n->on_sock ? loop_add(n->l, n->proc.pidfd, POLLIN, on_end, n, err) : NULL;
	return n->on_end ? 0 : -EIO;
}

int zygote_start(struct loop *l, const char *store_dir, const char *manifest_digest,
	const char *name, const char *tag, const char *sockets,
	void (*ended)(void *user, const char *text), void *user, struct zygote **ret,
	struct err *err)
{
	const char *argv[] = {proc_program(), "zygote", store_dir ?: "", manifest_digest, name,
		tag && *tag ? tag : "latest", NULL};
	struct zygote *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return err_set(err, ENOMEM, "no memory for a zygote");
	*n = (struct zygote){.l = l,
		.sock = -1,
		.proc = PROC_INIT,
		.sockets = str_dup(sockets),
		.ended = ended,
		.user = user};
	STAILQ_INIT(&n->orders);
	r = start(n, argv, sockets, err);
	if (r < 0) {
		err_prefix(err, "start the zygote of %s", name);
		zygote_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

static void zygote_release(struct zygote *n)
{
	free(n->sockets);
	free(n->text);
	free(n);
}

static void freed_end(void *user, short revents)
{
	struct zygote *n = user;

	(void)revents;
	loop_remove(n->on_end);
	proc_wait(&n->proc, CLOCK_NEVER, NULL);
	zygote_release(n);
}

void zygote_free(struct zygote *n)
{
	if (!n)
		return;
	close_down(n);
	loop_remove(n->on_end);
	proc_signal(&n->proc, SIGKILL);
	if (n->proc.pid <= 0 ||
		proc_wait(&n->proc, clock_deadline(FREE_WAIT_MS), NULL) != -ETIMEDOUT) {
		zygote_release(n);
		return;
	}
	/* it hangs in the kernel, writing to a disk maybe: nobody is to wait for that */
	n->on_end = loop_add(n->l, n->proc.pidfd, POLLIN, freed_end, n, NULL);
}

int keeper_make(struct zygote *n, const char *capture, bool same_identity,
	const struct keeper_ops *ops, void *user, struct keeper **ret, struct err *err)
{
	cleanup_json json_t *obj =
		json_pack("{s:s, s:b}", "op", "make", "same_identity", same_identity);
	cleanup_free char *text = NULL;
	cleanup_fd int far = -1;
	struct order *o;
	int pair[2], r;

	if (n->sock < 0)
		return err_set(
			err, ECONNREFUSED, "make a sandbox: %s", n->text ?: "the zygote has ended");
	if (!obj)
		abort();
	if (capture && json_object_set_new(obj, "capture", json_string(capture)) < 0)
		return err_set(err, EINVAL, "make a sandbox from a capture: its path is not UTF-8");
	if ((r = rpc_text(obj, &text, err)) < 0 || (r = sock_pair_packets(pair, err)) < 0)
		return r;
	far = pair[1];
	r = keeper_new(n->l, pair[0], n->sockets, ops, user, ret, err);
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	o = calloc(1, sizeof(*o));
	if (!o)
		abort();
	*o = (struct order){.text = steal_ptr(&text), .conn = steal_fd(&far)};
	STAILQ_INSERT_TAIL(&n->orders, o, link);
	send_orders(n);
	return 0;
}
