/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's connection and its execs: synchronising, breaches, credit, trees. Where this host has
 * a cgroup v2 mount that may be written, all of it runs with cgroups too, as in a machine.
 */
#include "tests/unit/agent_client.h"

static void test_sync(void)
{
	static const uint8_t garbage[] = "PBK1 garbage PBK";
	uint64_t before;
	uint8_t boot[PROTO_NONCE_LEN];

	send_raw(garbage, sizeof(garbage));
	ok(do_sync(PROTO_VERSION, PROTO_VERSION), "HELLO comes, after garbage");
	is_int(hello.version, PROTO_VERSION, "the version is ours");
	is_int(hello.counter, 1, "the counter begins");
	ok(hello.uptime_ns > 0 && hello.realtime_ns > 0, "HELLO has the times");
	memcpy(boot, hello.boot, sizeof(boot));
	before = hello.counter;
	ok(do_sync(0, 7), "SYNC again");
	is_int(hello.counter, before + 1, "the counter goes on");
	ok(!memcmp(boot, hello.boot, sizeof(boot)), "the boot nonce stays");
	ok(do_sync(77, 78), "no version in common is answered");
	is_int(hello.version, 0, "a HELLO without a version in common has version 0");
	send_frame(PROTO_PING, 0, 0, "x", 1);
	ok(do_sync(PROTO_VERSION, PROTO_VERSION),
		"an agent without a version in common stays unsynchronised until the next SYNC");
	is_int(pongs, 0, "the PING between was dropped");
	send_frame(PROTO_PING, 0, 0, "0123456789", 10);
	ok(wait_for(&pongs, WAIT_MS), "PING is answered with PONG");
	ok(last_pong_len == 10 && !memcmp(last_pong, "0123456789", 10),
		"PONG has the bytes of its PING");
}

/* After a breach: FAULT, deaf, and well again with SYNC. */
static void breach(const char *what, unsigned type, unsigned flags, uint32_t id, const void *bytes,
	uint32_t len, const char *says)
{
	faults = 0;
	send_frame(type, flags, id, bytes, len);
	ok(wait_for(&faults, WAIT_MS), "%s: FAULT", what);
	has_str(last_fault, says, "%s: it says why", what);
	pongs = 0;
	send_frame(PROTO_PING, 0, 0, NULL, 0);
	ok(do_sync(PROTO_VERSION, PROTO_VERSION) && pongs == 0, "%s: unsynchronised until SYNC",
		what);
}

static void test_breaches(void)
{
	static uint8_t big[PROTO_DATA_MAX + 1];
	static const uint8_t past[] = {1, 0, 0, 0, 255, 0, 0, 0};
	static const uint8_t shape[] = {PROTO_T_TIMEOUT_MS, 0, 0, 0, 1, 0, 0, 0, 5};
	uint32_t too_much[2] = {PROTO_OUT, 1};
	struct seen *s;

	breach("unknown type", 9, 0, 0, NULL, 0, "unknown type");
	breach("flags", PROTO_PING, 1, 0, NULL, 0, "flags");
	breach("request on stream 0", PROTO_EXEC, 0, 0, NULL, 0, "wrong stream");
	breach("request on an even stream", PROTO_EXEC, 0, 2, NULL, 0, "not the host's");
	breach("long PING", PROTO_PING, 0, 0, big, 65, "PING");
	breach("field past the end", PROTO_EXEC, 0, 9001, past, sizeof(past), "past the end");
	breach("field of a wrong shape", PROTO_EXEC, 0, 9001, shape, sizeof(shape), "wrong shape");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	s = request(PROTO_EXEC);
	breach("long DATA", PROTO_DATA, 0, s->id, big, sizeof(big), "DATA of");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	s = request(PROTO_EXEC);
	breach("credit beyond the window", PROTO_CREDIT, 0, s->id, too_much, 8, "window");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	s = request(PROTO_EXEC);
	breach("a stream opened twice", PROTO_EXEC, 0, s->id, NULL, 0, "is open");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (unsigned i = 0; i < 5; i++) /* the pipe takes 64 KiB, the window is 256 */
		send_frame(PROTO_DATA, 0, s->id, big, PROTO_DATA_MAX);
	breach("DATA beyond the credit", PROTO_DATA, 0, s->id, big, PROTO_DATA_MAX, "credit");
	send_frame(PROTO_DATA, 3, 12345, big, 100);
	send_frame(PROTO_EOF, 0, 12345, NULL, 0);
	send_frame(PROTO_CANCEL, 0, 12345, NULL, 0);
	s = shell("echo well");
	is_str(out(s, PROTO_OUT), "well\n", "late frames of a closed stream are ignored");
	begin();
	s = call(63);
	is_int(field(s, PROTO_T_ERROR), ENOSYS, "an unknown request is answered");
}

