/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup (version 2) for each machine. The monitor is moved into its cgroup once it runs. The
 * cgroup bounds what a guest that has broken out of its monitor, or a monitor that is out of
 * control, can take: memory, processes, a share of the processors.
 *
 * This needs a cgroup that the daemon may divide: one that the configuration names, or the daemon's
 * own where it has been delegated (systemd's Delegate=yes; no other process is in it then). The
 * kernel lets no cgroup have both processes and controllers for its children, so in its own cgroup
 * the daemon moves into a child, "daemon". Where the daemon has no right to any of this, machines
 * run without cgroups, and that is logged once.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/cgroup.h"
#include "pool/cgroup_private.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP_PREFIX "parbake-"
#define OVERHEAD (256 * MIB) /* of a monitor, beside its guest's memory */

struct pool_cgroups {
	char *base; /* NULL: they cannot be had */
	LIST_HEAD(, pool_cgroup) gone; /* to be removed as soon as they are empty */
};

struct pool_cgroup {
	struct pool_cgroups *all;
	LIST_ENTRY(pool_cgroup) gone;
	char *path;
};

static int put(const char *dir, const char *file, const char *text)
{
	cleanup_free char *path = str_printf("%s/%s", dir, file);
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

/* A file of a cgroup, "" where it cannot be read. Caller frees. */
static char *get(const char *dir, const char *file)
{
	cleanup_free char *path = str_printf("%s/%s", dir, file);
	char *text = NULL;
	size_t len;

	if (file_read_all(AT_FDCWD, path, MIB, &text, &len, NULL) < 0)
		return str_dup("");
	return text;
}

/* Our own cgroup, from the line "0::/path" of /proc/self/cgroup. Caller frees. */
static char *own_cgroup(void)
{
	cleanup_free char *text = get("/proc/self", "cgroup");
	const char *line = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
	size_t len;

	if (!line)
		return NULL;
	line = strchr(line, '/');
	len = line ? strcspn(line, "\n") : 0;
	return str_printf("%s%.*s", CGROUP_ROOT, (int)(len == 1 ? 0 : len), line ? line : "");
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = text; (at = strstr(at, word)); at += len) {
		if ((at == text || at[-1] == ' ' || at[-1] == '\n') &&
			(!at[len] || at[len] == ' ' || at[len] == '\n'))
			return true;
	}
	return false;
}

/* Which cgroup would be divided, and may it be? NULL with the reason in @why. Caller frees. */
static char *base_find(const char *below, char why[static 200])
{
	cleanup_free char *base = NULL, *controllers = NULL, *procs = NULL;
	char me[16];
	struct statfs fs;

	if (statfs(CGROUP_ROOT, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC) {
		snprintf(why, 200, "this host has no cgroup version 2 at " CGROUP_ROOT);
		return NULL;
	}
	if (below && *below == '/')
		base = str_dup(below);
	else
		base = below ? str_printf("%s/%s", CGROUP_ROOT, below) : own_cgroup();
	if (!base || access(base, W_OK) < 0) {
		snprintf(why, 200, "no right to write in %s", base ? base : "a cgroup of our own");
		return NULL;
	}
	controllers = get(base, "cgroup.controllers");
	if (!has_word(controllers, "memory") || !has_word(controllers, "pids")) {
		snprintf(why, 200, "%.120s has not the controllers memory and pids", base);
		return NULL;
	}
	procs = get(base, "cgroup.procs");
	snprintf(me, sizeof(me), "%d\n", (int)getpid());
	if (below ? procs[0] != '\0' : strcmp(procs, me) != 0) {
		snprintf(why, 200,
			"%.120s has other processes in it: it was not delegated (Delegate=yes)",
			base);
		return NULL;
	}
	return steal_ptr(&base);
}

int pool_cgroups_probe(const char *below, char ret[static 256])
{
	char why[200];
	cleanup_free char *base = base_find(below, why);

	if (base)
		snprintf(ret, 256, "each machine of a pool gets one, below %.180s", base);
	else
		snprintf(ret, 256, "a pool's machines get none: %s", why);
	return base ? 0 : 1;
}

/* Children left by a daemon that was killed: the empty ones go, the others are adopted. */
static void leftovers_remove(const char *base)
{
	cleanup_dir DIR *dir = opendir(base);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		if (!strncmp(e->d_name, CGROUP_PREFIX, strlen(CGROUP_PREFIX)))
			unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
	}
}

struct pool_cgroups *pool_cgroups_open(const char *below)
{
	struct pool_cgroups *c = calloc(1, sizeof(*c));
	cleanup_free char *base = NULL, *leaf = NULL;
	char why[200];
	int r = 0;

	if (!c)
		abort();
	base = base_find(below, why);
	if (base && !below) {
		leaf = str_printf("%s/daemon", base);
		if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
			r = -errno;
		if (r == 0)
			r = put(leaf, "cgroup.procs", "0");
	}
	if (base && r == 0)
		r = put(base, "cgroup.subtree_control", "+memory +pids");
	if (base && r < 0)
		snprintf(why, sizeof(why), "%.120s cannot be divided: %s", base, strerror(-r));
	if (!base || r < 0) {
		log_info("machines get no cgroups of their own: %s", why);
		return c;
	}
	put(base, "cgroup.subtree_control", "+cpu"); /* a share is good to have, no more */
	leftovers_remove(base);
	c->base = steal_ptr(&base);
	return c;
}

static void cgroup_forget(struct pool_cgroup *g)
{
	LIST_REMOVE(g, gone);
	free(g->path);
	free(g);
}

void pool_cgroups_sweep(struct pool_cgroups *c)
{
	struct pool_cgroup *g, *next;

	for (g = LIST_FIRST(&c->gone); g; g = next) {
		next = LIST_NEXT(g, gone);
		if (rmdir(g->path) == 0 || errno == ENOENT)
			cgroup_forget(g);
	}
}

void pool_cgroups_free(struct pool_cgroups *c)
{
	if (!c)
		return;
	pool_cgroups_sweep(c);
	while (!LIST_EMPTY(&c->gone))
		cgroup_forget(LIST_FIRST(&c->gone));
	free(c->base);
	free(c);
}

struct pool_cgroup *pool_cgroup_new(struct pool_cgroups *c, const char *id, int pid,
	uint64_t memory_bytes, uint64_t pids, unsigned vcpus)
{
	struct pool_cgroup *g;
	char text[32];
	int r;

	if (!c->base || pid <= 0)
		return NULL;
	pool_cgroups_sweep(c);
	g = calloc(1, sizeof(*g));
	if (!g)
		abort();
	g->all = c;
	g->path = str_printf("%s/" CGROUP_PREFIX "%s", c->base, id);
	r = mkdir(g->path, 0755) < 0 && errno != EEXIST ? -errno : 0;
	snprintf(text, sizeof(text), "%lu", memory_bytes + OVERHEAD);
	if (r == 0)
		r = put(g->path, "memory.max", text);
	snprintf(text, sizeof(text), "%lu", pids);
	if (r == 0)
		r = put(g->path, "pids.max", text);
	snprintf(text, sizeof(text), "%u", 100 * (vcpus ? vcpus : 1));
	if (r == 0)
		put(g->path, "cpu.weight", text);
	snprintf(text, sizeof(text), "%d", pid);
	if (r == 0)
		r = put(g->path, "cgroup.procs", text);
	if (r < 0 && r != -ESRCH)
		log_warn("sandbox %s: its cgroup: %s", id, strerror(-r));
	return g;
}

void pool_cgroup_free(struct pool_cgroup *g)
{
	if (!g)
		return;
	/* it is empty a moment after its machine is gone */
	LIST_INSERT_HEAD(&g->all->gone, g, gone);
	pool_cgroups_sweep(g->all);
}
