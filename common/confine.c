/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a confined process gives up, and how. Each restriction stands by itself: where a kernel
 * lacks one, the others hold.
 *
 *   user          its own, no groups, no capability, none to be had (no_new_privs)
 *   namespaces    a network without even a loopback that is up, shared by all that this process
 *                 confines, since none of them can make a socket; System V IPC of its own
 *   files         Landlock: nothing opens by name but what was listed, read-only
 *   calls         seccomp, confine_filter.c
 *
 * There is no PID namespace. The first process of one is not killed by its own abort() or kill(),
 * and does not see its parent, so the parent's death could be missed; the filter and the user do
 * what a PID namespace would do. There is no mount namespace: Landlock does the same in three
 * system calls instead of a tree of mounts.
 *
 * User and group are set by bare system calls: glibc's wrappers change all threads, and in a child
 * made by vfork(2) those threads are the parent's.
 */
#include "common/confine.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/cleanup.h"
#include "common/confine_private.h"
#include "common/file.h"

#define KILLED_FIRST "500" /* of 1000 */

static struct {
	pthread_mutex_t lock;
	bool done;
	struct confine_host host;
	int net_ns; /* -1: none */
} found = {.lock = PTHREAD_MUTEX_INITIALIZER, .net_ns = -1};

void confine_limit(struct confine *c, int resource, rlim_t most)
{
	assert(c->n_limits < CONFINE_LIMITS_MAX);
	c->limits[c->n_limits].resource = resource;
	c->limits[c->n_limits++].most = most;
}

/* ---- what the host allows ------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void why_not(
	struct confine_host *h, const char *fmt, ...)
{
	va_list args;

	if (h->why[0])
		return;
	va_start(args, fmt);
	vsnprintf(h->why, sizeof(h->why), fmt, args);
	va_end(args);
}

static bool has_caps(uint64_t wanted)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};

	if (syscall(SYS_capget, &head, data) < 0)
		return false;
	return (((uint64_t)data[1].effective << 32 | data[0].effective) & wanted) == wanted;
}

/* Does the whole range of users exist here (in a user namespace it may not)? */
static bool mapped(const char *map_path, uint64_t first, uint64_t n)
{
	cleanup_free char *text = NULL;
	unsigned long long inside, outside, count;

	if (file_read_all(AT_FDCWD, map_path, 65536, &text, NULL, NULL) < 0)
		return false;
	for (char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (sscanf(line, "%llu %llu %llu", &inside, &outside, &count) == 3 &&
			inside <= first && first + n <= inside + count)
			return true;
	}
	return false;
}

static void look_for_users(struct confine_host *h)
{
	const char *asked = getenv("PARBAKE_USERS");
	uint64_t first = CONFINE_USERS;
	char *end;

	h->root = geteuid() == 0;
	if (!h->root) {
		why_not(h, "this is not root");
		return;
	}
	if (asked && *asked) {
		first = strtoull(asked, &end, 0);
		if (*end || first == 0 || first + CONFINE_USERS_N > UINT32_MAX) {
			why_not(h, "PARBAKE_USERS=%.40s: not the first of %u users", asked,
				CONFINE_USERS_N);
			return;
		}
	}
	h->first = (uid_t)first;
	if (!has_caps(1ull << CAP_SETUID | 1ull << CAP_SETGID))
		why_not(h, "this root has not the capabilities to change its user");
	else if (!mapped("/proc/self/uid_map", first, CONFINE_USERS_N) ||
		!mapped("/proc/self/gid_map", first, CONFINE_USERS_N))
		why_not(h, "users from %u on do not exist in this container; see PARBAKE_USERS",
			h->first);
	else
		h->users = true;
}

/* A thread of its own, which takes its new namespaces along when it ends, but for what it opened. */
static void *make_namespaces(void *arg)
{
	int *ret = arg;

	if (unshare(CLONE_NEWIPC | CLONE_NEWNET) == 0)
		*ret = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (*ret < 0)
		*ret = -errno;
	return NULL;
}

static void look_for_namespaces(struct confine_host *h)
{
	pthread_t thread;
	int fd = -1;

	if (!h->users)
		return;
	if (pthread_create(&thread, NULL, make_namespaces, &fd) != 0)
		return;
	pthread_join(thread, NULL);
	if (fd < 0)
		why_not(h, "no network namespace can be made: %s", strerrordesc_np(-fd));
	h->namespaces = fd >= 0;
	found.net_ns = fd;
}

const struct confine_host *confine_host(void)
{
	const char *asked = getenv("PARBAKE_CONFINE");

	pthread_mutex_lock(&found.lock);
	if (!found.done) {
		struct confine_host *h = &found.host;
		int version;

		h->off = asked && !strcmp(asked, "off");
		if (h->off) {
			why_not(h, "PARBAKE_CONFINE=off");
		} else {
			look_for_users(h);
			version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0,
				LANDLOCK_CREATE_RULESET_VERSION);
			h->files = version > 0 ? version : 0;
			if (!h->files)
				why_not(h, "this kernel has no Landlock (5.13, lsm=landlock)");
			look_for_namespaces(h);
		}
		found.done = true;
	}
	pthread_mutex_unlock(&found.lock);
	return &found.host;
}

/* ---- files --------------------------------------------------------------------------------- */

/* As of version 7; older kernels take the beginning of it. (linux/landlock.h of 6.1 has less.) */
struct ruleset {
	uint64_t fs, net, scoped;
};

