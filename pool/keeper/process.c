/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper's process, from its zygote's fork to its end.
 *
 * It owns one sandbox and does one thing at a time. While it waits for its monitor it reads no
 * other request, since the daemon waits for just that. What must not wait (a kill) does not go
 * through the keeper but through pidfds. What the keeper notices late (a lease that ended while a
 * checkpoint was written) it acts on then.
 *
 * The process ends in one place, keeper_process_end(): first the machine, then the name, then the
 * event to the daemon, so that a daemon that is told of the end finds nothing left. Where the
 * keeper is killed, the machine dies with it (machine_start()), the overlay has no name, and the
 * daemon removes the socket, which nobody answers any more.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/str.h"
#include "common/watchdog.h"
#include "pool/keeper/process_private.h"
#include "pool/keeper/limits.h"

/* ---- the end ------------------------------------------------------------------------------- */

static void forget_name(struct keeper_process *k)
{
	if (k->listening < 0)
		return;
	loop_remove(k->on_listening);
	k->on_listening = NULL;
	unlinkat(k->sockets, k->id, 0);
	close_fd(&k->listening);
}

void keeper_process_clear(struct keeper_process *k)
{
	loop_remove(k->on_machine);
	loop_remove(k->on_monitor);
	k->on_machine = k->on_monitor = NULL;
	sandbox_free(k->sb);
	k->sb = NULL;
	forget_name(k);
}

_Noreturn void keeper_process_end(struct keeper_process *k, int error, const char *text)
{
	keeper_process_clear(k);
	if (k->conn >= 0) {
		cleanup_json json_t *obj = keeper_ended(error, text);

		rpc_send(k->conn, obj, NULL, 0);
	}
	_exit(0);
}

static int say_hello(struct keeper_process *k, struct err *err);

/* Sent once; a later daemon learns it from the greeting. */
static void tell_disk_error(struct keeper_process *k)
{
	if (k->disk_error_told || !machine_disk_error(sandbox_machine(k->sb)))
		return;
	k->disk_error_told = true;
	if (k->conn >= 0)
		say_hello(k, NULL);
}

/* A machine that its monitor has stopped ends by that; machine_ended() is next. */
static void monitor_said(void *user, short revents)
{
	struct keeper_process *k = user;

	machine_get_state(sandbox_machine(k->sb));
	tell_disk_error(k);
	if (revents & (POLLHUP | POLLERR)) { /* its last word; its pidfd tells the rest */
		loop_remove(k->on_monitor);
		k->on_monitor = NULL;
	}
}

static void machine_ended(void *user, short revents)
{
	struct keeper_process *k = user;
	struct err why;

	(void)revents;
	machine_get_state(sandbox_machine(k->sb));
	machine_end_reason(sandbox_machine(k->sb), &why);
	sandbox_explain(k->sb, &why);
	keeper_process_end(k, ECONNABORTED, why.text);
}

/* ---- the lease ----------------------------------------------------------------------------- */

static void lease_ended(void *user);

static void arm(struct keeper_process *k, int64_t at)
{
	loop_timer_cancel(k->on_lease);
	k->on_lease = loop_timer_boot(k->l, at, lease_ended, k);
}

/* A failure that another try would meet again: a stuck monitor, rights. */
static bool stays(int r)
{
	return r == -ETIMEDOUT || r == -ECONNABORTED || r == -EPERM || r == -ENOTSUP;
}

int keeper_process_capture(struct keeper_process *k, const char *dir, bool go_on,
	struct checkpoint_info *ret, struct err *err)
{
	struct watchdog w;
	int r;

	watchdog_start(&w, LIMIT_CAPTURE_MS + LIMIT_CAPTURE_HANG_MS, NULL);
	r = sandbox_capture(k->sb, dir, go_on, clock_deadline(LIMIT_CAPTURE_MS), ret, err);
	watchdog_stop(&w);
	return r;
}

