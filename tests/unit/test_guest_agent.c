/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the agent channel against the real agent, as an ordinary process over a
 * socketpair: what people rely on when they run commands and move files.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "common/limits.h"
#include "tests/unit/peer.h"

#define DEADLINE clock_deadline(2 * PEER_DEADLINE_MS)

static struct guest *g;
static char dir[] = "/tmp/parbake-test-XXXXXX";

static int run(struct guest_exec_spec spec, struct guest_result *r)
{
	struct err err = {""};
	int rc = guest_exec(g, &spec, DEADLINE, -1, r, &err);

	if (rc < 0)
		printf("# %s\n", err.text);
	return rc;
}

#define RUN_WITH(r, fd, ...) run((struct guest_exec_spec){.stdin_fd = (fd), __VA_ARGS__}, (r))
#define RUN(r, ...) RUN_WITH(r, -1, __VA_ARGS__)

static void test_info(void)
{
	struct guest_info a, b;
	struct proto_hello hello;
	struct utsname u;
	struct err err = {""};

	uname(&u);
	is_int(guest_info(g, DEADLINE, -1, &a, &err), 0, "INFO (%s)", err.text);
	is_str(a.kernel, u.release, "the kernel");
	ok(a.mem_total > 0 && a.mem_free <= a.mem_total && a.uptime_ns > 0, "memory and uptime");
	guest_synced(g, &hello);
	ok(!memcmp(hello.boot, a.nonce, sizeof(a.nonce)), "the nonce is the one of HELLO");
	is_int(guest_sync(g, DEADLINE, -1, NULL, &err), 0, "synchronised anew");
	guest_info(g, DEADLINE, -1, &b, &err);
	is_int((int64_t)b.counter, (int64_t)a.counter + 1, "the counter goes on");
	ok(!memcmp(a.nonce, b.nonce, sizeof(a.nonce)), "the nonce stays");
}

static void test_exec(void)
{
	const char *const argv[] = {
		"sh", "-c", "echo \"$1 $A\"; pwd >&2; exit 7", "sh", "one two", NULL};
	const char *const env[] = {"A=a b", NULL};
	struct guest_result r;
	struct err err = {""};
	char line[256];

	is_int(RUN(&r, .argv = argv, .env = env, .cwd = "/tmp"), 0, "a command runs");
	is_int(r.exit_code, 7, "a command's exit code is told");
	is_str(r.out, "one two a b\n", "a command's output comes, with arguments and environment");
	is_str(r.err, "/tmp\n", "a command's standard error comes apart, from its directory");
	ok(r.duration_ns > 0 && r.total_out == 12 && !r.timed_out && !r.cut_out,
		"a command's other results are told");
	guest_result_free(&r);
	RUN(&r, .shell = "kill -9 $$");
	ok(r.exit_code == -1 && r.exit_signal == 9, "a signal's end");
	guest_result_free(&r);
	RUN(&r, .shell = "sleep 300 & sleep 300", .timeout_ms = 200);
	ok(r.timed_out && r.duration_ns < 5000000000u, "a timeout ends the whole tree");
	guest_result_free(&r);
	RUN(&r, .shell = "seq 1 100000", .limit_out = 10);
	ok(!strcmp(r.out, "1\n2\n3\n4\n5\n") && r.cut_out && r.total_out == 588895,
		"output past its limit is cut, and counted");
	guest_result_free(&r);
	RUN(&r, .shell = "head -c 5000000 /dev/zero | tr '\\0' x; echo end");
	ok(r.out_len == 5000004 && strlen(r.out) == r.out_len && !strcmp(r.out + 5000000, "end\n"),
		"output is complete");
	guest_result_free(&r);
	RUN(&r, .shell = "tty; stty size", .rows = 33, .cols = 77);
	has_str(r.out, "33 77", "a terminal");
	guest_result_free(&r);
	snprintf(line, sizeof(line), "mkfifo %s/f; echo on >%s/f", dir, dir);
	is_int(RUN(&r, .shell = line, .detach = true), 0, "a detached command");
	guest_result_free(&r);
	snprintf(line, sizeof(line), "until [ -p %s/f ]; do sleep 0.02; done; cat %s/f", dir, dir);
	RUN(&r, .shell = line, .timeout_ms = PEER_DEADLINE_MS);
	is_str(r.out, "on\n", "lives on by itself");
	guest_result_free(&r);
	is_int(guest_exec(g,
		       &(struct guest_exec_spec){
			       .argv = (const char *[]){"/no/such", NULL}, .stdin_fd = -1},
		       DEADLINE, -1, &r, &err),
		-ENOENT, "a program that is not there");
	has_str(err.text, "/no/such", "a program that is not there is named");
	is_int(guest_exec(g, &(struct guest_exec_spec){.shell = "true", .stdin_fd = 987}, DEADLINE,
		       -1, &r, &err),
		-EBADF, "an input that is none");
	is_int(guest_exec(g, &(struct guest_exec_spec){.shell = "sleep 300", .stdin_fd = -1},
		       clock_deadline(100), -1, &r, &err),
		-ETIMEDOUT, "the caller's deadline");
	is_int(RUN(&r, .shell = "pgrep -fx 'sleep 300' | wc -l"), 0, "the guest goes on");
	is_str(r.out, "0\n", "a command that was cancelled is gone");
	guest_result_free(&r);
}

