/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting programs as vfork(2) does: the child borrows the agent's memory until its
 * exec, so nothing is copied (in a restored machine every page touched costs a fault), and
 * tells what went wrong by simply writing it. clone3(2) puts it into its cgroup from birth:
 * there is no moment in which it could fork out of it, and no migration to wait for.
 *
 * The child may only make system calls on its own stack: no allocation, nothing of the
 * agent's state.
 */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define SPAWN_STACK (64u << 10)
#define SPAWN_ENV_OWN 8
#define SPAWN_STRING_MAX ((size_t)(128u << 10)) /* with its NUL: the kernel's MAX_ARG_STRLEN */

struct spawn_child {
	const struct spawn *spec;
	const char *path; /* PATH of its environment */
	const char *step; /* what failed */
	int err;
};

static const char *env_get(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return *env + len + 1;
	return NULL;
}

static void child_exec(struct spawn_child *c)
{
	const char *name = c->spec->argv[0], *dir = c->path;
	int err = ENOENT;

	c->step = "run";
	if (strchr(name, '/')) {
		execve(name, c->spec->argv, c->spec->envp);
		c->err = errno;
		return;
	}
	while (*name && dir) {
		char full[PATH_MAX];
		const char *end = strchrnul(dir, ':');
		int len = (int)(end - dir);

		if (len > 0 &&
			snprintf(full, sizeof(full), "%.*s/%s", len, dir, name) <
				(int)sizeof(full)) {
			execve(full, c->spec->argv, c->spec->envp);
			if (errno != ENOENT && errno != ENOTDIR)
				err = errno;
		}
		dir = *end ? end + 1 : NULL;
	}
	c->err = err;
}

static int child_fds(const struct spawn *s)
{
	int fds[SPAWN_FDS_MAX];

	for (unsigned i = 0; i < s->nfds; i++) {
		fds[i] = fcntl(s->fds[i], F_DUPFD, SPAWN_FDS_MAX);
		if (fds[i] < 0)
			return -1;
	}
	for (unsigned i = 0; i < s->nfds; i++)
		if (dup2(fds[i], (int)i) < 0)
			return -1;
	if (s->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
		return -1;
	return (int)syscall(SYS_close_range, s->nfds, ~0u, 0);
}

static void child_limits(void)
{
	struct rlimit files = {1024, 524288}, core = {0, RLIM_INFINITY};
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "0", 1);
		close(fd);
	}
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &core);
	umask(022);
}

/* setgroups and the like by system call: the C library's own would look for threads to tell. */
static int child_user(const struct user *u)
{
	if (geteuid() != 0)
		return 0; /* an agent in a test, not root: everything runs as it */
	if (syscall(SYS_setgroups, (size_t)u->ngroups, u->groups) < 0 ||
		syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 ||
		syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		return -1;
	return 0;
}

/* The kernel's struct sigaction, all zero: SIG_DFL. */
static const struct {
	void *handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
} default_action;

static void child_run(void *arg)
{
	struct spawn_child *c = arg;
	const struct spawn *s = c->spec;
	sigset_t none;

	/* not signal(3): the C library keeps two of them to itself, which may be ignored all the same */
	for (int sig = 1; sig < NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, &default_action, NULL, sizeof(uint64_t));
	setsid();
	c->step = "set up the descriptors of";
	if (child_fds(s) < 0)
		goto failed;
	child_limits();
	c->step = "become the user of";
	if (child_user(s->user) < 0)
		goto failed;
	c->step = "chdir";
	if (chdir(s->cwd ? s->cwd : "/") < 0 && (!s->cwd_optional || chdir("/") < 0))
		goto failed;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	child_exec(c);
	return;
failed:
	c->err = errno;
}

/*
 * clone3 with a stack for the child, which calls @fn(@arg) there and ends. Only the
 * child's registers differ, so a plain call of syscall() would return twice on one stack.
 */
static pid_t clone_call(struct clone_args *args, void (*fn)(void *arg), void *arg)
{
#if defined(__x86_64__)
	long ret;
	register void (*call)(void *) __asm__("r12") = fn;
	register void *with __asm__("r13") = arg;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "mov $127, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "1:"
			 : "=a"(ret)
			 : "0"((long)SYS_clone3), "D"(args), "S"(sizeof(*args)), "r"(call),
			 "r"(with), [exit] "i"(SYS_exit_group)
			 : "rcx", "r11", "memory", "cc");
	if (ret < 0) {
		errno = (int)-ret;
		return -1;
	}
	return (pid_t)ret;
#else
#error "clone_call() is written for x86-64 alone"
#endif
}