static void lease_ended(void *user)
{
	struct keeper_process *k = user;
	struct checkpoint_info info;
	struct err err;
	int r;

	k->on_lease = NULL;
	if (!k->pause_dir)
		keeper_process_end(k, 0, "its lease has ended");
	r = keeper_process_capture(k, k->pause_dir, false, &info, &err);
	if (r == 0)
		keeper_process_end(k, 0, "its lease has ended: it is paused");
	err_prefix(&err, "its lease has ended, and it could not be paused");
	/* what it holds is worth more than the moment: room may be made */
	if (++k->pause_tries == LIMIT_PAUSE_TRIES || stays(r))
		keeper_process_end(k, -r, err.text);
	log_warn("%s: %s", k->id, err.text);
	arm(k, clock_boot_deadline(LIMIT_PAUSE_RETRY_MS));
}

void keeper_process_lease(struct keeper_process *k, uint64_t lease_ms, const char *pause_dir)
{
	free(k->pause_dir);
	k->pause_dir = str_dup(pause_dir);
	k->end_ns = clock_boot_deadline((int64_t)lease_ms);
	k->pause_tries = 0;
	arm(k, k->end_ns);
}

/* ---- who is connected ---------------------------------------------------------------------- */

static void disconnect(struct keeper_process *k)
{
	loop_remove(k->on_conn);
	k->on_conn = NULL;
	close_fd(&k->conn);
	if (!k->id[0])
		keeper_process_end(k, 0, "nobody wants it any more");
	if (k->on_listening)
		loop_set(k->on_listening, POLLIN);
}

void keeper_process_answer(
	struct keeper_process *k, uint64_t n, json_t *obj, const int *fds, size_t n_fds)
{
	cleanup_json json_t *owned = obj;

	if (!owned || json_object_set_new(owned, "n", json_integer((json_int_t)n)) < 0 ||
		(!json_object_get(owned, "ok") &&
			json_object_set_new(owned, "ok", json_true()) < 0))
		abort(); /* no memory, or a bug */
	if (k->conn >= 0 && rpc_send(k->conn, owned, fds, n_fds) < 0)
		shutdown(k->conn, SHUT_RDWR); /* its end is seen in the loop */
}

static void request_came(void *user, short revents)
{
	cleanup_keeper_request struct keeper_request rq = {0};
	struct keeper_process *k = user;
	int fds[KEEPER_FDS];
	size_t n_fds = KEEPER_FDS;
	ssize_t n = rpc_receive(k->conn, k->buf, fds, &n_fds);
	int64_t read_at = clock_now_ns();
	struct err err;
	int r;

	(void)revents;
	rpc_close_fds(fds, n_fds);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		disconnect(k);
		return;
	}
	r = keeper_request_parse(k->buf, (size_t)n, &rq, &err);
	if (r == 0) {
		keeper_process_serve(k, &rq, read_at);
		tell_disk_error(k); /* the monitor may have said so meanwhile */
	} else if (rq.n) {
		keeper_process_answer(k, rq.n, rpc_failure(rq.n, -r, err.text), NULL, 0);
	} else {
		disconnect(k); /* not of our kind */
	}
}

static int self_pidfd(void)
{
	return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

/* Who we are, and whom to kill. */
static int say_hello(struct keeper_process *k, struct err *err)
{
	cleanup_json json_t *obj = json_pack("{s:s, s:i}", "event", "hello", "pid", (int)getpid());
	cleanup_fd int self = self_pidfd();
	const char *disk_error;
	int fds[2] = {self, -1}, r;
	size_t n = 1;

	if (!obj)
		abort();
	if (self < 0)
		return err_sys(err, errno, "open a keeper's pidfd");
	if (k->sb) {
		json_object_set_new(
			obj, "monitor_pid", json_integer(machine_pid(sandbox_machine(k->sb))));
		fds[n++] = machine_pidfd(sandbox_machine(k->sb));
		disk_error = machine_disk_error(sandbox_machine(k->sb));
		if (disk_error)
			json_object_set_new(
				obj, "text", json_lossy(disk_error, strlen(disk_error)));
	}
	r = rpc_send(k->conn, obj, fds, n);
	return r < 0 ? err_sys(err, -r, "greet the daemon") : 0;
}

static int connected(struct keeper_process *k, int fd, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);

	k->conn = fd;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_sys(err, errno, "the daemon's connection");
	k->on_conn = loop_add(k->l, fd, POLLIN, request_came, k, err);
	return k->on_conn ? 0 : -EIO;
}