/* ---- input ------------------------------------------------------------------------------ */

#define BIG (5u << 20)

static void *feed(void *arg)
{
	int fd = *(int *)arg;
	static uint8_t buf[BIG];

	for (size_t i = 0; i < BIG; i++)
		buf[i] = (uint8_t)(i ^ i >> 9);
	for (size_t n = 0; n < BIG;) {
		ssize_t w = write(fd, buf + n, BIG - n < 70001 ? BIG - n : 70001);

		if (w < 0)
			break;
		n += (size_t)w;
	}
	close(fd);
	return NULL;
}

struct check {
	size_t n, wrong;
};

static int check_output(void *user, enum proto_channel c, const uint8_t *bytes, size_t len)
{
	struct check *k = user;

	(void)c;
	for (size_t i = 0; i < len; i++, k->n++)
		k->wrong += bytes[i] != (uint8_t)(k->n ^ k->n >> 9);
	return 0;
}

static void test_stdin(void)
{
	struct guest_result r;
	struct check k = {0};
	pthread_t t;
	int pipes[2], fd, null;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		peer_die("pipe");
	pthread_create(&t, NULL, feed, &pipes[1]);
	is_int(RUN_WITH(&r, pipes[0], .shell = "cat", .output = check_output, .user_data = &k), 0,
		"a pipe as input");
	ok(k.n == BIG && k.wrong == 0 && r.total_out == BIG, "goes through byte for byte");
	ok(!r.out, "output is passed on instead of collected");
	pthread_join(t, NULL);
	close(pipes[0]);
	guest_result_free(&r);

	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	RUN_WITH(&r, fd, .shell = "md5sum /proc/self/fd/0 >/dev/null; wc -c");
	is_int(r.exit_code, 0, "a file as input");
	guest_result_free(&r);
	close(fd);

	null = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	RUN_WITH(&r, null, .shell = "head -c 10 | wc -c");
	is_str(r.out, "10\n", "a program that does not read all its input");
	guest_result_free(&r);
	close(null);

	if (pipe2(pipes, O_CLOEXEC) < 0)
		peer_die("pipe");
	RUN_WITH(&r, pipes[0], .shell = "echo done");
	is_str(r.out, "done\n", "an input that never ends holds nothing up");
	guest_result_free(&r);
	close(pipes[0]);
	close(pipes[1]);

	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	is_int(RUN_WITH(&r, fd, .shell = "cat"), -EISDIR, "an input that cannot be read");
	close(fd);
	RUN(&r, .shell = "cat; echo eof");
	is_str(r.out, "eof\n", "no input is an empty one");
	guest_result_free(&r);
}