static int clone_child(struct spawn_child *c, struct tree *t)
{
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD, .stack_size = SPAWN_STACK};
	sigset_t all, before;
	pid_t pid;
	void *stack;

	stack = mmap(NULL, SPAWN_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return -errno;
	args.stack = (uintptr_t)stack;
	if (t->fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)t->fd;
	}
	/* no signal may run anything on the child's borrowed memory */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = clone_call(&args, child_run, c);
	if (pid < 0)
		pid = -errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	munmap(stack, SPAWN_STACK);
	return pid;
}

/* E2BIG: which string is too long for the kernel, or how many bytes there are of all. */
static int spawn_too_big(const struct spawn *s, struct fail *f)
{
	static const char instead[] = "put it into a file, or send it to standard input";
	size_t all = 0, most = 0;
	struct rlimit stack;

	for (unsigned i = 0; s->argv[i]; i++) {
		size_t len = strlen(s->argv[i]) + 1;

		if (len > SPAWN_STRING_MAX)
			return fail_set(f, E2BIG,
				"cannot run '%.200s': argument %u has %zu bytes, where the kernel "
				"takes "
				"%zu: %s",
				s->argv[0], i, len - 1, SPAWN_STRING_MAX - 1, instead);
		all += len + sizeof(char *);
	}
	for (unsigned i = 0; s->envp[i]; i++) {
		size_t len = strlen(s->envp[i]) + 1;

		if (len > SPAWN_STRING_MAX)
			return fail_set(f, E2BIG,
				"cannot run '%.200s': the variable %.*s has, with its name, %zu "
				"bytes, "
				"where the kernel takes %zu: %s",
				s->argv[0], (int)strcspn(s->envp[i], "="), s->envp[i], len - 1,
				SPAWN_STRING_MAX - 1, instead);
		all += len + sizeof(char *);
	}
	if (getrlimit(RLIMIT_STACK, &stack) == 0) /* a quarter of it: execve(2) */
		most = stack.rlim_cur / 4;
	return fail_set(f, E2BIG,
		"cannot run '%.200s': its arguments and variables have %zu bytes together, where "
		"the kernel "
		"takes %zu: put some into a file, or send them to standard input",
		s->argv[0], all, most);
}

int spawn(const struct spawn *s, struct tree *t, struct fail *f)
{
	struct spawn_child c = {.spec = s, .path = env_get(s->envp, "PATH")};
	int pid = clone_child(&c, t);

	if (pid < 0)
		return fail_set(f, -pid, "cannot start a process: %s", strerror(-pid));
	if (!c.err) {
		t->main = pid;
		return 0;
	}
	/* It is reaped as any orphan. */
	/* ENOENT and EACCES are the program's alone: a host makes exit statuses of them */
	if (!strcmp(c.step, "chdir"))
		return fail_set(f, c.err == EACCES ? EPERM : ENOTDIR,
			"cannot enter the directory '%s': %s", s->cwd ? s->cwd : "/",
			strerror(c.err));
	if (c.err == E2BIG)
		return spawn_too_big(s, f);
	if (c.err == ENOENT && !strchr(s->argv[0], '/'))
		return fail_set(f, c.err, "cannot run '%.200s': not found in PATH", s->argv[0]);
	return fail_set(f, c.err, "cannot %s '%.200s': %s", c.step, s->argv[0], strerror(c.err));
}

/* ---- environment ---------------------------------------------------------------------- */

static char *env_join(const char *name, const char *value)
{
	size_t len = strlen(name) + strlen(value) + 1;
	char *s = agent_alloc(len);

	snprintf(s, len, "%s%s", name, value);
	return s;
}

static void env_put(char **env, unsigned *count, const char *entry)
{
	size_t len = strcspn(entry, "=");

	for (unsigned i = 0; i < *count; i++) {
		if (!strncmp(env[i], entry, len + 1)) {
			free(env[i]);
			env[i] = env_join(entry, "");
			return;
		}
	}
	env[(*count)++] = env_join(entry, "");
}

char **env_make(
	const struct user *u, char *const *extra, unsigned n, const char *mark, bool terminal)
{
	static const char path[] =
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char **env = agent_alloc((SPAWN_ENV_OWN + n + 1) * sizeof(*env));
	unsigned count = 0;

	env[count++] = env_join(path, "");
	env[count++] = env_join("HOME=", u->home);
	env[count++] = env_join("USER=", u->name);
	env[count++] = env_join("LOGNAME=", u->name);
	env[count++] = env_join("LANG=", "C.UTF-8");
	if (terminal)
		env[count++] = env_join("TERM=", "xterm");
	for (unsigned i = 0; i < n; i++)
		if (strchr(extra[i], '=') && extra[i][0] != '=')
			env_put(env, &count, extra[i]);
	if (mark && *mark)
		env_put(env, &count, mark);
	return env;
}

void env_free(char **env)
{
	for (char **e = env; e && *e; e++)
		free(*e);
	free(env);
}
