/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are kept: they outlive their connection, are found again, and what they leave behind lives on. */
#include "tests/unit/agent_client.h"

/* A kept shell line with input, under @tag where it is not NULL; its beginning has been told. */
static struct seen *keep(const char *line, const char *tag)
{
	struct seen *s;

	proto_put_str(begin(), PROTO_T_SHELL, line);
	proto_put_bool(&body, PROTO_T_KEEP, 1);
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	if (tag)
		proto_put_str(&body, PROTO_T_TAG, tag);
	s = request(PROTO_EXEC);
	while (s->total[PROTO_RESULT] < PROTO_STARTED_LEN && !s->replied && read_some(WAIT_MS))
		continue;
	return s;
}

static struct proto_started started(const struct seen *s)
{
	struct proto_started st = {0};

	if (s->total[PROTO_RESULT] >= sizeof(st))
		memcpy(&st, s->out[PROTO_RESULT], sizeof(st));
	return st;
}

static struct seen *attach(uint32_t pid, const char *tag)
{
	begin();
	if (tag)
		proto_put_str(&body, PROTO_T_TAG, tag);
	else
		proto_put_u32(&body, PROTO_T_PID, pid);
	return request(PROTO_ATTACH);
}

static void type(struct seen *s, const char *text)
{
	send_frame(PROTO_DATA, PROTO_IN, s->id, text, (uint32_t)strlen(text));
}

/* Until @text has come on standard output. */
static int comes(struct seen *s, const char *text)
{
	while (!strstr(out(s, PROTO_OUT), text) && !s->replied && read_some(WAIT_MS))
		continue;
	return strstr(out(s, PROTO_OUT), text) != NULL;
}

static struct seen *call_processes(void)
{
	begin();
	return call(PROTO_PROCESSES);
}

static void resync(void)
{
	if (!do_sync(PROTO_VERSION, PROTO_VERSION))
		bail("no HELLO");
}

static void test_found_again(void)
{
	static const char line[] = "n=0; while read x; do n=$((n+1)); echo $n:$x; done; exit 7";
	struct seen *s = keep(line, "counter");
	uint32_t pid = started(s).pid;

	ok(pid > 1 && kill((pid_t)pid, 0) == 0, "a kept command tells the number of its process");
	is_int(started(s).flags, PROTO_STARTED_STDIN, "a kept command is told to have input");
	ok(started(s).tag_len == 7 &&
			!memcmp(s->out[PROTO_RESULT] + PROTO_STARTED_LEN, "counter", 7),
		"a kept command is told with its tag");
	type(s, "a\n");
	ok(comes(s, "1:a\n"), "a kept command is followed");
	s = keep("true", "counter");
	is_int(field(finish(s), PROTO_T_ERROR), EEXIST, "a second one of its tag is refused");
	resync();
	s = attach(pid, NULL);
	type(s, "b\n");
	ok(comes(s, "2:b\n"),
		"after another connection it has gone on, with its state and its input");
	is_int(started(s).pid, pid, "a follower is told the command's number again");
	is_int(field(finish(attach(pid, NULL)), PROTO_T_ERROR), EBUSY, "two cannot follow it");
	s = call_processes();
	is_int(field(s, PROTO_T_PID), pid, "a kept command is among those that run");
	is_str(text(s, PROTO_T_TAG, 0), "counter", "a listed command has its tag");
	is_str(text(s, PROTO_T_ARG, 0), line, "a listed command has its words");
	resync();
	s = attach(0, "counter");
	type(s, "c\n");
	ok(comes(s, "3:c\n"), "a command's tag finds it");
	send_frame(PROTO_EOF, PROTO_IN, s->id, NULL, 0);
	is_int(field(finish(s), PROTO_T_EXIT_CODE), 7, "a command's end is told to its follower");
	is_int(field(finish(attach(pid, NULL)), PROTO_T_ERROR), ESRCH,
		"a command that ended is gone");
	is_int(field(call_processes(), PROTO_T_PID), -1, "from the list, too");
}