/* ---- output that its reader does not take ------------------------------------------------ */

static int refuse_output(void *user, enum proto_channel c, const uint8_t *bytes, size_t len)
{
	unsigned *calls = user;

	(void)c;
	(void)bytes;
	(void)len;
	++*calls;
	return -EPIPE;
}

/* Takes longer than all of the call has. */
static int slow_output(void *user, enum proto_channel c, const uint8_t *bytes, size_t len)
{
	int64_t *until = user;

	(void)c;
	(void)bytes;
	(void)len;
	while (clock_left_ms(*until))
		poll(NULL, 0, clock_left_ms(*until));
	return 0;
}

static void test_output(void)
{
	struct guest_result r;
	struct err err = {""};
	unsigned calls = 0;
	int64_t until = clock_deadline(1500);
	struct guest_exec_spec spec = {.shell = "yes | sed 's/y/parbake-yes/'",
		.stdin_fd = -1,
		.output = refuse_output,
		.user_data = &calls};

	is_int(guest_exec(g, &spec, DEADLINE, -1, &r, &err), -EPIPE, "output that nobody takes");
	has_str(err.text, "Broken pipe", "output that nobody takes is an error that says so");
	is_int((int)calls, 1, "nothing is passed on after a writer's error");
	is_int(RUN(&r, .shell = "pgrep -f '[p]arbake-yes' | wc -l"), 0, "the guest goes on");
	is_str(r.out, "0\n", "a command whose reader failed is gone");
	guest_result_free(&r);
	spec = (struct guest_exec_spec){.shell = "echo out; sleep 1; exit 3",
		.stdin_fd = -1,
		.output = slow_output,
		.user_data = &until};
	is_int(guest_exec(g, &spec, clock_deadline(1300), -1, &r, &err), 0,
		"a reader that is slow costs the command nothing of its time (%s)", err.text);
	is_int(r.exit_code, 3, "a command with a slow reader has its own status");
	guest_result_free(&r);
	is_int(RUN(&r, .shell = "true", .cwd = "/no/such"), -ENOTDIR,
		"a directory that is not there is not a program that is not there");
	is_int(RUN(&r, .shell = "true", .user = "nobody-such"), -ESRCH,
		"a user that is not there is not a program that is not there");
}

/* ---- files ------------------------------------------------------------------------------ */

static void *sip(void *arg)
{
	int *fds = arg;
	uint8_t buf[999];
	ssize_t n;

	fds[1] = 0;
	while ((n = read(fds[0], buf, sizeof(buf))) > 0)
		fds[1] += (int)n;
	return NULL;
}

/* The offset is the reader's, too. */
static void *cut_begun(void *arg)
{
	int fd = *(int *)arg;

	while (lseek(fd, 0, SEEK_CUR) == 0)
		sched_yield();
	if (ftruncate(fd, 1) < 0)
		peer_die("ftruncate");
	return NULL;
}