static void test_exec(void)
{
	struct seen *s = shell("printf out; printf err >&2; exit 7");

	is_int(field(s, PROTO_T_EXIT_CODE), 7, "exit code");
	is_str(out(s, PROTO_OUT), "out", "a command's standard output comes");
	is_str(out(s, PROTO_ERR), "err", "stderr, apart");
	ok(s->eof[PROTO_OUT] && s->eof[PROTO_ERR], "both channels of a command have ended");
	is_int(field(s, PROTO_T_TOTAL_OUT), 3, "total of stdout");
	is_int(field(s, PROTO_T_TIMED_OUT), 0, "not timed out");
	s = shell("kill -TERM $$");
	is_int(field(s, PROTO_T_EXIT_SIGNAL), SIGTERM, "ended by a signal");
	is_int(field(s, PROTO_T_EXIT_CODE), -1, "a command that a signal ended has no exit code");
	s = shell("exit 127");
	is_int(field(s, PROTO_T_EXIT_CODE), 127, "127 is an exit code as any other");

	proto_put_str(begin(), PROTO_T_ARG, "parbake-no-such-program");
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), ENOENT, "a program that is not there is an error");
	has_str(error_text(s), "parbake-no-such-program", "which names it");
	proto_put_str(begin(), PROTO_T_ARG, "/etc/passwd");
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), EACCES, "a file that may not be executed is an error");
	proto_put_str(begin(), PROTO_T_ARG, "true");
	proto_put_str(&body, PROTO_T_CWD, "/no/such/place");
	s = call(PROTO_EXEC);
	has_str(error_text(s), "/no/such/place", "a directory that is not there");
	begin();
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "no program at all");

	proto_put_str(begin(), PROTO_T_ARG, "printf");
	proto_put_str(&body, PROTO_T_ARG, "%s|");
	proto_put_str(&body, PROTO_T_ARG, "a b");
	proto_put_str(&body, PROTO_T_ARG, "");
	proto_put_str(&body, PROTO_T_ARG, "$HOME");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "a b||$HOME|", "arguments are passed as they are");

	proto_put_str(begin(), PROTO_T_SHELL, "echo $A:$LANG:$HOME; pwd");
	proto_put_str(&body, PROTO_T_ENV, "A=1");
	proto_put_str(&body, PROTO_T_ENV, "LANG=xx");
	proto_put_str(&body, PROTO_T_CWD, "/usr");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "1:xx:/root\n/usr\n", "environment and directory");
	s = shell("ls /proc/self/fd | wc -l; cat /proc/self/status | grep -E 'SigBlk|SigIgn'");
	is_str(out(s, PROTO_OUT), "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n",
		"no descriptor and no signal mask leaks into it");
}

static void test_stdin(void)
{
	static uint8_t block[PROTO_DATA_MAX];
	struct seen *s;

	proto_put_str(begin(), PROTO_T_SHELL, "wc -c");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "0\n", "a command without stdin reads an empty one");
	proto_put_str(begin(), PROTO_T_SHELL, "wc -c");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (unsigned i = 0; i < 4; i++)
		send_frame(PROTO_DATA, 0, s->id, block, sizeof(block));
	send_frame(PROTO_EOF, 0, s->id, NULL, 0);
	finish(s);
	is_str(out(s, PROTO_OUT), "262144\n", "a whole window of stdin, then its end");
	proto_put_str(begin(), PROTO_T_SHELL, "exec <&-; echo closed");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (unsigned i = 0; i < 4; i++)
		send_frame(PROTO_DATA, 0, s->id, block, sizeof(block));
	finish(s);
	is_str(out(s, PROTO_OUT), "closed\n", "stdin that nobody reads holds nothing up");
	proto_put_str(begin(), PROTO_T_SHELL,
		"trap 'echo got; exit 3' USR1; echo up; "
		"while :; do sleep 0.05; done");
	s = request(PROTO_EXEC);
	while (!s->total[PROTO_OUT] && !s->replied) {
		int never = 0;

		wait_for(&never, 20);
	}
	{
		uint32_t sig = SIGUSR1;

		send_frame(PROTO_SIGNAL, 0, s->id, &sig, 4);
	}
	finish(s);
	is_int(field(s, PROTO_T_EXIT_CODE) >= 0 || field(s, PROTO_T_EXIT_SIGNAL) == SIGUSR1, 1,
		"SIGNAL reaches it");
}