/* Another daemon. While one is connected others wait. */
static void daemon_came(void *user, short revents)
{
	struct keeper_process *k = user;
	struct err err;
	int fd = accept4(k->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r;

	(void)revents;
	if (fd < 0)
		return;
	r = sock_check_peer(fd, &err);
	if (r < 0) {
		log_warn("%s: %s", k->id, err.text);
		close(fd);
		return;
	}
	loop_set(k->on_listening, 0);
	r = connected(k, fd, &err);
	if (r == 0)
		r = say_hello(k, &err);
	if (r < 0) {
		log_warn("%s: %s", k->id, err.text);
		disconnect(k);
	}
}

int keeper_process_name(struct keeper_process *k, const char *id, struct err *err)
{
	/* by way of the descriptor: a socket's path may have 107 bytes, the directory's any number */
	cleanup_free char *path = str_printf("/proc/self/fd/%d/%s", k->sockets, id);
	cleanup_fd int fd = sock_listen_packets(path, err);

	if (fd < 0)
		return fd == -EADDRINUSE ? err_set(err, EEXIST, "there is a sandbox %s already", id)
					 : fd;
	snprintf(k->id, sizeof(k->id), "%s", id);
	k->on_listening = loop_add(k->l, fd, 0, daemon_came, k, err);
	if (!k->on_listening) {
		unlinkat(k->sockets, id, 0);
		k->id[0] = '\0';
		return -EIO;
	}
	k->listening = steal_fd(&fd);
	return 0;
}

bool keeper_process_alone(const struct keeper_process *k)
{
	struct pollfd pfd = {.fd = k->conn, .events = POLLRDHUP};

	return k->conn < 0 || poll(&pfd, 1, 0) > 0;
}

/* ---- the beginning ------------------------------------------------------------------------- */

static void become(const struct keeper_start *start)
{
	struct rlimit files;
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	prctl(PR_SET_NAME, "parbake-keeper");
	/* whoever reads what the daemon says must not wait for what outlives it */
	if (null_fd >= 0) {
		dup2(null_fd, STDERR_FILENO);
		close(null_fd);
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > LIMIT_KEEPER_FILES) {
		files.rlim_cur = LIMIT_KEEPER_FILES;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	template_after_fork(start->t);
}

static int make_standby(struct keeper_process *k, const struct keeper_start *start, struct err *err)
{
	int r;

	if (start->capture) {
		r = checkpoint_open(start->capture, &k->capture, err);
		if (r == 0)
			r = sandbox_standby_from(
				k->t, k->capture, start->same_identity, &k->sb, err);
	} else {
		r = sandbox_standby(k->t, &k->sb, err);
	}
	if (r < 0)
		return r;
	k->on_machine = loop_add(
		k->l, machine_pidfd(sandbox_machine(k->sb)), POLLIN, machine_ended, k, err);
	if (!k->on_machine)
		return -EIO;
	k->on_monitor = loop_add(
		k->l, machine_event_fd(sandbox_machine(k->sb)), POLLIN, monitor_said, k, err);
	return k->on_monitor ? 0 : -EIO;
}

_Noreturn void keeper_run(const struct keeper_start *start)
{
	static struct keeper_process k = {.conn = -1, .listening = -1, .channel = -1};
	struct err err;
	int r;

	become(start);
	k.t = start->t;
	k.sockets = start->sockets;
	k.conn =
		start->conn; /* set first, so that the daemon is told even where the loop cannot be made */
	r = fault_point("keeper.begin");
	r = r < 0 ? err_sys(&err, -r, "begin") : loop_new(&k.l, &err);
	if (r == 0)
		r = connected(&k, start->conn, &err);
	if (r == 0)
		r = say_hello(&k, &err);
	if (r == 0)
		r = make_standby(&k, start, &err);
	if (r == 0)
		r = say_hello(&k, &err);
	if (r == 0)
		r = loop_run(k.l, &err);
	keeper_process_end(&k, -r, r < 0 ? err.text : "it was told to");
}
