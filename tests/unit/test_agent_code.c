/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's view of its machine, and contexts: the warm interpreters, alive and dying. */
#include <dirent.h>

#include "tests/unit/agent_cells.h"

static void test_machine(void)
{
	struct seen *s;

	begin();
	s = call(PROTO_INFO);
	ok(!memcmp(text(s, PROTO_T_NONCE, 0), "", 0) && field(s, PROTO_T_MEM_TOTAL) > 0, "INFO");
	is_int(field(s, PROTO_T_COUNTER), (int64_t)hello.counter, "has the counter");
	is_int(field(s, PROTO_T_STREAMS), 0, "no other stream is open");
	begin();
	s = call(PROTO_FREEZE);
	is_int(field(s, PROTO_T_ERROR), EPERM, "a host is not frozen");
	proto_put_u64(begin(), PROTO_T_REALTIME_NS, 1);
	s = call(PROTO_CLOCK);
	is_int(field(s, PROTO_T_ERROR), EPERM,
		"an agent that is an ordinary process does not set the host's clock");
	proto_put_str(begin(), PROTO_T_MACHINE_ID, "UPPER");
	s = call(PROTO_IDENTITY);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "a machine id that is none");
	begin();
	s = call(PROTO_QUIESCE);
	is_int(field(s, PROTO_T_ERROR), -1, "QUIESCE");
}

