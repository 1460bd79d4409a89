/* SPDX-License-Identifier: Apache-2.0 */
/* The leaf library: errors, digests, publishing, children, descriptors over sockets. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "common/confine.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/proc.h"
#include "common/progress.h"
#include "common/rfc3339.h"
#include "common/sock.h"
#include "common/str.h"
#include "tests/unit/tap.h"

static char dir[] = "/tmp/parbake-common-XXXXXX";

static void test_err(void)
{
	struct err e = {0};

	is_int(err_set(&e, EINVAL, "%s:%d: bad", "a.ini", 3), -EINVAL, "err_set returns -errno");
	is_str(e.text, "a.ini:3: bad", "err_set formats");
	err_prefix(&e, "read %s", e.text);
	is_str(e.text, "read a.ini:3: bad: a.ini:3: bad", "a prefix may quote the text itself");
	err_sys(&e, ENOENT, "open %s", "x");
	is_str(e.text, "open x: No such file or directory", "err_sys says what errno means");
	for (int i = 0; i < 200; i++)
		err_prefix(&e, "a long context that goes on and on");
	is_int(strlen(e.text), ERR_TEXT_MAX - 1, "a text too long is cut");
	is_int(err_set(NULL, EIO, "x"), -EIO, "nobody need listen");
	ok(err_of_files(ENOENT) == EIO && err_of_files(EACCES) == EIO && err_of_files(EPERM) == EIO,
		"a file that is missing or closed does not say that what was asked for is");
	ok(err_of_files(ENOSPC) == ENOSPC && err_of_files(0) == 0,
		"other errors of files are told as they are");
}

static void test_digest(void)
{
	char got[DIGEST_TEXT_SIZE], sparse[DIGEST_TEXT_SIZE];
	cleanup_digest struct digest *d = digest_new();
	cleanup_fd int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct err e = {0};

	/* FIPS 180-4's own examples */
	digest_buffer("abc", 3, got);
	is_str(got, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"abc");
	digest_buffer("", 0, got);
	is_str(got, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"empty");
	ok(digest_valid(got), "valid");
	got[10] = 'X';
	ok(!digest_valid(got), "an upper-case digit is not");
	ok(!digest_valid("sha256:12"), "a short one is not");

	ok(ftruncate(fd, 3 * MIB + 5) == 0 && pwrite(fd, "x", 1, 2 * MIB) == 1, "a sparse file");
	is_int(digest_fd(fd, sparse, &e), 0, "the digest of a sparse file is made");
	digest_zeros(d, 2 * MIB);
	digest_update(d, "x", 1);
	digest_zeros(d, MIB + 4);
	digest_final(d, got);
	is_str(sparse, got, "holes count as zeros");
}

static int count_names(void)
{
	cleanup_dir DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *de; (de = readdir(d));)
		n += de->d_name[0] != '.' || !strncmp(de->d_name, ".tmp", 4);
	return n;
}

static void test_publish(void)
{
	struct err e = {0};
	cleanup_free char *text = NULL;
	cleanup_free char *path = str_printf("%s/f", dir);
	struct stat st;
	size_t len;

	is_int(file_publish(dir, "f", "one", 3, 0640, &e), 0, "publish");
	is_int(file_publish(dir, "f", "two!", 4, 0640, &e), 0, "publish again");
	is_int(file_read_all(AT_FDCWD, path, 4, &text, &len, &e), 0, "read");
	is_str(text, "two!", "the new content");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640,
		"a published file has its mode, whatever the umask");
	is_int(file_read_all(AT_FDCWD, path, 3, &text, &len, &e), -EFBIG, "longer than allowed");
	{
		cleanup_publish struct publish p = PUBLISH_INIT;

		is_int(publish_begin(&p, dir, &e), 0, "begin");
		ok(p.fd >= 0 && !p.tmp[0], "a file without a name");
		is_int(count_names(), 1, "what is not done has no name: dying now leaves nothing");
		is_int(file_write_full(p.fd, "three", 5), 0, "write");
		is_int(publish_commit(&p, "f", 0600, &e), 0, "commit");
	}
	free(steal_ptr(&text));
	is_int(file_read_all(AT_FDCWD, path, 9, &text, &len, &e), 0, "read");
	is_str(text, "three", "the content after the commit");
	is_int(count_names(), 1, "nothing but the file is left");
}

