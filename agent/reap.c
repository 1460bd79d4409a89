/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGCHLD through a signalfd. Signals coalesce, so each one means: collect until
 * nothing is left.
 */
#include "agent/reap.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "agent/agent.h"
#include "agent/loop.h"

static LIST_HEAD(, child) reap_children;
static int reap_fd = -1;

void reap_forget(struct child *c)
{
	if (c->pid)
		LIST_REMOVE(c, link);
	c->pid = 0;
}

void reap_add(struct child *c, pid_t pid, void (*fn)(void *user, int status), void *user)
{
	*c = (struct child){.pid = pid, .fn = fn, .user = user};
	LIST_INSERT_HEAD(&reap_children, c, link);
}

void reap_all(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct child *c;

		LIST_FOREACH(c, &reap_children, link)
			if (c->pid == pid)
				break;
		if (!c)
			continue;
		reap_forget(c);
		c->fn(c->user, status);
	}
}

static void reap_ready(void *user, uint32_t events)
{
	struct signalfd_siginfo info[8];

	(void)user;
	(void)events;
	while (read(reap_fd, info, sizeof(info)) > 0)
		continue;
	reap_all();
}

int reap_init(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	reap_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (reap_fd < 0)
		return -errno;
	return watch_add(reap_fd, EPOLLIN, reap_ready, NULL) ? 0 : -EIO;
}
