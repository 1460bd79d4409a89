/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees as cgroups. cgroup.kill takes a whole cgroup at once, forks in flight included.
 * A cgroup can be removed only when its last process is gone; tree_bury() waits
 * for that by the change of cgroup.events, not by trying again.
 */
#include "agent/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "agent/loop.h"
#include "agent/walk.h"

static int tree_base = -1;
static unsigned tree_next;

void tree_init(int fd)
{
	tree_base = fd;
}

/* Write @text to a control file: 0 or -errno. */
static int control_write(int dir, const char *file, const char *text)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC), res = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		res = -errno;
	close(fd);
	return res;
}

static ssize_t control_read(int dir, const char *file, char *buf, size_t max)
{
	int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, max - 1);
	close(fd);
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

static int limit_set(const struct tree *t, const char *file, uint64_t value, struct fail *f)
{
	char text[32];
	int res;

	snprintf(text, sizeof(text), "%" PRIu64, value);
	res = control_write(t->fd, file, text);
	if (res < 0)
		return fail_set(f, -res, "cannot set %s to %s: %s", file, text, strerror(-res));
	return 0;
}

int tree_make(struct tree *t, const char *kind, const struct tree_limits *limits, struct fail *f)
{
	bool limited = limits && (limits->memory_max || limits->pids_max);
	int res = 0;

	*t = (struct tree){.fd = -1, .id = ++tree_next};
	if (tree_base < 0) {
		walk_mark(t->mark, sizeof(t->mark), t->id);
		return limited ? fail_set(f, ENOTSUP, "limits need cgroups, which are not there")
			       : 0;
	}
	snprintf(t->name, sizeof(t->name), "%s-%u", kind, t->id);
	if (mkdirat(tree_base, t->name, 0755) < 0 && errno != EEXIST)
		return fail_set(f, errno, "cannot make cgroup %s: %s", t->name, strerror(errno));
	t->fd = openat(tree_base, t->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->fd < 0)
		return fail_set(f, errno, "cannot open cgroup %s: %s", t->name, strerror(errno));
	if (limits && limits->memory_max)
		res = limit_set(t, "memory.max", limits->memory_max, f);
	if (res == 0 && limits && limits->pids_max)
		res = limit_set(t, "pids.max", limits->pids_max, f);
	if (res == 0 && limits && limits->oom_group)
		res = limit_set(t, "memory.oom.group", 1, f);
	if (res < 0)
		tree_remove(t);
	return res;
}

void tree_kill(const struct tree *t)
{
	if (t->fd >= 0 && control_write(t->fd, "cgroup.kill", "1") == 0)
		return;
	if (t->fd >= 0)
		tree_signal(t, SIGKILL);
	else
		walk_signal(t->main, t->mark, SIGKILL);
}

void tree_signal(const struct tree *t, int sig)
{
	int fd;
	FILE *file;
	pid_t pid;

	if (t->fd < 0) {
		walk_signal(t->main, t->mark, sig);
		return;
	}
	fd = openat(t->fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	file = fd < 0 ? NULL : fdopen(fd, "r");
	if (!file)
		return;
	while (fscanf(file, "%d", &pid) == 1)
		if (pid > 1)
			kill(pid, sig);
	fclose(file);
}

uint64_t tree_oom_kills(const struct tree *t)
{
	char text[512], *at;

	if (t->fd < 0 || control_read(t->fd, "memory.events", text, sizeof(text)) < 0)
		return 0;
	at = strstr(text, "oom_kill ");
	return at ? strtoull(at + 9, NULL, 10) : 0;
}

bool tree_remove(struct tree *t)
{
	if (t->fd < 0) {
		if (walk_any(t->mark))
			return false;
		t->mark[0] = '\0';
		return true;
	}
	if (unlinkat(tree_base, t->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return false;
	close_fd(&t->fd);
	return true;
}

/* Remove the cgroups a program made within its own: they keep it from being removed. */
static void children_remove(int dir, unsigned depth)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL) {
		int sub;

		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0 && depth < 8)
			children_remove(sub, depth + 1);
		close_fd(&sub);
		unlinkat(dir, e->d_name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
	else
		close_fd(&fd);
}

struct grave {
	struct tree tree;
	int events;
	struct watch *watch;
};

static void grave_ready(void *user, uint32_t events)
{
	struct grave *g = user;
	char text[256];

	(void)events;
	(void)!pread(g->events, text, sizeof(text), 0); /* so that the next change is an event */
	children_remove(g->tree.fd, 0);
	if (!tree_remove(&g->tree))
		return;
	watch_remove(g->watch);
	close_fd(&g->events);
	free(g);
}

/* Remove it as soon as nothing lives in it. */
static void tree_await_end(struct tree *t)
{
	struct grave *g = agent_alloc(sizeof(*g));

	g->tree = *t;
	*t = (struct tree){.fd = -1};
	g->events = openat(g->tree.fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	g->watch = g->events < 0 ? NULL : watch_add(g->events, EPOLLPRI, grave_ready, g);
	if (g->watch) {
		grave_ready(g, 0); /* it may have emptied before it was watched */
		return;
	}
	agent_log("cgroup %s stays behind: %s", g->tree.name, strerror(errno));
	close_fd(&g->events);
	close_fd(&g->tree.fd);
	free(g);
}

void tree_bury(struct tree *t)
{
	if (t->fd < 0) {
		walk_signal(t->main, t->mark, SIGKILL);
		t->main = 0;
		t->mark[0] = '\0';
		return;
	}
	if (tree_remove(t))
		return;
	tree_kill(t);
	tree_await_end(t);
}

void tree_leave(struct tree *t)
{
	if (t->fd >= 0 && !tree_remove(t))
		tree_await_end(t);
	*t = (struct tree){.fd = -1};
}

void tree_kill_all(void)
{
	if (tree_base >= 0)
		control_write(tree_base, "cgroup.kill", "1");
}