static void test_limits(void)
{
	struct seen *s;
	static const char line[] = "head -c 300000 /dev/zero; head -c 10 /dev/zero >&2";

	proto_put_str(begin(), PROTO_T_SHELL, line);
	proto_put_u64(&body, PROTO_T_LIMIT_OUT, 1000);
	proto_put_u64(&body, PROTO_T_LIMIT_ERR, 10);
	s = call(PROTO_EXEC);
	is_int(s->total[PROTO_OUT], 1000, "output up to the limit is passed on");
	is_int(field(s, PROTO_T_CUT_OUT), 1, "output beyond the limit is marked as cut");
	is_int(field(s, PROTO_T_TOTAL_OUT), 300000, "the rest is counted");
	is_int(field(s, PROTO_T_CUT_ERR), 0, "exactly the limit is not cut");
	is_int(s->total[PROTO_ERR], 10, "output of exactly the limit is complete");
	s = shell("head -c 5000000 /dev/zero");
	is_int(s->total[PROTO_OUT], 5000000, "5 MB come whole");
	is_int(field(s, PROTO_T_TOTAL_OUT), 5000000, "bytes that were cut are counted");
}

static void test_credit(void)
{
	struct seen *s, *other;
	uint32_t credit[2] = {PROTO_OUT, PROTO_WINDOW};
	int64_t started;

	proto_put_str(begin(), PROTO_T_SHELL, "head -c 1000000 /dev/zero; echo end >&2");
	s = request(PROTO_EXEC);
	s->greedy = 1;
	other = shell("echo through");
	is_str(out(other, PROTO_OUT), "through\n", "a stream without credit holds no other up");
	while (s->total[PROTO_OUT] < PROTO_WINDOW && !s->replied) {
		int never = 0;

		wait_for(&never, 20);
	}
	is_int(s->total[PROTO_OUT], PROTO_WINDOW, "a stream sends its window and no more");
	send_frame(PROTO_CREDIT, 0, s->id, credit, sizeof(credit));
	s->greedy = 0;
	finish(s);
	is_int(s->total[PROTO_OUT], 1000000, "a stream goes on to its end when it has credit");

	proto_put_str(begin(), PROTO_T_SHELL, "exec head -c 100000000 /dev/zero");
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, 300);
	started = now_ms();
	s = request(PROTO_EXEC);
	s->greedy = 1;
	finish(s);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a timeout works without credit");
	is_int(field(s, PROTO_T_CUT_OUT), 1, "what could not be sent is marked as cut");
	ok(now_ms() - started < 10000, "a stream without credit is given up soon after a timeout");
}

/* Until a process has @mark in its arguments (it may be amidst an exec), at most 5 s. */
static int shows_up(const char *mark)
{
	int64_t until = now_ms() + 5000;
	int n;

	while ((n = processes_of(mark, 0)) == 0 && now_ms() < until) {
		int never = 0;

		wait_for(&never, 20);
	}
	return n > 0;
}

static void test_trees(void)
{
	char mark[32];
	struct seen *s;
	int64_t started = now_ms();

	proto_put_str(begin(), PROTO_T_SHELL,
		marked("(setsid sh -c 'sleep %m; :' &) ; setsid sleep %m & sleep %m", 1, mark));
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, 500);
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a timeout");
	is_int(field(s, PROTO_T_EXIT_SIGNAL), SIGKILL, "kills the main process");
	ok(now_ms() - started < 5000, "in time, though others held the pipes");
	ok(all_gone(mark, 0), "grandchildren in sessions of their own are dead too");

	started = now_ms();
	s = shell(marked("sleep %m & echo here", 2, mark));
	is_str(out(s, PROTO_OUT), "here\n", "a background child does not hold an exec");
	is_int(field(s, PROTO_T_EXIT_CODE), 0, "which has its exit code");
	ok(now_ms() - started < 10000, "a command with a timeout ends at once");
	ok(all_gone(mark, 0), "what it left behind is killed");

	proto_put_str(begin(), PROTO_T_SHELL, marked("setsid sleep %m & exec sleep %m", 3, mark));
	s = request(PROTO_EXEC);
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	finish(s);
	is_int(s->replied, 1, "CANCEL is replied to, once");
	ok(all_gone(mark, 0), "CANCEL kills the command's tree");

	proto_put_str(begin(), PROTO_T_SHELL, marked("setsid sleep %m & exec sleep %m", 4, mark));
	request(PROTO_EXEC);
	ok(do_sync(PROTO_VERSION, PROTO_VERSION), "SYNC while something runs");
	ok(all_gone(mark, 0), "kills it");

	proto_put_str(begin(), PROTO_T_SHELL, marked("exec sleep %m", 5, mark));
	proto_put_bool(&body, PROTO_T_DETACH, 1);
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), -1, "a detached one is started");
	ok(do_sync(PROTO_VERSION, PROTO_VERSION), "a new SYNC comes");
	ok(shows_up(mark), "a detached command lives on after a SYNC");
	begin();
	s = call(PROTO_QUIESCE);
	is_int(field(s, PROTO_T_ERROR), -1, "QUIESCE has nothing against it");
	ok(all_gone(mark, SIGKILL), "until it is ended");
	begin();
	s = call(PROTO_QUIESCE);
	is_int(field(s, PROTO_T_ERROR), ECHILD, "which QUIESCE tells");
}