static void test_contexts(void)
{
	char first[64], mark[32];
	struct seen *s;
	uint8_t entropy[64];

	s = code("x = 6 * 7\nprint('hi', x)\nx", 0);
	is_str(out(s, PROTO_OUT), "hi 42\n", "CODE: stdout");
	has_str(out(s, PROTO_RESULT), "\"text/plain\": \"42\"",
		"a cell's value comes as its result");
	is_int(field(s, PROTO_T_EXECUTION), 1, "a cell's execution count comes");
	s = code("import os, sys\nos.system('echo sub')\nprint('e', file=sys.stderr)\nx + 1", 0);
	is_str(out(s, PROTO_OUT), "sub\n", "what a child process prints is its output");
	is_str(out(s, PROTO_ERR), "e\n", "stderr, apart");
	has_str(out(s, PROTO_RESULT), "\"43\"", "variables stay");
	s = code("1 / 0", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "ZeroDivisionError", "an exception's class");
	is_str(text(s, PROTO_T_EVALUE, 0), "division by zero", "an exception's text comes");
	has_str(text(s, PROTO_T_TRACEBACK, 0), "1 / 0", "an exception's traceback comes");
	ok(!strchr(text(s, PROTO_T_TRACEBACK, 0), '\033'), "in plain text");
	s = code("def f(:", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "SyntaxError", "a syntax error");
	s = code("import sys; sys.exit(3)", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "SystemExit", "sys.exit() is an exception");
	s = code("input('? ')", 0);
	has_str(text(s, PROTO_T_EVALUE, 0), "input()", "input() says that it is not possible");
	s = code("import time\nwhile True: time.sleep(0.01)", 300);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a timeout");
	is_str(text(s, PROTO_T_ENAME, 0), "KeyboardInterrupt", "interrupts the code");
	s = code(marked("import subprocess; subprocess.Popen(['sleep', '%m']); print(x)", 6, mark),
		0);
	is_str(out(s, PROTO_OUT), "42\n", "variables survive an interrupt");
	s = code("from IPython.display import display, HTML\ndisplay(HTML('<b>'))", 0);
	has_str(out(s, PROTO_RESULT), "text/html", "display() gives a bundle");
	s = code("print('a' * 100000)", 0);
	is_int(s->total[PROTO_OUT], 100001, "long output is whole");
	s = code("!echo bang", 0);
	is_str(out(s, PROTO_OUT), "bang\n", "a shell escape");
	s = code("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", 0);
	is_str(out(s, PROTO_OUT), "awaited\n", "await at the top");
	s = code("%%bash\necho from bash >&2", 0);
	is_str(out(s, PROTO_ERR), "from bash\n", "a cell of another language");
	s = code("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('who')", 0);
	has_str(out(s, PROTO_OUT), "who\n", "a cell that forks");
	s = code("import os\nif os.fork() == 0: os.close(3); os.write(4, b'x' * 10)", 0);
	s = code("print('in step')", 0);
	is_str(out(s, PROTO_OUT), "in step\n",
		"a cell after one that forked and wrote to the bridge is answered once");
	s = code("import random, uuid; print(random.random())", 0);
	snprintf(first, sizeof(first), "%.60s", out(s, PROTO_OUT));
	code("random.seed(1); a = random.getstate()", 0);
	if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
		bail("no random numbers");
	proto_put(begin(), PROTO_T_ENTROPY, entropy, sizeof(entropy));
	s = call(PROTO_IDENTITY);
	is_int(field(s, PROTO_T_ERROR), -1, "IDENTITY with a context");
	s = code("print(random.getstate() != a)", 0);
	is_str(out(s, PROTO_OUT), "True\n", "reseeds its generators");
	code("a = random.getstate()", 0);
	proto_put_str(begin(), PROTO_T_HOSTNAME, "spare-1");
	s = call(PROTO_IDENTITY);
	is_int(field(s, PROTO_T_ERROR), -1, "IDENTITY with nothing but a name");
	s = code("print(random.getstate() == a)", 0);
	is_str(out(s, PROTO_OUT), "True\n", "leaves them");

	code("before = (get_ipython().execution_count, len(In), list(Out)); 'kept'", 0);
	proto_put_str(begin(), PROTO_T_ACTION, "exercise");
	s = call(PROTO_CONTEXT);
	is_int(field(s, PROTO_T_ERROR), -1, "exercising leaves variables alone");
	s = code("print(_, get_ipython().execution_count - before[0], len(In) - before[1], "
		 "'kept' in _i, len(_ii), sorted(Out)[-1] - before[0])",
		0);
	snprintf(first, sizeof(first), "%.60s", out(s, PROTO_OUT));
	is_str(first, "kept 1 1 True 29 0\n", "leaves no trace: one cell more than before");

	s = code("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
		 "while True: time.sleep(1)",
		300);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "code that ignores the interrupt");
	is_int(field(s, PROTO_T_CONTEXT_GONE), 1, "costs the interpreter");
	is_int(field(s, PROTO_T_ERROR), ETIMEDOUT, "a cell whose interpreter was lost is an error");
	ok(all_gone(mark, 0), "children of earlier cells end with their interpreter");
	s = code("print('anew')", 0);
	is_str(out(s, PROTO_OUT), "anew\n", "who was told of it goes on with a fresh one");
	proto_put_str(begin(), PROTO_T_CODE,
		"import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
		"print('deaf')\nwhile True: time.sleep(1)");
	s = request(PROTO_CODE);
	while (s->total[PROTO_OUT] == 0 && !s->replied) {
		begin();
		call(PROTO_INFO);
	}
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	is_int(field(finish(s), PROTO_T_CONTEXT_GONE), 1,
		"a cell that is canceled and does not stop costs the interpreter");
	s = code("x", 0);
	is_int(field(s, PROTO_T_CONTEXT_GONE), 1,
		"the next code is told: who canceled may have gone");
	s = code("x", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "NameError", "the next code has a fresh one");
	s = code("print('last', flush=True)\nimport os; os._exit(3)", 0);
	is_int(field(s, PROTO_T_CONTEXT_GONE), 1, "an interpreter that ends itself is gone");
	has_str(error_text(s), "code 3", "the error says how an interpreter ended itself");
	is_str(out(s, PROTO_OUT), "last\n",
		"an interpreter that ended itself has its last words told");
	s = code("import os; print(os.getpid())", 0);
	ok(kill(atoi(out(s, PROTO_OUT)), SIGSEGV) == 0, "an interpreter that dies between cells");
	do {
		begin();
		s = call(PROTO_INFO);
	} while (field(s, PROTO_T_CONTEXTS) > 0);
	s = code("print('not run')", 0);
	is_int(field(s, PROTO_T_CONTEXT_GONE), 1, "the next cell tells that its context is gone");
	is_int(s->total[PROTO_OUT], 0, "which is not run");
	has_str(error_text(s), "signal 11",
		"the cell after a dead interpreter's is told how that ended");
	s = code("print('run')", 0);
	is_str(out(s, PROTO_OUT), "run\n", "the one after is");
	proto_put_str(begin(), PROTO_T_ACTION, "stop");
	s = call(PROTO_CONTEXT);
	is_int(field(s, PROTO_T_ERROR), -1, "a context is stopped");
	begin();
	s = call(PROTO_INFO);
	is_int(field(s, PROTO_T_CONTEXTS), 0, "no context is left when all were stopped");
}