#define ALL_FS(version)                                                                            \
	((1ull << (13 + ((version) >= 2) + ((version) >= 3) + ((version) >= 5))) - 1)
#define ALL_NET 3ull /* bind and connect TCP: version 4 */
#define ALL_SCOPED 3ull /* abstract unix sockets and signals of others: version 6 */

#define READ_FILE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE)
#define READ_DIR LANDLOCK_ACCESS_FS_READ_DIR
#define WRITE_FILE LANDLOCK_ACCESS_FS_WRITE_FILE

static int add_path(int ruleset, const struct confine_path *p, struct err *err)
{
	cleanup_fd int fd = open(p->path, O_PATH | O_CLOEXEC);
	struct landlock_path_beneath_attr rule = {.parent_fd = fd};
	struct stat st;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, errno, "confine to %s", p->path);
	rule.allowed_access =
		READ_FILE | (S_ISDIR(st.st_mode) ? READ_DIR : 0) | (p->write ? WRITE_FILE : 0);
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return err_sys(err, errno, "confine to %s", p->path);
	return 0;
}

int confine_files_new(const struct confine_path *paths, size_t n, struct err *err)
{
	const struct confine_host *h = confine_host();
	struct ruleset attr = {.fs = ALL_FS(h->files)};
	size_t size = h->files >= 6 ? sizeof(attr) : h->files >= 4 ? 16 : 8;
	cleanup_fd int fd = -1;

	if (!h->files)
		return -1;
	if (h->files >= 4)
		attr.net = ALL_NET;
	if (h->files >= 6)
		attr.scoped = ALL_SCOPED;
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (fd < 0)
		return err_sys(err, errno, "make a Landlock ruleset");
	for (size_t i = 0; i < n; i++) {
		int r = add_path(fd, &paths[i], err);

		if (r < 0)
			return r;
	}
	return steal_fd(&fd);
}

/* ---- doing it ------------------------------------------------------------------------------ */

/* It may be higher already, or out of reach: no error. */
static void raise_score(void)
{
	char now[16] = "";
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	if (read(fd, now, sizeof(now) - 1) > 0 && atoi(now) < atoi(KILLED_FIRST) &&
		pwrite(fd, KILLED_FIRST, strlen(KILLED_FIRST), 0) < 0)
		now[0] = '\0';
	close(fd);
}

static int set_limits(const struct confine *c, bool own_user)
{
	for (size_t i = 0; i < c->n_limits; i++) {
		struct rlimit l;

		if (c->limits[i].resource == RLIMIT_NPROC && !own_user)
			continue; /* all of the user's processes count */
		if (getrlimit((unsigned)c->limits[i].resource, &l) < 0)
			return -1;
		if (l.rlim_max > c->limits[i].most)
			l.rlim_max = c->limits[i].most;
		l.rlim_cur = l.rlim_max;
		if (setrlimit((unsigned)c->limits[i].resource, &l) < 0)
			return -1;
		/* a write past the limit is an error, not the end */
		if (c->limits[i].resource == RLIMIT_FSIZE)
			signal(SIGXFSZ, SIG_IGN);
	}
	return 0;
}

int confine_become(const struct confine_ready *r)
{
	const struct confine *c = r->c;
	long id;

	if (r->host->off)
		return 0;
	if (c->killed_first)
		raise_score();
	if (set_limits(c, r->host->users) < 0)
		return -1;
	if (r->host->namespaces &&
		(setns(r->net_fd, CLONE_NEWNET) < 0 || unshare(CLONE_NEWIPC) < 0))
		return -1;
	if (!r->host->users)
		return 0;
	/* what the kernel does not know ends the list; without CAP_SETPCAP the bounding set stays,
	 * and gives nothing to a process with no_new_privs */
	for (int cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
	}
	id = (long)r->host->first + syscall(SYS_getpid);
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, id, id, id) < 0 ||
		syscall(SYS_setresuid, id, id, id) < 0)
		return -1;
	return 0;
}

int confine_lock(struct confine_ready *r)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	struct {
		unsigned short len;
		void *filter;
	} prog = {(unsigned short)r->n, r->filter}; /* struct sock_fprog */
	unsigned self = (unsigned)syscall(SYS_getpid);

	if (r->host->off)
		return 0;
	for (size_t i = 0; i < r->n_self; i++)
		r->filter[r->self[i]].k = self;
	if (syscall(SYS_capset, &head, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	if (r->files_fd >= 0 && syscall(SYS_landlock_restrict_self, r->files_fd, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
}

void confine_prepare(const struct confine *c, struct confine_ready *ret)
{
	ret->c = c;
	ret->host = confine_host();
	ret->net_fd = ret->host->namespaces ? found.net_ns : -1;
	ret->files_fd = ret->host->off ? -1 : c->files_fd;
	ret->n = ret->n_self = 0;
	confine_filter_make(ret);
}

int confine_self(const struct confine *c, struct err *err)
{
	struct confine_ready r;

	confine_prepare(c, &r);
	if (confine_become(&r) < 0)
		return err_sys(err, errno, "give up privileges");
	if (c->parent) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
			return err_sys(err, errno, "die with the parent");
		if (getppid() != c->parent)
			_exit(127); /* it died before the line above */
	}
	/* whoever has the same user (not root) is kept out as well */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (confine_lock(&r) < 0)
		return err_sys(err, errno, "give up privileges");
	/* nobody else will be confined from here */
	close_fd(&found.net_ns);
	found.host.namespaces = false;
	return 0;
}