static void test_files(void)
{
	char *text = NULL;
	size_t len = 0;
	char path[128], other[128];
	struct err err = {""};
	struct stat st;
	uint8_t buf[65536];
	int in, out, pipes[2], count[2], wrong = 0;
	pthread_t t;

	snprintf(path, sizeof(path), "%s/a/b", dir);
	snprintf(other, sizeof(other), "%s/c", dir);
	in = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; i < 50; i++) {
		memset(buf, i, sizeof(buf));
		if (write(in, buf, sizeof(buf)) < 0)
			peer_die("write");
	}
	lseek(in, 0, SEEK_SET);
	is_int(guest_put_file(g, in, path, 0640, NULL, DEADLINE, -1, &err), 0, "put (%s)",
		err.text);
	ok(stat(path, &st) == 0 && st.st_size == 50 * 65536 && (st.st_mode & 07777) == 0640,
		"the file is there, whole, with its mode, its directory made");
	snprintf(other, sizeof(other), "%s/d", dir);
	out = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	is_int(guest_get_file(g, path, out, UINT64_MAX, DEADLINE, -1, &err), 0, "get (%s)",
		err.text);
	for (int i = 0; i < 50; i++) {
		if (pread(out, buf, sizeof(buf), i * 65536) != sizeof(buf) || buf[0] != i ||
			buf[65535] != i)
			wrong++;
	}
	is_int(wrong, 0, "what was put comes back");
	if (ftruncate(out, 0) < 0)
		peer_die("ftruncate");
	lseek(out, 0, SEEK_SET);
	is_int(guest_get_file(g, path, out, 100000, DEADLINE, -1, &err), -EFBIG,
		"more than allowed");
	ok(fstat(out, &st) == 0 && st.st_size == 100000, "stops there");
	is_int(guest_get_file(g, path, out, 50 * 65536, DEADLINE, -1, &err), 0, "exactly allowed");
	is_int(guest_get_file(g, "/no/such", out, 10, DEADLINE, -1, &err), -ENOENT, "no such file");
	has_str(err.text, "/no/such", "a file that is not there is named");
	is_int(guest_read(g, PROTO_FILE_GET, path, 50 * 65536, DEADLINE, -1, &text, &len, &err), 0,
		"read into memory (%s)", err.text);
	ok(len == 50 * 65536 && text[3 * 65536 + 5] == 3 && !text[len],
		"a file is read into memory whole");
	free(text);
	is_int(guest_read(g, PROTO_FILE_GET, path, 50 * 65536 - 1, DEADLINE, -1, &text, &len, &err),
		-EFBIG, "more than allowed");
	is_int(guest_read(g, PROTO_FILE_GET, "/proc/1/cmdline", 1 << 20, DEADLINE, -1, &text, &len,
		       &err),
		0, "a file that says no size (%s)", err.text);
	ok(len > 0, "has what it has");
	free(text);
	is_int(guest_read(g, PROTO_FILE_LIST, dir, 1 << 20, DEADLINE, -1, &text, &len, &err), 0,
		"a directory (%s)", err.text);
	ok(len >= 2 * PROTO_DIRENT_HEAD && memmem(text, len, "d", 1),
		"a directory is read as its entries");
	free(text);
	is_int(guest_read(g, PROTO_FILE_GET, "/no/such", 10, DEADLINE, -1, &text, &len, &err),
		-ENOENT, "no such file");
	is_int(guest_put_file(g, in, "/proc/self/x", 0600, NULL, DEADLINE, -1, &err) < 0, 1,
		"a place that cannot be written");
	memset(buf, 'x', 5000);
	buf[0] = '/';
	buf[5000] = '\0';
	is_int(guest_put_file(g, in, (char *)buf, 0600, NULL, DEADLINE, -1, &err), -EINVAL,
		"a path too long");

	if (pipe2(pipes, O_CLOEXEC) < 0)
		peer_die("pipe");
	count[0] = pipes[0];
	pthread_create(&t, NULL, sip, count);
	is_int(guest_get_file(g, path, pipes[1], UINT64_MAX, DEADLINE, -1, &err), 0, "into a pipe");
	close(pipes[1]);
	pthread_join(t, NULL);
	is_int(count[1], 50 * 65536, "a file is read into a pipe with a slow reader");
	close(pipes[0]);
	signal(SIGPIPE, SIG_IGN);
	if (pipe2(pipes, O_CLOEXEC) < 0)
		peer_die("pipe");
	close(pipes[0]);
	is_int(guest_get_file(g, path, pipes[1], UINT64_MAX, DEADLINE, -1, &err), -EPIPE,
		"into a pipe that nobody reads");
	close(pipes[1]);
	/* a file here that shrinks while it is sent: cut as soon as the reader has begun */
	if (ftruncate(in, 4L << 30) < 0)
		peer_die("ftruncate");
	lseek(in, 0, SEEK_SET);
	pthread_create(&t, NULL, cut_begun, &in);
	is_int(guest_put_file(g, in, path, 0640, NULL, DEADLINE, -1, &err), -EIO,
		"a file that shrinks");
	pthread_join(t, NULL);
	has_str(err.text, "became shorter while it was read",
		"a file that shrinks while it is read is told so");
	ok(stat(path, &st) == 0 && st.st_size == 50 * 65536,
		"the target of a write that failed is left as it was");
	close(in);
	close(out);
}

