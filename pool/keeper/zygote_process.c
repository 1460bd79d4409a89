/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zygote's process: `parbake zygote STORE DIGEST NAME TAG`, started by zygote_start() with its
 * descriptors in place (keeper_private.h).
 *
 * It opens the template, and then does nothing but fork. It has one thread, so a fork is complete.
 * It waits for nobody and does nothing that takes time: many creates at once wait for their
 * monitors, and not for each other here. The children of a keeper that is killed become the
 * zygote's (PR_SET_CHILD_SUBREAPER) and are reaped here, whatever the host's first process does.
 *
 * The zygote ends when the daemon's end of its socket closes. Its keepers do not: all that they
 * still share with the zygote is memory that they read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/keeper/keeper_private.h"
#include "restore/train.h"
#include "store/store.h"

#define THREAD_END_MS 10000

struct zygote {
	struct template *t; /* NULL: it could not be opened */
	struct err why;
	int code;
	int children; /* a signalfd */
	char buf[RPC_BUFFER];
};

static int open_template(const char *store_dir, const char *digest, const char *name,
	const char *tag, struct template **ret, struct err *err)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_free char *ref = str_printf("%s:%s@%s", name, tag, digest);
	int r = store_open(*store_dir ? store_dir : NULL, false, &s, err);

	if (r < 0 || (r = store_resolve(s, ref, &m, err)) < 0 ||
		(r = template_open(s, &m, NULL, ret, err)) < 0)
		return r;
	r = template_before_fork(*ret, err);
	if (r < 0) {
		template_free(*ret);
		*ret = NULL;
		return r;
	}
	/* it came from another host: what is made before they are there does without */
	if (template_trainable(*ret) && !template_trained(*ret))
		train_in_background(*store_dir ? store_dir : NULL, digest, name, tag, true);
	return 0;
}

static unsigned count_threads(void)
{
	cleanup_dir DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	return n;
}

/*
 * A fork has only the thread that forked: a lock that another held would be held for ever. One that was
 * joined is listed until the kernel is through with it, which may take a while (it takes a network namespace
 * along), and does no harm.
 */
static bool one_thread(void)
{
	const struct timespec pace = {.tv_nsec = 1000000};
	int64_t deadline = clock_deadline(THREAD_END_MS);

	while (count_threads() != 1) {
		if (clock_left_ms(deadline) == 0)
			return false;
		nanosleep(&pace, NULL);
	}
	return true;
}

static void tell(int sock, int code, const char *text)
{
	cleanup_json json_t *obj = keeper_ended(code, text);

	rpc_send(sock, obj, NULL, 0);
}

/* @conn (owned) becomes a keeper's. */
static void make(struct zygote *n, const json_t *rq, int conn)
{
	cleanup_fd int owned = conn;
	struct keeper_start start = {.t = n->t,
		.conn = conn,
		.sockets = ZYGOTE_FD_SOCKETS,
		.capture = json_string_value(json_object_get(rq, "capture")),
		.same_identity = json_is_true(json_object_get(rq, "same_identity"))};
	struct err err = n->why;
	int r = n->t ? template_before_fork(n->t, &err) : -n->code;
	pid_t pid;

	if (r == 0)
		template_look_for_translations(n->t);
	if (r == 0 && (r = fault_point("zygote.fork")) < 0)
		err_sys(&err, -r, "fork a keeper");
	if (r == 0) {
		pid = fork();
		if (pid == 0) {
			sigset_t none;

			close(ZYGOTE_FD_CONTROL);
			close(n->children);
			sigemptyset(&none);
			sigprocmask(SIG_SETMASK, &none, NULL);
			keeper_run(&start);
		}
		if (pid < 0)
			r = err_sys(&err, errno, "fork a keeper");
	}
	if (r < 0)
		tell(conn, -r, err.text);
}

/* One request. False: the daemon is gone, or not in its right mind. */
static bool serve(struct zygote *n)
{
	cleanup_json json_t *rq = NULL;
	int fds[KEEPER_FDS];
	size_t n_fds = KEEPER_FDS;
	ssize_t len = rpc_receive(ZYGOTE_FD_CONTROL, n->buf, fds, &n_fds);
	const char *op;
	struct err err;

	if (len == -EAGAIN)
		return true;
	if (len <= 0)
		return false;
	if (json_parse("request", n->buf, (size_t)len, &rq, &err) < 0 ||
		json_get_string(rq, "op", &op, &err) < 0 || strcmp(op, "make") != 0 || n_fds != 1) {
		log_error("zygote: a request that makes no sense");
		rpc_close_fds(fds, n_fds);
		return false;
	}
	make(n, rq, fds[0]);
	return true;
}

static int watch_children(struct zygote *n, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	n->children = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (n->children < 0)
		return err_sys(err, errno, "watch for children");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return 0;
}

/* The signal first: what ends behind that sends another. */
static void reap(struct zygote *n)
{
	struct signalfd_siginfo info;

	while (read(n->children, &info, sizeof(info)) > 0)
		;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void nurse(struct zygote *n)
{
	struct pollfd pfds[2] = {
		{.fd = ZYGOTE_FD_CONTROL, .events = POLLIN}, {.fd = n->children, .events = POLLIN}};

	for (;;) {
		if (poll(pfds, 2, -1) < 0 && errno != EINTR)
			return;
		if (pfds[1].revents)
			reap(n);
		if (pfds[0].revents && !serve(n))
			return;
	}
}

int zygote_main(int argc, char **argv)
{
	static struct zygote n = {.children = -1};
	int flags = fcntl(ZYGOTE_FD_CONTROL, F_GETFL);
	struct pollfd pfd = {.fd = ZYGOTE_FD_CONTROL, .events = POLLIN};
	int r;

	if (argc != 6 || flags < 0 || fcntl(ZYGOTE_FD_SOCKETS, F_GETFD) < 0) {
		log_error("zygote: this command is parbake's own; it is started when it is needed");
		return 2;
	}
	prctl(PR_SET_NAME, "parbake-zygote");
	fcntl(ZYGOTE_FD_CONTROL, F_SETFL, flags | O_NONBLOCK);
	fcntl(ZYGOTE_FD_CONTROL, F_SETFD, FD_CLOEXEC);
	fcntl(ZYGOTE_FD_SOCKETS, F_SETFD, FD_CLOEXEC);
	r = open_template(argv[2], argv[3], argv[4], argv[5], &n.t, &n.why);
	if (r == 0 && !one_thread())
		r = err_set(&n.why, EDEADLK, "a template was opened and left threads behind");
	if (r == 0)
		r = watch_children(&n, &n.why);
	n.code = -r;
	if (r < 0) {
		tell(ZYGOTE_FD_CONTROL, n.code, n.why.text);
		while (serve(&n)) /* those that wait already */
			if (poll(&pfd, 1, 0) <= 0)
				break;
		return 1;
	}
	malloc_trim(0);
	nurse(&n);
	return 0;
}
