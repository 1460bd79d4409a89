/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a keeper, as the daemon brings it about or sees it come.
 *
 *     OPEN ──"ended", its end, a kill──► ENDING ──both processes are gone──► GONE
 *
 * Whatever ends a keeper, ENDING is the same. SIGKILL goes by pidfd to the keeper and to its
 * machine; that does no harm to a process that is gone already, and ends one that is stopped. Both
 * pidfds are waited for. The name (the socket) that a killed keeper left is removed. Only then is
 * the keeper's owner told, so the owner may count on all of it. The pidfds come with the keeper's
 * greeting. Of an adopted keeper that is silent, the socket tells the process, and the kernel its
 * child.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/keeper/end_private.h"
#include "pool/keeper/limits.h"

/* Nobody listens at its name: the file goes. */
static void clear_name(struct keeper *k)
{
	cleanup_free char *dir_path = str_dup(k->path), *by_fd = NULL;
	cleanup_fd int dir = -1, sock = -1;
	char *slash = k->path ? strrchr(dir_path, '/') : NULL;

	if (!slash)
		return;
	*slash = '\0';
	dir = open(*dir_path ? dir_path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return;
	by_fd = str_printf("/proc/self/fd/%d/%s", dir, slash + 1);
	sock = sock_connect_packets(by_fd, false, NULL);
	if (sock == -ECONNREFUSED)
		unlinkat(dir, slash + 1, 0);
}

/* All is gone, or will not go: tell. */
static void finish(struct keeper *k, int error, const char *text)
{
	keeper_hold(k);
	keeper_disconnect(k);
	loop_timer_cancel(k->timer);
	k->timer = NULL;
	k->state = KEEPER_GONE;
	if (!error)
		clear_name(k);
	k->telling = true;
	while (!TAILQ_EMPTY(&k->open) && !k->freed) {
		struct keeper_call *c = keeper_call_take(k);

		if (c->fn)
			c->fn(c->user, k->end_error, k->end_text, NULL, NULL, 0);
		keeper_call_free(c);
	}
	k->telling = false;
	if (!k->freed && k->killing) {
		if (k->kill_fn)
			k->kill_fn(k->kill_user, error, text, NULL, NULL, 0);
	} else if (!k->freed) {
		k->ops->ended(k->user, text ?: k->end_text);
	}
	keeper_release(k);
}

static void gone(void *user)
{
	struct keeper *k = user;

	k->timer = NULL;
	finish(k, 0, NULL);
}

static void overdue(void *user)
{
	struct keeper *k = user;
	cleanup_free char *text = str_printf("the sandbox (processes %d and %d) is not gone %d s "
					     "after SIGKILL; it hangs in the kernel",
		k->pid, k->monitor_pid, LIMIT_KILL_MS / 1000);

	log_error("%s", text);
	k->timer = NULL;
	finish(k, ETIMEDOUT, text);
}

static void kill_proc(int pidfd)
{
	if (pidfd >= 0)
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static void proc_ended_now(void *user, short revents)
{
	struct keeper *k = user;
	bool left = false;

	(void)revents;
	for (int i = 0; i < KEEPER_PROCS; i++) {
		struct pollfd pfd = {.fd = k->procs[i].pidfd, .events = POLLIN};

		if (pfd.fd >= 0 && poll(&pfd, 1, 0) == 1)
			keeper_proc_forget(&k->procs[i]);
		left |= k->procs[i].pidfd >= 0;
	}
	if (!left)
		finish(k, 0, NULL);
}

/* Its machine is not known (it could not tell): the children that it has now. They die with it, and are to
 * be waited for. */
static void find_children(struct keeper *k)
{
	cleanup_free char *path = str_printf("/proc/%d/task/%d/children", k->pid, k->pid);
	cleanup_free char *text = NULL;
	struct pollfd pfd = {.fd = k->procs[0].pidfd, .events = POLLIN};
	int next = 1;

	if (k->pid <= 0 || k->procs[1].pidfd >= 0 ||
		file_read_all(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
		return;
	for (char *word = text, *rest; next < KEEPER_PROCS; word = rest) {
		long pid = strtol(word, &rest, 10);

		if (rest == word)
			break;
		k->procs[next].pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
		next += k->procs[next].pidfd >= 0;
	}
	/* were it gone, its number could be another's, and so its children */
	if (poll(&pfd, 1, 0) == 0)
		return;
	while (next > 1)
		close_fd(&k->procs[--next].pidfd);
}

/* OPEN → ENDING. */
void keeper_end(struct keeper *k, int error, const char *text)
{
	bool any = false;

	if (k->state != KEEPER_OPEN)
		return;
	k->state = KEEPER_ENDING;
	k->end_error = error;
	k->end_text = str_dup(text);
	keeper_disconnect(k);
	find_children(k);
	/* the machine first: no process restarts it */
	for (int i = KEEPER_PROCS - 1; i >= 0; i--) {
		struct keeper_proc *p = &k->procs[i];

		kill_proc(p->pidfd);
		if (p->pidfd >= 0)
			p->watch = loop_add(k->l, p->pidfd, POLLIN, proc_ended_now, k, NULL);
		any |= p->watch != NULL;
	}
	loop_timer_cancel(k->timer);
	k->timer = any ? loop_timer(k->l, clock_deadline(LIMIT_KILL_MS), overdue, k)
		       : loop_defer(k->l, gone, k);
}

void keeper_kill(struct keeper *k, keeper_fn *fn, void *user)
{
	if (k->killing || (k->state == KEEPER_GONE && !k->telling)) {
		keeper_call_fail(k, keeper_call_new(k, fn, user),
			k->state == KEEPER_GONE ? 0 : EALREADY,
			k->state == KEEPER_GONE ? NULL : "the sandbox is being ended");
		return;
	}
	k->killing = true;
	k->kill_fn = fn;
	k->kill_user = user;
	if (k->known)
		keeper_end(k, ECONNRESET, "the sandbox is being ended");
	else if (k->state == KEEPER_OPEN) /* it greets as soon as it is forked, or never */
		k->timer = loop_timer(k->l, clock_deadline(LIMIT_KILL_MS), overdue, k);
}