static void test_unfollowed(void)
{
	struct seen *s = keep("read x; head -c 3000000 /dev/zero; echo said; exit 5", NULL);
	uint32_t pid = started(s).pid;

	type(s, "go\n");
	resync();
	/* nobody reads, and it ends all the same */
	for (int64_t until = now_ms() + WAIT_MS; kill((pid_t)pid, 0) == 0 && now_ms() < until;)
		read_some(20);
	s = finish(attach(pid, NULL));
	is_int(field(s, PROTO_T_EXIT_CODE), 5,
		"how a command ended that nobody followed is remembered");
	is_int(started(s).pid, pid, "under its number");
	s = keep("trap '' TERM; echo ready; read x", NULL);
	comes(s, "ready");
	pid = started(s).pid;
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	is_int(field(finish(s), PROTO_T_EXIT_SIGNAL), SIGKILL, "CANCEL kills it");
	is_int(field(finish(attach(pid, NULL)), PROTO_T_ERROR), ESRCH, "for good");
	proto_put_str(begin(), PROTO_T_SHELL, "sleep 600");
	proto_put_bool(&body, PROTO_T_KEEP, 1);
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, 300);
	s = request(PROTO_EXEC);
	while (s->total[PROTO_RESULT] < PROTO_STARTED_LEN && read_some(WAIT_MS))
		continue;
	pid = started(s).pid;
	resync();
	for (int64_t until = now_ms() + WAIT_MS; kill((pid_t)pid, 0) == 0 && now_ms() < until;)
		read_some(20);
	s = finish(attach(pid, NULL));
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a command's time limit holds without a follower");
}

static void test_left_behind(void)
{
	char mark[32];
	struct seen *s = keep(
		marked("(echo early; sleep %m; echo late) & echo main; exit 3", 1, mark), NULL);

	finish(s);
	is_int(field(s, PROTO_T_EXIT_CODE), 3, "a command ends though another holds its output");
	ok(strstr(out(s, PROTO_OUT), "main\n") != NULL, "what it wrote is whole");
	ok(s->eof[PROTO_OUT] && s->eof[PROTO_ERR], "both outputs of a kept command have ended");
	ok(processes_of(mark, 0) > 0, "what it left behind lives on");
	resync();
	ok(processes_of(mark, 0) > 0, "through a new connection");
	ok(all_gone(mark, SIGKILL), "until it ends");
	s = keep(marked("sleep %m & wait", 2, mark), NULL);
	send_frame(PROTO_SIGNAL, 0, s->id, &(uint32_t){SIGKILL}, 4);
	finish(s);
	ok(all_gone(mark, 0), "SIGKILL takes all of its tree");
}

static void test_terminal(void)
{
	const uint16_t size[2] = {24, 80};
	struct seen *s;
	uint32_t pid;

	proto_put_str(begin(), PROTO_T_SHELL, "while read x; do echo got:$x; done");
	proto_put_bool(&body, PROTO_T_KEEP, 1);
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	proto_put(&body, PROTO_T_PTY, size, sizeof(size));
	s = request(PROTO_EXEC);
	type(s, "one\n");
	ok(comes(s, "got:one"), "a terminal");
	is_int(started(s).flags, PROTO_STARTED_PTY | PROTO_STARTED_STDIN,
		"a command in a terminal is told as one");
	pid = started(s).pid;
	resync();
	s = attach(pid, NULL);
	type(s, "two\n");
	ok(comes(s, "got:two"), "goes on as well");
	send_frame(PROTO_EOF, PROTO_IN, s->id, NULL, 0);
	is_int(field(finish(s), PROTO_T_EXIT_CODE), 0, "to its end");
}

/* Input that waits for its reader is not lost, and no credit comes for it on a stream that did not send it. */
static void test_waiting_input(void)
{
	static char block[PROTO_DATA_MAX];
	struct seen *s =
		keep("trap 'exec wc -c' USR1; echo ready; while :; do sleep 0.1; done", NULL);
	uint32_t pid = started(s).pid;

	comes(s, "ready");
	memset(block, 'x', sizeof(block));
	for (int i = 0; i < 4; i++) /* a window: more than the pipe holds */
		send_frame(PROTO_DATA, PROTO_IN, s->id, block, sizeof(block));
	resync();
	s = attach(pid, NULL);
	for (int i = 0; i < 4; i++)
		send_frame(PROTO_DATA, PROTO_IN, s->id, block, sizeof(block));
	send_frame(PROTO_EOF, PROTO_IN, s->id, NULL, 0);
	send_frame(PROTO_SIGNAL, 0, s->id, &(uint32_t){SIGUSR1}, 4);
	finish(s);
	is_int(atoi(out(s, PROTO_OUT)), 8 * (int)sizeof(block),
		"two windows of input arrive, each byte once");
}

static void tests(void)
{
	resync();
	test_found_again();
	test_unfollowed();
	test_left_behind();
	test_terminal();
	test_waiting_input();
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