/* Where the file system has no O_TMPFILE: run in a process of its own, by a fault. */
static int test_named_meanwhile(void)
{
	struct err e = {0};
	struct publish p = PUBLISH_INIT;
	cleanup_free char *text = NULL, *path = str_printf("%s/f", dir);

	is_int(publish_begin(&p, dir, &e), 0, "begin");
	ok(p.tmp[0] && faccessat(p.dirfd, p.tmp, F_OK, 0) == 0, "a temporary file");
	ok(write(p.fd, "three", 5) == 5, "write");
	is_int(publish_commit(&p, "f", 0600, &e), 0, "commit");
	publish_end(&p);
	is_int(file_read_all(AT_FDCWD, path, 9, &text, NULL, &e), 0, "read");
	is_str(text, "three", "the new content");
	unlink(path);
	ok(rmdir(dir) == 0, "nothing else is left");
	return tap_done();
}

static void test_without_tmpfile(void)
{
	const char *argv[] = {"/proc/self/exe", "named", NULL},
		   *env[] = {"PARBAKE_FAULT=file.unnamed=EOPNOTSUPP", NULL};
	struct proc_spec spec = {.argv = argv, .env = env};
	cleanup_free char *out = NULL;
	struct err e = {0};

	ok(proc_output(&spec, 10000, 65536, &out, &e) == 0,
		"without O_TMPFILE a file has a name meanwhile");
	if (e.text[0])
		printf("# %s\n", e.text);
}

static void test_remove_tree(void)
{
	cleanup_free char *deep = str_printf("%s/t/a/b/c", dir);
	cleanup_free char *link_path = str_printf("%s/t/a/link", dir);
	cleanup_free char *keep = str_printf("%s/keep", dir);
	cleanup_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err e = {0};

	is_int(file_mkdir_p(deep, 0700, &e), 0, "mkdir -p");
	is_int(file_mkdir_p(keep, 0700, &e), 0, "mkdir");
	is_int(file_publish(keep, "f", "x", 1, 0600, &e), 0, "a file elsewhere");
	ok(symlink(keep, link_path) == 0, "a link to elsewhere");
	is_int(file_remove_tree(fd, "t", &e), 0, "remove the tree");
	ok(faccessat(fd, "t", F_OK, 0) < 0, "a removed tree is gone");
	ok(faccessat(fd, "keep/f", F_OK, 0) == 0, "what its link led to is not");
	is_int(file_remove_tree(fd, "t", &e), 0, "removing nothing is fine");
}

static void test_proc(void)
{
	const char *const echo[] = {"sh", "-c", "cat <&7; echo err >&2; ls /proc/self/fd", NULL};
	const char *const fails[] = {"sh", "-c", "echo the reason >&2; exit 3", NULL};
	const char *const nope[] = {"/nonexistent/program", NULL};
	const char *const sleeper[] = {"sleep", "1000", NULL};
	struct proc_spec spec = {.argv = echo};
	cleanup_proc struct proc p = PROC_INIT;
	cleanup_free char *out = NULL;
	struct err e = {0};
	int fds[2], stray = open("/dev/null", O_RDONLY); /* deliberately not close-on-exec */
	int status;

	is_int(sock_pair(fds, &e), 0, "a pair");
	ok(write(fds[0], "hello\n", 6) == 6 && shutdown(fds[0], SHUT_WR) == 0,
		"bytes for the child");
	proc_map_fd(&spec, fds[1], 7);
	is_int(proc_output(&spec, 10000, 4096, &out, &e), 0, "run a child: %s", e.text);
	has_str(out, "hello\n", "a mapped descriptor arrives");
	ok(out && strlen(out) <= strlen("hello\n0\n1\n2\n3\n7\n"),
		"no descriptor but the mapped ones arrives");
	close(fds[0]);
	close(fds[1]);
	close(stray);

	spec = (struct proc_spec){.argv = fails};
	free(steal_ptr(&out));
	is_int(proc_output(&spec, 10000, 4096, &out, &e), -EIO, "a failing child is an error");
	has_str(e.text, "exit status 3", "with its status");
	has_str(e.text, "the reason", "a failed child's error has its own words");

	spec = (struct proc_spec){.argv = nope};
	is_int(proc_start(&spec, &p, &e), -ENOENT, "a missing program is an error at once");

	spec = (struct proc_spec){.argv = sleeper, .die_with_parent = true};
	is_int(proc_start(&spec, &p, &e), 0, "start");
	ok(!proc_ended(&p), "a child that was started runs");
	is_int(proc_wait(&p, clock_deadline(10), &status), -ETIMEDOUT, "a wait is bounded");
	is_int(proc_signal(&p, SIGTERM), 0, "signal");
	is_int(proc_wait(&p, clock_deadline(10000), &status), 0, "wait");
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "how it ended");
	is_int(proc_signal(&p, SIGTERM), 0, "a signal to nobody is fine");
	is_int(proc_output(&(struct proc_spec){.argv = sleeper}, 50, 10, &out, &e), -ETIMEDOUT,
		"proc_output is bounded and leaves nobody");
}