/* What the kernel takes of arguments and variables is told, with what is too much. */
static void test_too_long(void)
{
	static char text[200000];
	struct seen *s;

	memset(text, 'x', 131072);
	text[131072] = '\0';
	proto_put_str(begin(), PROTO_T_ARG, "true");
	proto_put_str(&body, PROTO_T_ARG, "a");
	proto_put_str(&body, PROTO_T_ARG, text);
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), E2BIG, "an argument that is too long");
	has_str(error_text(s), "argument 2 has 131072 bytes, where the kernel takes 131071",
		"the error tells an over-long argument by its number");
	text[131071] = '\0';
	proto_put_str(begin(), PROTO_T_ARG, "true");
	proto_put_str(&body, PROTO_T_ARG, text);
	is_int(field(call(PROTO_EXEC), PROTO_T_EXIT_CODE), 0, "a byte less runs");
	memcpy(text, "BIG=", 4);
	memset(text + 4, 'x', 150000);
	proto_put_str(begin(), PROTO_T_SHELL, "true");
	proto_put_str(&body, PROTO_T_ENV, text);
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), E2BIG, "a variable likewise");
	has_str(error_text(s), "the variable BIG has", "by its name");
}

static void test_parallel(void)
{
	struct seen *all[20];
	int good = 0;

	for (int i = 0; i < 20; i++) {
		char line[64];

		snprintf(line, sizeof(line), "head -c 200000 /dev/zero; exit %d", i);
		proto_put_str(begin(), PROTO_T_SHELL, line);
		all[i] = request(PROTO_EXEC);
	}
	for (int i = 0; i < 20; i++) {
		finish(all[i]);
		good += field(all[i], PROTO_T_EXIT_CODE) == i && all[i]->total[PROTO_OUT] == 200000;
	}
	is_int(good, 20, "20 streams at once, each whole and with its own exit code");
}

static void test_pty(void)
{
	uint16_t size[2] = {33, 77};
	struct seen *s;

	proto_put_str(begin(), PROTO_T_SHELL, "stty size; read x; echo got $x");
	proto_put(&body, PROTO_T_PTY, size, sizeof(size));
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	send_frame(PROTO_DATA, 0, s->id, "line\n", 5);
	finish(s);
	has_str(out(s, PROTO_OUT), "33 77", "a terminal of the size asked for");
	has_str(out(s, PROTO_OUT), "got line", "a terminal passes its input on");
	is_int(field(s, PROTO_T_EXIT_CODE), 0, "a command on a terminal has its exit code");
	for (int i = 0; i < 2; i++) {
		static const char *const typed[] = {"abc", "abc\n"};
		static const char *const shown[] = {"abcabc", "abc\r\nabc\r\n"};

		proto_put_str(begin(), PROTO_T_SHELL, "cat");
		proto_put(&body, PROTO_T_PTY, size, sizeof(size));
		proto_put_bool(&body, PROTO_T_STDIN, 1);
		s = request(PROTO_EXEC);
		send_frame(PROTO_DATA, 0, s->id, typed[i], (uint32_t)strlen(typed[i]));
		send_frame(PROTO_EOF, 0, s->id, NULL, 0);
		finish(s);
		is_str(out(s, PROTO_OUT), shown[i], "the end of its input is the end, %s",
			i ? "behind a line" : "within a line too");
		is_int(field(s, PROTO_T_EXIT_CODE), 0, "which the command sees");
	}
}

static void tests(void)
{
	test_sync();
	test_breaches();
	test_exec();
	test_stdin();
	test_limits();
	test_credit();
	test_trees();
	test_too_long();
	test_parallel();
	test_pty();
}

int main(int argc, char **argv)
{
	(void)argc;
	agent_find(argv[0]);
	agent_session(tests);
	find_cgroup();
	if (!cgroup_dir[0]) {
		tap_skip("cgroups: no cgroup v2 mount to write to");
		return tap_done();
	}
	agent_session(tests);
	ok(rmdir(cgroup_dir) == 0, "every cgroup it made is gone");
	return tap_done();
}