/* ---- many at once ----------------------------------------------------------------------- */

struct one {
	size_t bytes;
	int error;
	unsigned *left;
	bool *all;
};

static size_t one_data(void *user, enum proto_channel c, const uint8_t *bytes, size_t len)
{
	(void)c;
	(void)bytes;
	((struct one *)user)->bytes += len;
	return len;
}

static void one_done(void *user, const struct guest_reply *reply)
{
	struct one *o = user;

	o->error = reply->error;
	*o->all = --*o->left == 0;
}

static void test_many(void)
{
	static const struct guest_stream_ops ops = {.data = one_data, .done = one_done};
	struct one ones[24] = {0};
	unsigned left = 24, good = 0;
	bool all = false;
	struct err err = {""};
	uint8_t buf[256];

	for (unsigned i = 0; i < 24; i++) {
		struct proto_out o = {.buf = buf, .max = sizeof(buf)};

		ones[i] = (struct one){.left = &left, .all = &all, .error = -1};
		proto_put_str(&o, PROTO_T_SHELL, "head -c 1000000 /dev/zero");
		guest_request(g, PROTO_EXEC, o.buf, o.len, &ops, &ones[i]);
	}
	is_int(guest_wait(g, &all, DEADLINE, -1, &err), 0, "24 commands at once (%s)", err.text);
	for (unsigned i = 0; i < 24; i++)
		good += ones[i].bytes == 1000000 && ones[i].error == 0;
	is_int(good, 24, "each with all its output");
}

static void test_code(void)
{
	struct guest_exec_spec spec = {.timeout_ms = PEER_DEADLINE_MS, .stdin_fd = -1};
	struct guest_result r;
	struct err err = {""};

	if (guest_code(g, NULL, "x = 6\nprint(x * 7)\nx", &spec, DEADLINE, -1, &r, &err) < 0) {
		printf("# %s\n", err.text);
		tap_skip("no IPython here");
		return;
	}
	is_str(r.out, "42\n", "code prints");
	has_str(r.results, "\"6\"", "results come apart from what code prints");
	ok(!r.ename, "code that does not raise has no exception");
	guest_result_free(&r);
	guest_code(g, NULL, "x + 1/0", &spec, DEADLINE, -1, &r, &err);
	is_str(r.ename, "ZeroDivisionError", "an exception is told");
	has_str(r.traceback, "ZeroDivisionError", "an exception has its traceback");
	guest_result_free(&r);
	is_int(guest_code(g, NULL, "import os; os._exit(3)", &spec, DEADLINE, -1, &r, &err), 0,
		"an interpreter that dies (%s)", err.text);
	ok(r.context_gone, "the end of an interpreter is no silent success");
	has_str(r.traceback, "exited with code 3", "a dead interpreter's error says how it ended");
	guest_result_free(&r);
}

static void test_death(pid_t pid)
{
	struct guest_result r;
	struct err err = {""};

	kill(pid, SIGKILL);
	is_int(guest_exec(g, &(struct guest_exec_spec){.shell = "true", .stdin_fd = -1}, DEADLINE,
		       -1, &r, &err),
		-ECONNRESET, "an agent that dies is noticed");
	waitpid(pid, NULL, 0);
}

int main(void)
{
	char line[200];
	pid_t pid;

	g = peer_real(&pid);
	if (!g) {
		tap_skip("the agent has not been built");
		return tap_done();
	}
	if (!mkdtemp(dir))
		peer_die("mkdtemp");
	test_info();
	test_exec();
	test_stdin();
	test_output();
	test_files();
	test_many();
	test_code();
	test_death(pid);
	guest_free(g);
	snprintf(line, sizeof(line), "rm -rf %s", dir);
	return system(line) == 0 ? tap_done() : 1;
}
