/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children are made with vfork semantics (CLONE_VM|CLONE_VFORK by vfork(2)): the parent's page
 * tables are not copied, so a daemon with much memory starts a monitor as fast as a small program.
 * What the child does before exec is therefore limited to system calls on data prepared beforehand.
 *
 * A confined child gives things up in an order. First it arranges its descriptors, while it may
 * still do anything. Then it changes its user. Then it asks to die with its parent, because a
 * change of user clears that request. Last it gives up the system calls.
 *
 * Descriptors: the wanted ones are first lifted above every target number, then put in place, then
 * all others are closed; so no mapping can tread on another.
 */
#include "common/proc.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

extern char **environ;

void proc_map_fd(struct proc_spec *spec, int from, int to)
{
	assert(spec->n_fds < PROC_FDS_MAX);
	spec->fds[spec->n_fds].from = from;
	spec->fds[spec->n_fds].to = to;
	spec->n_fds++;
}

const char *proc_program(void)
{
	const char *exe = getenv("PARBAKE_EXE"), *base;
	char link[4096];
	ssize_t n;

	if (exe && *exe)
		return exe;
	n = readlink("/proc/self/exe", link, sizeof(link) - 1);
	if (n > 0) {
		link[n] = '\0';
		base = strrchr(link, '/');
		/* an upgrade replaced the file under us: this one is still the right one */
		if (base &&
			(strcmp(base, "/parbake") == 0 || strcmp(base, "/parbake (deleted)") == 0))
			return "/proc/self/exe";
	}
	return "parbake";
}

/* All that the child needs, prepared: it may call nothing but system calls. */
struct launch {
	const struct proc_spec *spec;
	char *const *argv;
	char *const *env;
	const char *program;
	int null_fd;
	int program_fd; /* -1: by name alone */
	struct confine_ready *confined; /* NULL: not */
	int highest; /* target number */
	pid_t parent;
	const char *volatile doing; /* where it fails: what */
	volatile int child_errno;
	int lifted[PROC_FDS_MAX];
};

/* Numbers of the mapped targets that are 0, 1 or 2, as bits. */
static unsigned std_mapped(const struct proc_spec *spec)
{
	unsigned mapped = 0;

	for (size_t i = 0; i < spec->n_fds; i++) {
		if (spec->fds[i].to <= 2)
			mapped |= 1u << spec->fds[i].to;
	}
	return mapped;
}

/* -1 alone is left as it is. */
static int lift(const struct launch *l, int *fd)
{
	if (*fd < 0)
		return 0;
	*fd = fcntl(*fd, F_DUPFD_CLOEXEC, l->highest + 1);
	return *fd < 0 ? -1 : 0;
}