static int64_t contexts_alive(void)
{
	begin();
	return field(call(PROTO_INFO), PROTO_T_CONTEXTS);
}

static struct seen *ask_context(const char *action, const char *name, const char *cwd)
{
	proto_put_str(begin(), PROTO_T_ACTION, action);
	proto_put_str(&body, PROTO_T_CONTEXT, name);
	if (cwd)
		proto_put_str(&body, PROTO_T_CWD, cwd);
	return request(PROTO_CONTEXT);
}

/* Cgroups that it has made and not removed yet. */
static unsigned cgroups_left(void)
{
	DIR *dir = cgroup_dir[0] ? opendir(cgroup_dir) : NULL;
	struct dirent *e;
	unsigned n = 0;

	while (dir && (e = readdir(dir)))
		n += e->d_type == DT_DIR && e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

/* A start that is canceled leaves nothing; a restart that fails answers who waits for it. */
static void test_starts(void)
{
	char dir[] = "/tmp/parbake-cwd-XXXXXX";
	int64_t until = now_ms() + WAIT_MS;
	struct seen *s, *restart, *waits;

	s = ask_context("start", "late", NULL);
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	is_int(field(finish(s), PROTO_T_ERROR), ECANCELED, "a start is canceled");
	while (contexts_alive() > 0 && now_ms() < until)
		continue;
	is_int(contexts_alive(), 0, "a context whose start is canceled goes");

	if (!mkdtemp(dir))
		bail("mkdtemp");
	s = finish(ask_context("start", "moved", dir));
	is_int(field(s, PROTO_T_ERROR), -1, "a context in a directory");
	proto_put_str(begin(), PROTO_T_CODE,
		"import os\nos.rmdir(os.getcwd())\nwhile True: print('y' * 1000)");
	proto_put_str(&body, PROTO_T_CONTEXT, "moved");
	s = request(PROTO_CODE);
	s->greedy = 1;
	while (s->total[PROTO_OUT] < PROTO_WINDOW && now_ms() < until)
		contexts_alive();
	restart = ask_context("restart", "moved", NULL);
	while (contexts_alive() > 0 && now_ms() < until)
		continue;
	proto_put_str(begin(), PROTO_T_CODE, "1");
	proto_put_str(&body, PROTO_T_CONTEXT, "moved");
	waits = request(PROTO_CODE);
	is_int(field(finish(s), PROTO_T_CONTEXT_GONE), 1,
		"a context's cell ends when the context is restarted");
	ok(field(finish(restart), PROTO_T_ERROR) > 0, "which fails: the directory is gone");
	finish(waits);
	has_str(error_text(waits), "did not start", "a cell that came meanwhile is told");
	is_int(contexts_alive(), 0, "nothing is left of a restarted context");
	while (cgroups_left() && now_ms() < until) /* who is killed is not gone at once */
		contexts_alive();
}

static void tests(void)
{
	if (!do_sync(PROTO_VERSION, PROTO_VERSION))
		bail("no HELLO");
	test_machine();
	if (system("python3 -c 'import IPython' 2>/dev/null") != 0)
		tap_skip("contexts: python3 has no IPython");
	else if (ok(context_start(), "a context starts")) {
		test_contexts();
		test_starts();
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	agent_find(argv[0]);
	find_cgroup(); /* as in a machine, where there is one */
	agent_session(tests);
	if (cgroup_dir[0])
		ok(rmdir(cgroup_dir) == 0, "every cgroup it made is gone");
	return tap_done();
}
