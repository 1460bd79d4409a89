/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that has left its session and lost its parents still has the environment
 * it was started with, so the mark finds it. One that also replaced its environment is
 * found only while its parents live: a cgroup has no such gap, and machines use that.
 */
#include "agent/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/tree.h"

#define WALK_MAX 32768
#define WALK_ROUNDS 16

struct walk_entry {
	pid_t pid, parent;
	bool zombie, in;
};

void walk_mark(char *buf, size_t max, unsigned id)
{
	uint32_t boot;

	memcpy(&boot, agent.boot, sizeof(boot));
	snprintf(buf, max, TREE_MARK "%08x.%d.%u", boot, (int)getpid(), id);
}

static bool marked(pid_t pid, const char *mark)
{
	static char env[64 << 10];
	size_t len = strlen(mark) + 1;
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, env, sizeof(env));
	close(fd);
	return n > 0 && memmem(env, (size_t)n, mark, len);
}

static bool entry_read(const char *name, struct walk_entry *e)
{
	char path[64], text[512], *at;
	ssize_t n;
	int fd;

	*e = (struct walk_entry){.pid = atoi(name)};
	if (e->pid <= 1)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", e->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	at = strrchr(text, ')'); /* the name before it may hold anything */
	if (!at || strlen(at) < 5)
		return false;
	e->zombie = at[2] == 'Z';
	e->parent = atoi(at + 4);
	return true;
}

static unsigned walk_list(struct walk_entry *list, unsigned max)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	unsigned n = 0;

	while (d && n < max && (e = readdir(d)) != NULL)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && entry_read(e->d_name, &list[n]))
			n++;
	if (d)
		closedir(d);
	return n;
}

/* Mark the members; how many live. */
static unsigned walk_members(struct walk_entry *list, unsigned n, pid_t main, const char *mark)
{
	unsigned live = 0;
	bool more = true;

	for (unsigned i = 0; i < n; i++)
		list[i].in = (main && list[i].pid == main) ||
			(!list[i].zombie && marked(list[i].pid, mark));
	while (more) {
		more = false;
		for (unsigned i = 0; i < n; i++)
			for (unsigned j = 0; j < n && !list[i].in; j++)
				if (list[j].in && list[j].pid == list[i].parent)
					list[i].in = more = true;
	}
	for (unsigned i = 0; i < n; i++)
		live += list[i].in && !list[i].zombie;
	return live;
}

void walk_signal(pid_t main, const char *mark, int sig)
{
	struct walk_entry *list;

	if (!*mark) /* it would match everything */
		return;
	list = agent_alloc(WALK_MAX * sizeof(*list));
	for (unsigned round = 0; round < WALK_ROUNDS; round++) {
		unsigned n = walk_list(list, WALK_MAX);

		if (!walk_members(list, n, main, mark))
			break;
		for (unsigned i = 0; i < n; i++)
			if (list[i].in && !list[i].zombie && list[i].pid != getpid())
				kill(list[i].pid, sig);
		if (sig != SIGKILL)
			break;
	}
	free(list);
}

bool walk_any(const char *mark)
{
	struct walk_entry *list;
	bool any;

	if (!*mark)
		return false;
	list = agent_alloc(WALK_MAX * sizeof(*list));
	any = walk_members(list, walk_list(list, WALK_MAX), 0, mark) > 0;
	free(list);
	return any;
}