static void test_orphan(void)
{
	const char *const sleeper[] = {"sleep", "1000", NULL};
	int fds[2];
	pid_t grandchild = 0, child;
	struct err e = {0};

	is_int(sock_pair(fds, &e), 0, "a pair");
	child = fork();
	if (child == 0) {
		struct proc p = PROC_INIT;
		struct proc_spec spec = {.argv = sleeper, .die_with_parent = true};

		if (proc_start(&spec, &p, NULL) < 0)
			_exit(1);
		if (write(fds[1], &p.pid, sizeof(p.pid)) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	ok(read(fds[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild), "grandchild");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	{
		int64_t deadline = clock_deadline(5000);

		while (kill(grandchild, 0) == 0 && clock_left_ms(deadline)) {
			/* an orphan in a container may stay a zombie: dead all the same */
			cleanup_free char *path = str_printf("/proc/%d/stat", (int)grandchild);
			cleanup_free char *text = NULL;

			if (file_read_all(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0 ||
				strstr(text, ") Z"))
				break;
		}
		ok(clock_left_ms(deadline) > 0, "a child dies with its parent's kill -9");
	}
	close(fds[0]);
	close(fds[1]);
}

/* ---- the log ------------------------------------------------------------------------------- */

/* What a stranger's text may do to the log: nothing. */
static void test_log(void)
{
	static const char forged[] = "/a\nparbake: error: forged \033[2J \302\2332J \177";
	cleanup_fd int file = memfd_create("log", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
	char text[600] = "", quoted[LOG_QUOTED], long_text[2 * LOG_QUOTED];

	dup2(file, STDERR_FILENO);
	log_line(LOG_LEVEL_ERROR, "GET %s", forged);
	log_line(LOG_LEVEL_ERROR, "GET %s", log_quote(forged, quoted));
	dup2(kept, STDERR_FILENO);
	ok(pread(file, text, sizeof(text) - 1, 0) > 0, "the log is written");
	ok(!strstr(text, "\nparbake: error: forged"), "no text of another's begins a line of it");
	has_str(text, "/a\n\tparbake", "another's line ends are shown in the log");
	has_str(text, "/a\\x0aparbake: error: forged \\x1b[2J",
		"another's control characters are quoted in the log");
	ok(!strpbrk(text, "\033\177") && !strstr(text, "\302\233"),
		"nothing that a terminal obeys is in the log");
	memset(long_text, 1, sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	ok(strlen(log_quote(long_text, quoted)) < LOG_QUOTED, "a quoted text is bounded");
}

/* ---- confined ------------------------------------------------------------------------------ */

static void say(const char *what, long r)
{
	printf("%s=%s\n", what, r < 0 ? strerrorname_np(errno) : "ok");
}

static void *nothing(void *arg)
{
	return arg;
}

/* Ways to have the kernel send a signal to another process, or to type into a terminal. */
static const struct {
	const char *name;
	long call;
	bool fcntl;
} sigio[] = {
	{"f_setown", F_SETOWN, true},
	{"f_setown_ex", F_SETOWN_EX, true},
	{"f_setsig", F_SETSIG, true},
	{"fiosetown", FIOSETOWN, false},
	{"siocspgrp", SIOCSPGRP, false},
	{"fioasync", FIOASYNC, false},
	{"tiocsti", TIOCSTI, false},
	{"tiocspgrp", TIOCSPGRP, false},
};

/* In the confined child: tries things, and says what came of them. */
static int probe(void)
{
	struct rlimit files;
	pthread_t thread;
	int sig = 0;

	prctl(PR_GET_PDEATHSIG, &sig);
	getrlimit(RLIMIT_NOFILE, &files);
	printf("uid=%u gid=%u groups=%d pid=%d\n", getuid(), getgid(), getgroups(0, NULL),
		getpid());
	printf("nnp=%d dies=%d files=%d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), sig == SIGKILL,
		(int)files.rlim_max);
	printf("bounding=%d\n", prctl(PR_CAPBSET_READ, 0 /* CAP_CHOWN */, 0, 0, 0));
	say("socket", socket(AF_UNIX, SOCK_STREAM, 0));
	say("fork", syscall(SYS_fork));
	say("kill-parent", kill(getppid(), 0));
	say("kill-self", kill(getpid(), 0));
	say("outlive", prctl(PR_SET_PDEATHSIG, 0));
	say("ptrace", syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, getppid(), 0, 0));
	say("io_uring", syscall(SYS_io_uring_setup, 1, NULL));
	say("newer", syscall(500));
	say("memfd", memfd_create("x", 0));
	say("passwd", open("/etc/passwd", O_RDONLY));
	say("tmp", open("/tmp", O_TMPFILE | O_RDWR, 0600));
	say("unlink", unlink("/tmp/parbake-no-such-file"));
	say("parent-fd", open(getenv("PARENT_FD"), O_RDONLY));
	say("usr", open("/usr/bin/env", O_RDONLY));
	for (size_t i = 0; i < sizeof(sigio) / sizeof(sigio[0]); i++) {
		int on = 1, r;

		r = sigio[i].fcntl ? fcntl(0, sigio[i].call, getppid())
				   : ioctl(0, (unsigned long)sigio[i].call, &on);
		say(sigio[i].name, r);
	}
	say("f_setfl_async", fcntl(0, F_SETFL, O_ASYNC | O_NONBLOCK));
	say("f_setfl", fcntl(0, F_SETFL, O_NONBLOCK));
	say("fionread", ioctl(0, FIONREAD, &sig));
	errno = pthread_create(&thread, NULL, nothing, NULL);
	say("thread", errno ? -1 : 0);
	pthread_join(thread, NULL);
	fflush(stdout);
	_exit(0);
}

/* Descriptors that are mapped to the numbers of those that confining needs must not meet them. */
static void map_many(struct proc_spec *spec, int fd)
{
	for (int to = 3; to < 20; to++)
		proc_map_fd(spec, fd, to);
}

static void test_confine(const char *program)
{
	const char *const argv[] = {program, "probe", NULL};
	cleanup_free char *parent_fd = str_printf("PARENT_FD=/proc/%d/fd/0", getpid());
	const char *const env[] = {parent_fd, "ASAN_OPTIONS=detect_leaks=0", NULL};
	const struct confine_path paths[] = {{.path = "/usr"}, {.path = "/lib"}, {.path = "/lib64"},
		{.path = "/proc"}, {.path = program}, {.path = "/no/such/path"}};
	const struct confine_host *h = confine_host();
	struct confine c = CONFINE_INIT;
	struct proc_spec spec = {.argv = argv, .env = env, .confine = &c, .die_with_parent = true};
	cleanup_fd int files = -1, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cleanup_free char *out = NULL;
	struct err e = {0};
	unsigned uid = 0, gid = 0, pid = 0;
	int groups = -1;

	files = confine_files_new(paths, sizeof(paths) / sizeof(paths[0]), &e);
	is_int(files < -1, 0, "a list of files: %s", e.text);
	c.files_fd = files;
	c.may = CONFINE_MAY_EXEC;
	c.killed_first = true;
	confine_limit(&c, RLIMIT_NOFILE, 64);
	map_many(&spec, null);
	if (!is_int(proc_output(&spec, 30000, 4096, &out, &e), 0, "a confined child: %s", e.text))
		return;
	is_int(sscanf(out, "uid=%u gid=%u groups=%d pid=%u", &uid, &gid, &groups, &pid), 4,
		"a confined child says who it is");
	has_str(out, "nnp=1 dies=1 files=64\n", "no new privileges, its parent's end, its limit");
	if (h->users) {
		is_int(uid, h->first + pid, "a user of its own");
		is_int(gid, uid, "a group of its own");
		is_int(groups, 0, "no others");
		has_str(out, "bounding=0", "no capability to be had");
		has_str(out, "parent-fd=EACCES",
			"a confined child cannot see its parent's descriptors");
	} else {
		is_int(uid, getuid(), "the same user: %s", h->why);
	}
	has_str(out, "socket=EPERM", "no socket");
	has_str(out, "fork=EPERM", "no process");
	has_str(out, "kill-parent=EPERM", "no signal to others");
	has_str(out, "kill-self=ok", "a confined child may signal itself");
	has_str(out, "outlive=EPERM", "a confined child cannot outlive its parent");
	has_str(out, "ptrace=EPERM", "a confined child cannot trace its parent");
	has_str(out, "io_uring=ENOSYS", "no io_uring");
	has_str(out, "newer=ENOSYS", "no call that is newer than the list");
	has_str(out, "memfd=EPERM", "no memory file");
	has_str(out, "unlink=EPERM", "no name is removed");
	has_str(out, "thread=ok", "a confined child may make threads");
	for (size_t i = 0; i < sizeof(sigio) / sizeof(sigio[0]); i++) {
		cleanup_free char *denied = str_printf("\n%s=EPERM\n", sigio[i].name);

		has_str(out, denied, "no %s", sigio[i].name);
	}
	has_str(out, "f_setfl_async=EPERM", "no SIGIO by a descriptor's flags");
	has_str(out, "f_setfl=ok", "whose others may be set");
	ok(!strstr(out, "fionread=EPERM"), "other ioctls are as they were");
	has_str(out, "usr=ok", "what is listed may be read");
	if (h->files) {
		has_str(out, "passwd=EACCES",
			"a confined child may read nothing that is not listed");
		has_str(out, "tmp=EACCES", "nothing is made");
	} else {
		tap_skip("this kernel has no Landlock");
	}
	ok(prctl(PR_GET_DUMPABLE) == 1 && getuid() == geteuid(),
		"the parent of a confined child is as it was");
}

/* A program in a directory that only we may enter. */
static void test_confine_hidden(const char *program)
{
	cleanup_free char *path = str_printf("%s/hidden", dir);
	const char *const argv[] = {path, "probe", NULL};
	struct confine c = {.files_fd = -1, .may = CONFINE_MAY_EXEC};
	struct proc_spec spec = {.argv = argv, .confine = &c};
	const char *const copy[] = {"cp", program, path, NULL};
	cleanup_free char *out = NULL;
	struct err e = {0};

	if (is_int(proc_output(&(struct proc_spec){.argv = copy}, 10000, 1, &out, &e), 0,
		    "a copy") &&
		chmod(path, 0755) == 0) {
		free(steal_ptr(&out));
		setenv("PARENT_FD", "/", 1);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		is_int(proc_output(&spec, 30000, 4096, &out, &e), 0, "is started all the same: %s",
			e.text);
		has_str(out, "socket=EPERM",
			"a program in a directory that only its starter may enter is confined");
	}
	c.may = 0;
	is_int(proc_output(&spec, 10000, 4096, &out, &e), -EPERM, "who may not start a program: %s",
		e.text);
}

static void test_fds(void)
{
	struct err e = {0};
	int fds[2], sent[2], got[2];
	size_t n = 2;
	char buf[8];

	is_int(sock_pair(fds, &e), 0, "a pair");
	is_int(sock_pair(sent, &e), 0, "two to send");
	is_int(sock_send_fds(fds[0], "ab", 2, sent, 2), 0, "send");
	is_int(sock_recv_fds(fds[1], buf, sizeof(buf), got, &n), 2, "receive");
	is_int(n, 2, "both descriptors");
	ok(fcntl(got[0], F_GETFD) & FD_CLOEXEC, "close-on-exec");
	close(got[0]);
	close(got[1]);
	is_int(sock_send_fds(fds[0], "x", 1, sent, 2), 0, "send two");
	n = 1;
	is_int(sock_recv_fds(fds[1], buf, sizeof(buf), got, &n), -EPROTO,
		"more than wanted is refused");
	is_int(n, 0, "of descriptors that are too many none is left open");
	is_int(sock_check_peer(fds[0], &e), 0, "our own peer is welcome");
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		close(sent[i]);
	}
}

static void test_json(void)
{
	struct err e = {0};
	cleanup_json json_t *v = NULL;
	cleanup_free char *text = NULL;
	const char *s;
	uint64_t n;

	is_int(json_parse("x.json", "{\"b\":7,\"a\":\"s\",\"neg\":-1}", 24, &v, &e), 0, "parse");
	is_int(json_get_string(v, "a", &s, &e), 0, "a string");
	is_str(s, "s", "the string has its value");
	is_int(json_get_u64(v, "b", 0, 7, &n, &e), 0, "a number");
	is_int(json_get_u64(v, "b", 0, 6, &n, &e), -EINVAL, "out of bounds");
	has_str(e.text, "\"b\"", "names the field");
	is_int(json_get_u64(v, "neg", 0, UINT64_MAX, &n, &e), -EINVAL, "negative is out of bounds");
	is_int(json_get_string(v, "zz", &s, &e), -ENOENT, "absent");
	is_int(json_get_string(v, "b", &s, &e), -EINVAL, "a string is not taken from a number");
	text = json_text(v);
	is_str(text, "{\"a\":\"s\",\"b\":7,\"neg\":-1}", "sorted, compact");
	is_int(json_parse("x.json", "{\"a\":1,\"a\":2}", 13, &v, &e), -EINVAL,
		"duplicate keys are refused");
	has_str(e.text, "x.json:1", "with the place");
}

static void test_deadline(void)
{
	int64_t now = clock_now_ns();

	ok(clock_deadline(1000) >= now + 1000000000LL, "a deadline lies ahead");
	ok(clock_deadline(-1) == CLOCK_NEVER, "a negative one is never");
	ok(clock_deadline(INT64_MAX) == CLOCK_NEVER, "a deadline that no clock can show is never");
	ok(clock_deadline(INT64_MAX / 1000000) == CLOCK_NEVER,
		"a deadline that the time until now makes too late is never");
	is_int(clock_left_ms(clock_deadline(INT64_MAX)), -1,
		"which poll(2) waits for without an end");
}

static void test_json_lossy(void)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"", "\"\""},
		{"K\xc3\xa4se", "\"K\xc3\xa4se\""},
		{"cut \xc3", "\"cut \xef\xbf\xbd\""},
		{"\xe2\x82", "\"\xef\xbf\xbd\""}, /* a cut character is one */
		{"\xff-\xc3\xa4", "\"\xef\xbf\xbd-\xc3\xa4\""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cleanup_json json_t *v = json_lossy(cases[i].in, strlen(cases[i].in));
		cleanup_free char *text = json_text(v);

		is_str(text, cases[i].out, "any bytes make a JSON string");
	}
}

static void test_paths(void)
{
	struct err e = {0};
	const char *path;
	cleanup_free char *sub = NULL, *lib = NULL;
	struct stat st;

	setenv("PARBAKE_HOME", dir, 1);
	is_int(paths_get(PATHS_STORE, &path, &e), 0, "the store's place: %s", e.text);
	ok(!strncmp(path, dir, strlen(dir)), "below PARBAKE_HOME");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0700, "0700");
	is_int(paths_sub(PATHS_RUN, "a/b", &sub, &e), 0, "a directory below run");
	setenv("PARBAKE_LIBDIR", dir, 1);
	is_int(paths_lib("no-such", &lib, &e), -ENOENT, "what is not there");
	has_str(e.text, dir, "the error says where it was looked for");
	unsetenv("PARBAKE_LIBDIR");
}

static void test_progress_bytes(void)
{
	char buf[16];

	is_str(progress_bytes(1023, buf), "1023 B", "bytes");
	is_str(progress_bytes(1536, buf), "1.5 KiB", "KiB");
	is_str(progress_bytes(3UL << 40, buf), "3.0 TiB", "TiB");
}

static void test_rfc3339(void)
{
	static const char *const bad[] = {"", "yesterday", "2026-09-21T16:13:20",
		"2026-09-21T16:13:20.Z", "2026-09-21T16:13:20+2", "2026-09-21T16:13:20+24:00",
		"2026-09-21T16:13:20Z ", "9999-09-21T16:13:20Z"};
	char text[RFC3339_SIZE];
	int64_t ns = 0;

	rfc3339_text(1767323045123456789, 9, text);
	is_str(text, "2026-01-02T03:04:05.123456789Z", "a time as text");
	is_int(rfc3339_parse(text, &ns), 0, "a time's text is read again");
	is_int(ns, 1767323045123456789, "as it was");
	rfc3339_text(1790000000007000000, 3, text);
	is_str(text, "2026-09-21T14:13:20.007Z", "in milliseconds");
	rfc3339_text(1790000000007000000, 0, text);
	is_str(text, "2026-09-21T14:13:20Z", "in seconds");
	rfc3339_text(-1, 9, text);
	is_str(text, "1969-12-31T23:59:59.999999999Z", "before 1970");
	rfc3339_text(INT64_MIN, 9, text);
	ok(!strncmp(text, "1677-", 5), "the first of all");
	is_int(rfc3339_parse("2026-09-21T16:13:20+02:00", &ns), 0, "an offset is read");
	is_int(ns, 1790000000000000000, "a time's offset counts");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		is_int(rfc3339_parse(bad[i], &ns), -EINVAL, "\"%s\" is no time", bad[i]);
}

static void test_buffer(void)
{
	cleanup_buffer struct buffer b = {0};
	uint8_t byte = 0, next = 0;
	bool same = true;

	ok(!buffer_text(&b), "an empty queue has no text");
	/* appended in steps of 7, consumed in steps of 5: what comes out is what went in, in order */
	for (int i = 0; i < 10000; i++) {
		for (int j = 0; j < 7; j++, byte++)
			buffer_append(&b, &byte, 1);
		for (int j = 0; j < 5; j++)
			same = same && (uint8_t)buffer_text(&b)[j] == next++;
		buffer_consume(&b, 5);
	}
	ok(same, "a queue of bytes keeps their order");
	is_int(b.len, 20000, "a queue of bytes keeps their number");
	memset(buffer_reserve(&b, 1 << 20), 'x', 1 << 20);
	b.len += 1 << 20;
	buffer_consume(&b, b.len);
	ok(!b.bytes && !b.cap, "an empty queue gives large memory back");
}

int main(int argc, char **argv)
{
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	cleanup_fd int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (argc > 1 && !strcmp(argv[1], "probe"))
		return probe();
	umask(077);
	test_rfc3339();
	test_buffer();
	if (len < 0 || !mkdtemp(dir))
		return 1;
	self[len] = '\0';
	if (argc == 2 && !strcmp(argv[1], "named"))
		return test_named_meanwhile();
	test_err();
	test_digest();
	test_publish();
	test_without_tmpfile();
	test_remove_tree();
	test_proc();
	test_orphan();
	test_log();
	test_confine(self);
	test_confine_hidden(self);
	test_fds();
	test_json();
	test_deadline();
	test_json_lossy();
	test_paths();
	test_progress_bytes();
	file_remove_tree(tmp, dir + strlen("/tmp/"), NULL);
	return tap_done();
}