static int child_set_fds(struct launch *l)
{
	const struct proc_spec *spec = l->spec;
	unsigned mapped = std_mapped(spec);
	int null_fd = fcntl(l->null_fd, F_DUPFD_CLOEXEC, l->highest + 1);

	if (null_fd < 0)
		return -1;
	for (size_t i = 0; i < spec->n_fds; i++) {
		l->lifted[i] = fcntl(spec->fds[i].from, F_DUPFD_CLOEXEC, l->highest + 1);
		if (l->lifted[i] < 0)
			return -1;
	}
	if (lift(l, &l->program_fd) < 0 ||
		(l->confined &&
			(lift(l, &l->confined->net_fd) < 0 || lift(l, &l->confined->files_fd) < 0)))
		return -1;
	for (int std = 0; std <= 2; std++) {
		if (mapped & (1u << std) || (std == 2 && spec->keep_stderr))
			continue;
		if (dup2(null_fd, std) < 0)
			return -1;
	}
	for (size_t i = 0; i < spec->n_fds; i++) {
		if (dup2(l->lifted[i], spec->fds[i].to) < 0) /* dup2 clears close-on-exec */
			return -1;
	}
	/* what is left is marked, not closed: the parent's own marks are kept anyway */
	for (int fd = 3; fd <= l->highest; fd++) {
		bool wanted = false;

		for (size_t i = 0; i < spec->n_fds; i++)
			wanted |= spec->fds[i].to == fd;
		if (!wanted)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	return (int)syscall(SYS_close_range, l->highest + 1, ~0u, CLOSE_RANGE_CLOEXEC);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction old;

		/* handlers go at exec by themselves; what was ignored would stay ignored */
		if (sigaction(sig, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			signal(sig, SIG_DFL);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* An error here leaves errno for the parent. */
static void child_run(struct launch *l)
{
	const struct proc_spec *spec = l->spec;

	if (spec->new_session && setsid() < 0)
		return;
	if (spec->cwd && chdir(spec->cwd) < 0)
		return;
	if (child_set_fds(l) < 0)
		return;
	reset_signals();
	l->doing = "give up privileges for";
	if (l->confined && confine_become(l->confined) < 0)
		return;
	if (spec->die_with_parent) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			return;
		if (getppid() != l->parent)
			_exit(127); /* it died before the line above */
	}
	if (l->confined && confine_lock(l->confined) < 0)
		return;
	l->doing = "start";
	execve(l->program, l->argv, l->env);
	if (errno == EACCES && l->program_fd >= 0)
		syscall(SYS_execveat, l->program_fd, "", l->argv, l->env, AT_EMPTY_PATH);
}

/* The first executable of that name in PATH. Caller frees. */
static int look_up(const char *name, char **ret, struct err *err)
{
	const char *path =
		getenv("PATH") ?: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

	if (strchr(name, '/')) {
		*ret = str_dup(name);
		return 0;
	}
	while (*path) {
		size_t len = strcspn(path, ":");

		if (len) {
			char *try = str_printf("%.*s/%s", (int)len, path, name);

			if (access(try, X_OK) == 0) {
				*ret = try;
				return 0;
			}
			free(try);
		}
		path += len + (path[len] == ':');
	}
	return err_set(err, ENOENT, "%s: not found in PATH", name);
}

/* The child runs on our stack and in our memory until it has become its program or failed, which
 * l->child_errno tells. Returns its number or -errno. */
static pid_t launch(struct launch *l)
{
	sigset_t all, before;
	pid_t pid;
	int code;

	/* no handler of ours may run in the child */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pid = vfork();
	if (pid == 0) {
		errno = 0;
		child_run(l);
		l->child_errno = errno ? errno : EIO;
		_exit(127);
	}
	code = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid < 0 ? -code : pid;
}

/* launch(), where the child gives something up: its change of user forbids tracing the memory that
 * is ours as well, and nothing but we ourselves would allow it again. */
static pid_t launch_confined(struct launch *l, const struct confine *c)
{
	cleanup_fd int program_fd = open(l->program, O_PATH | O_CLOEXEC);
	struct confine_ready confined;
	int dumpable = prctl(PR_GET_DUMPABLE);
	pid_t pid;

	confine_prepare(c, &confined);
	l->confined = &confined;
	l->program_fd = program_fd;
	pid = launch(l);
	l->confined = NULL;
	if (dumpable == 1)
		prctl(PR_SET_DUMPABLE, 1);
	return pid;
}

int proc_start(const struct proc_spec *spec, struct proc *ret, struct err *err)
{
	cleanup_free char *program = NULL;
	cleanup_fd int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct launch l = {
		.spec = spec, .highest = 2, .parent = getpid(), .program_fd = -1, .doing = "start"};
	pid_t pid;
	int r, pidfd;

	if (null_fd < 0)
		return err_sys(err, errno, "open /dev/null");
	r = look_up(spec->argv[0], &program, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < spec->n_fds; i++) {
		if (spec->fds[i].to > l.highest)
			l.highest = spec->fds[i].to;
	}
	l.program = program;
	l.argv = (char *const *)spec->argv;
	l.env = spec->env ? (char *const *)spec->env : environ;
	l.null_fd = null_fd;
	pid = spec->confine ? launch_confined(&l, spec->confine) : launch(&l);
	if (pid < 0)
		return err_sys(err, -pid, "start %s", spec->argv[0]);
	if (l.child_errno) {
		waitpid(pid, NULL, 0);
		return err_sys(err, l.child_errno, "%s %s", l.doing, program);
	}
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		r = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return err_sys(err, r, "watch %s", program);
	}
	ret->pid = pid;
	ret->pidfd = pidfd;
	return 0;
}

int proc_signal(const struct proc *p, int sig)
{
	if (p->pidfd < 0)
		return 0;
	if (syscall(SYS_pidfd_send_signal, p->pidfd, sig, NULL, 0) < 0 && errno != ESRCH)
		return -errno;
	return 0;
}

bool proc_ended(const struct proc *p)
{
	struct pollfd pfd = {.fd = p->pidfd, .events = POLLIN};

	return p->pidfd < 0 || poll(&pfd, 1, 0) == 1;
}

int proc_wait(struct proc *p, long long deadline, int *ret_status)
{
	int status, r = 0;

	for (;;) {
		struct pollfd pfd = {.fd = p->pidfd, .events = POLLIN};
		int n = poll(&pfd, 1, clock_left_ms(deadline));

		if (n == 1)
			break;
		if (n == 0 && clock_left_ms(deadline) == 0)
			return -ETIMEDOUT;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
	while (waitpid(p->pid, &status, 0) < 0) {
		if (errno != EINTR) {
			r = -errno; /* ECHILD: it has ended, and its status went to another */
			break;
		}
	}
	close_fd(&p->pidfd);
	p->pid = 0;
	if (r == 0 && ret_status)
		*ret_status = status;
	return r;
}

void proc_kill(struct proc *p)
{
	if (p->pid <= 0)
		return;
	proc_signal(p, SIGKILL);
	proc_wait(p, CLOCK_NEVER, NULL);
}

/* What a child wrote: its output whole, of its errors the end. */
struct gathered {
	char *out;
	size_t out_len, out_max;
	char tail[1024];
	size_t tail_len;
};

static void add_tail(struct gathered *g, const char *bytes, size_t len)
{
	if (len > sizeof(g->tail) - 1) {
		bytes += len - (sizeof(g->tail) - 1);
		len = sizeof(g->tail) - 1;
	}
	if (g->tail_len + len > sizeof(g->tail) - 1) {
		size_t drop = g->tail_len + len - (sizeof(g->tail) - 1);

		memmove(g->tail, g->tail + drop, g->tail_len - drop);
		g->tail_len -= drop;
	}
	memcpy(g->tail + g->tail_len, bytes, len);
	g->tail_len += len;
	g->tail[g->tail_len] = '\0';
}

/* One read of one pipe. Returns 1, 0 at its end, or -errno. */
static int gather_one(struct gathered *g, int fd, bool is_out)
{
	char buf[16384];
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 1 : -errno;
	if (n == 0)
		return 0;
	if (!is_out) {
		add_tail(g, buf, (size_t)n);
		return 1;
	}
	if (g->out_len + (size_t)n > g->out_max)
		return -EFBIG;
	g->out = realloc(g->out, g->out_len + (size_t)n + 1);
	if (!g->out)
		abort();
	memcpy(g->out + g->out_len, buf, (size_t)n);
	g->out_len += (size_t)n;
	return 1;
}

static int gather(struct gathered *g, int out_fd, int err_fd, long long deadline)
{
	struct pollfd pfds[2] = {
		{.fd = out_fd, .events = POLLIN}, {.fd = err_fd, .events = POLLIN}};

	while (pfds[0].fd >= 0 || pfds[1].fd >= 0) {
		int r = poll(pfds, 2, clock_left_ms(deadline));

		if (r < 0 && errno != EINTR)
			return -errno;
		if (r == 0 && clock_left_ms(deadline) == 0)
			return -ETIMEDOUT;
		for (int i = 0; r > 0 && i < 2; i++) {
			int got;

			if (pfds[i].fd < 0 || !pfds[i].revents)
				continue;
			got = gather_one(g, pfds[i].fd, i == 0);
			if (got < 0)
				return got;
			if (got == 0)
				pfds[i].fd = -1;
		}
	}
	return 0;
}

int proc_output(
	const struct proc_spec *spec, int timeout_ms, size_t max, char **ret_out, struct err *err)
{
	cleanup_proc struct proc p = PROC_INIT;
	cleanup_free char *out = NULL;
	struct proc_spec mine = *spec;
	struct gathered g = {.out_max = max};
	long long deadline = clock_deadline(timeout_ms);
	int out_pipe[2], err_pipe[2], status = 0, r;

	if (pipe2(out_pipe, O_CLOEXEC) < 0)
		return err_sys(err, errno, "run %s", spec->argv[0]);
	if (pipe2(err_pipe, O_CLOEXEC) < 0) {
		r = err_sys(err, errno, "run %s", spec->argv[0]);
		close(out_pipe[0]);
		close(out_pipe[1]);
		return r;
	}
	proc_map_fd(&mine, out_pipe[1], 1);
	proc_map_fd(&mine, err_pipe[1], 2);
	r = proc_start(&mine, &p, err);
	close(out_pipe[1]);
	close(err_pipe[1]);
	if (r == 0) {
		r = gather(&g, out_pipe[0], err_pipe[0], deadline);
		out = g.out;
		if (r == 0)
			r = proc_wait(&p, deadline, &status);
		if (r < 0)
			err_sys(err, -r, "run %s", spec->argv[0]);
	}
	close(out_pipe[0]);
	close(err_pipe[0]);
	if (r < 0)
		return r;
	if (WIFSIGNALED(status))
		return err_set(err, EIO, "%s: killed by signal %d: %s", spec->argv[0],
			WTERMSIG(status), g.tail);
	if (WEXITSTATUS(status))
		return err_set(err, EIO, "%s: exit status %d: %s", spec->argv[0],
			WEXITSTATUS(status), g.tail);
	if (!out)
		out = str_dup("");
	else
		out[g.out_len] = '\0';
	*ret_out = steal_ptr(&out);
	return 0;
}
