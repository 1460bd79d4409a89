/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cell of the Python interpreter tells: failures wherever they happen, odd characters, the event
 * loop, displays, variables of one call, counting. Right is what a notebook or E2B's code
 * interpreter does (docs/interpreter.md).
 */
#include <pthread.h>
#include <sys/resource.h>

#include "tests/unit/agent_cells.h"

static unsigned results(const struct seen *s)
{
	const char *at = out(s, PROTO_RESULT);
	unsigned n = 0;

	for (; (at = strchr(at, '\n')); at++)
		n++;
	return n;
}

static void write_script(const char *path, const char *lines)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(lines, f) < 0 || fclose(f))
		bail(path);
}

/* ---- a cell that failed says so --------------------------------------------------------------- */

static void test_failures(void)
{
	char path[] = "/tmp/parbake-script-XXXXXX", line[128];
	int fd = mkstemp(path);
	struct seen *s;

	if (fd < 0)
		bail("mkstemp");
	close(fd);
	write_script(path, "print(1)\n1/0\nprint(2)\n");
	snprintf(line, sizeof(line), "%%run %s", path);
	s = code(line, 0);
	is_str(out(s, PROTO_OUT), "1\n", "a script under %%run prints until it fails");
	is_str(text(s, PROTO_T_ENAME, 0), "ZeroDivisionError",
		"a script's failure under %%run is the cell's");
	has_str(text(s, PROTO_T_TRACEBACK, 0), path, "a script's traceback names the script");
	snprintf(line, sizeof(line), "get_ipython().safe_execfile('%s', {})", path);
	is_str(text(code(line, 0), PROTO_T_ENAME, 0), "ZeroDivisionError",
		"a file's failure under safe_execfile() is the cell's");
	unlink(path);

	s = code("class V:\n    def __repr__(self): raise ValueError('no text for me')\nV()", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "ValueError", "a failing __repr__ is the cell's error");
	is_str(text(s, PROTO_T_EVALUE, 0), "no text for me",
		"a failing __repr__ is told with its text");
	s = code("V(); 5", 0);
	has_str(out(s, PROTO_RESULT), "\"text/plain\": \"5\"",
		"a value that is not shown fails nothing");
	is_int(field(s, PROTO_T_ENAME), -1, "a cell whose value can be shown has no error");
	s = code("class W:\n    def __repr__(self): return 'plain'\n"
		 "    def _repr_html_(self): raise ValueError('no html')\nW()",
		0);
	has_str(out(s, PROTO_RESULT), "\"plain\"", "a value without its HTML has its text");
	is_str(text(s, PROTO_T_EVALUE, 0), "no html", "a failing _repr_html_ is the cell's error");
	s = code("display(W()); print('on')", 0);
	is_str(text(s, PROTO_T_EVALUE, 0), "no html", "a failing display() is the cell's error");
	is_str(out(s, PROTO_OUT), "on\n", "the cell goes on behind a failing display()");
	s = code("def hook(): raise RuntimeError('in a hook')\n"
		 "get_ipython().events.register('post_execute', hook)",
		0);
	is_str(text(s, PROTO_T_ENAME, 0), "RuntimeError",
		"a hook that fails behind a cell (as figures are drawn) is the cell's error");
	code("get_ipython().events.unregister('post_execute', hook)", 0);
	s = code("display(W()); 1/0", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "ZeroDivisionError",
		"of two failures the cell's own is its error");
	has_str(out(s, PROTO_ERR), "no html", "the second of two failures is on stderr");
}

static void test_children(void)
{
	static const char fork_then[] =
		"import os, sys\npid = os.fork()\nif pid == 0: %s\n"
		"else: print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
	static const struct {
		const char *does, *out, *name;
	} ways[] = {
		{"sys.exit(3)", "3\n", "a child that the cell forked exits with its own status"},
		{"sys.exit('why')", "1\n", "a child that exits with a text has status 1"},
		{"1/0", "1\n", "a child that fails has status 1"},
		{"pass", "0\n", "a child that goes through has status 0"},
	};
	char line[256];
	struct seen *s;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		snprintf(line, sizeof(line), fork_then, ways[i].does);
		s = code(line, 0);
		has_str(out(s, PROTO_OUT), ways[i].out, "%s", ways[i].name);
	}
	s = code("import os\npid = os.fork()\nif pid == 0: 1/0\nos.waitpid(pid, 0); 'parent'", 0);
	has_str(out(s, PROTO_ERR), "ZeroDivisionError", "a failing child's traceback is on stderr");
	is_int(field(s, PROTO_T_ENAME), -1, "a failing child is not the cell's own error");
}

/* ---- odd characters --------------------------------------------------------------------------- */

static void test_characters(void)
{
	struct seen *s =
		code("from IPython.display import HTML, JSON; HTML('<b>\\ud800\\0</b>')", 0);

	is_int(results(s), 1, "a result with a lone surrogate and a NUL comes");
	has_str(out(s, PROTO_RESULT), "<b>\\ufffd\\ufffd</b>",
		"what cannot be told is replaced in it");
	s = code("['a\\0b', '\\udcff']", 0);
	is_int(results(s), 1, "a list of odd strings comes");
	s = code("JSON({'a\\0': ['\\udcff', float('nan')]})", 0);
	has_str(out(s, PROTO_RESULT), "{\\\"a\\\\ufffd\\\": [\\\"\\\\ufffd\\\", null]}",
		"odd characters and numbers are replaced within JSON");
	s = code("print('\\ud800 a\\0b')", 0);
	is_int(s->total[PROTO_OUT], 11, "what is printed is text, with its NUL");
	s = code("raise ValueError('\\ud800\\0')", 0);
	is_str(text(s, PROTO_T_EVALUE, 0), "\\ud800\\x00", "an error's text has them escaped");
}

/* ---- the loop --------------------------------------------------------------------------------- */

static void test_loop(void)
{
	static const char tick[] = "async def tick():\n    for i in range(500):\n"
				   "        print('tick'); await asyncio.sleep(0.01)\n";
	char line[256];
	struct seen *s = code(
		"import asyncio, time\nasync def job():\n    await asyncio.sleep(0.01); return 7\n"
		"t = asyncio.create_task(job())",
		0);

	is_int(field(s, PROTO_T_ENAME), -1, "create_task() works in a cell without await");
	s = code("await t", 0);
	has_str(out(s, PROTO_RESULT), "\"7\"", "a later cell awaits the task of an earlier one");
	s = code("asyncio.run(job())", 0);
	has_str(out(s, PROTO_RESULT), "\"7\"", "asyncio.run() works in a cell");
	s = code("await asyncio.sleep(0); asyncio.run(job())", 0);
	has_str(out(s, PROTO_RESULT), "\"7\"", "asyncio.run() works in a cell with await");
	s = code("l = asyncio.get_event_loop(); v = l.run_until_complete(job()); l.close(); v", 0);
	has_str(out(s, PROTO_RESULT), "\"7\"", "run_until_complete() works in a cell");
	s = code("asyncio.new_event_loop().run_until_complete(job())", 0);
	has_str(out(s, PROTO_RESULT), "\"7\"", "a loop of the cell's own works");
	code("done = []\nasync def late():\n    await asyncio.sleep(0.01); done.append(1)\n"
	     "t = asyncio.create_task(late())",
		0);
	s = code("until = time.monotonic() + 30\n"
		 "while not done and time.monotonic() < until: await "
		 "asyncio.sleep(0.01)\nprint(done)",
		0);
	is_str(out(s, PROTO_OUT), "[1]\n", "a task of an earlier cell makes progress");

	snprintf(line, sizeof(line), "%sawait tick()", tick);
	s = code(line, 300);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a cell is timed out at an await");
	is_int(field(s, PROTO_T_CONTEXT_GONE), -1, "the interpreter survives that");
	s = code("await asyncio.sleep(0.1); print('second')", 0);
	is_str(out(s, PROTO_OUT), "second\n",
		"the timed-out await does not print into the next cell");
	s = code("t = asyncio.create_task(tick()); await asyncio.sleep(30)", 300);
	s = code("await asyncio.sleep(0.1); print('third')", 0);
	is_str(out(s, PROTO_OUT), "third\n",
		"a task that a timed-out cell began does not print into the next cell");
	s = code("t = asyncio.create_task(tick()); time.sleep(30)", 300);
	s = code("await asyncio.sleep(0.1); print('fourth')", 0);
	is_str(out(s, PROTO_OUT), "fourth\n",
		"a task of a timed-out cell without await does not print into the next cell");
	s = code("await asyncio.sleep(0)\nwhile True: pass", 300);
	is_str(text(s, PROTO_T_ENAME, 0), "KeyboardInterrupt",
		"busy code in a cell with await is interrupted");
	proto_put_str(begin(), PROTO_T_CODE, "print('on'); await tick()");
	s = request(PROTO_CODE);
	while (s->total[PROTO_OUT] < 8 && !s->replied) {
		begin();
		call(PROTO_INFO);
	}
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	is_int(field(finish(s), PROTO_T_CONTEXT_GONE), -1,
		"the interpreter survives a cancel at an await");
	s = code("await asyncio.sleep(0.1); print('fifth')", 0);
	is_str(out(s, PROTO_OUT), "fifth\n", "a canceled await does not print into the next cell");
}

/* ---- displays --------------------------------------------------------------------------------- */

static void test_displays(void)
{
	struct seen *s = code("h = display('0 %', display_id=True)\n"
			      "for i in range(200): h.update(f'{i // 2} %')",
		0);

	is_int(results(s), 1, "200 updates of a display are one result");
	has_str(out(s, PROTO_RESULT), "99 %", "the one result of many updates is the last state");
	s = code("h.update('late'); 5", 0);
	is_int(results(s), 1, "an update of a former cell's display is none");
	s = code("h = display('shown', display_id='x'); display('between'); 1/0", 0);
	is_int(results(s), 2, "a held display is told of a cell that fails");
}

/* ---- variables, counting ---------------------------------------------------------------------- */

static struct seen *code_with(const char *line, const char *own, const char *sandbox)
{
	proto_put_str(begin(), PROTO_T_CODE, line);
	if (own)
		proto_put_str(&body, PROTO_T_ENV, own);
	if (sandbox)
		proto_put_str(&body, PROTO_T_SANDBOX_ENV, sandbox);
	return call(PROTO_CODE);
}

static void test_variables(void)
{
	static const char show[] = "print(os.environ['A'], os.environ.get('S'))";
	int64_t count = field(code("import os", 0), PROTO_T_EXECUTION);
	struct seen *s = code_with(show, NULL, "A=sandbox");

	is_str(out(s, PROTO_OUT), "sandbox None\n", "a cell has the sandbox's variables");
	is_int(field(s, PROTO_T_EXECUTION), count + 1, "cells that set variables take no number");
	s = code_with("print(os.environ['S'])", "S=tok-7f3a\nline=2", "A=sandbox");
	is_str(out(s, PROTO_OUT), "tok-7f3a\nline=2\n",
		"a variable of one call is there, byte for byte");
	s = code_with("print(os.environ['A'])", "A=call", "A=sandbox");
	is_str(out(s, PROTO_OUT), "call\n", "a call's variables are on top of the sandbox's");
	s = code_with(show, NULL, "A=sandbox");
	is_str(out(s, PROTO_OUT), "sandbox None\n", "a call's variables are gone behind it");
	s = code_with(
		"print([x for x in In + list(_ih) + [_i, _ii, _iii] if 'tok-' + '7f3a' in x])\n"
		"%history",
		NULL, "A=sandbox");
	ok(!strncmp(out(s, PROTO_OUT), "[]\n", 3) && !strstr(out(s, PROTO_OUT), "tok-7f3a"),
		"a call's variables are in no history");
	code_with("os.environ['A'] = 'changed'", NULL, "A=sandbox");
	s = code_with(show, NULL, "A=sandbox");
	is_str(out(s, PROTO_OUT), "changed None\n",
		"what code makes of the sandbox's variables stays");
	s = code_with(show, NULL, "A=other");
	is_str(out(s, PROTO_OUT), "other None\n", "new ones of the sandbox are set");
	code_with("1/0", "A=call", "A=other");
	s = code_with(show, NULL, "A=other");
	is_str(out(s, PROTO_OUT), "other None\n", "a call that fails puts the variables back, too");
}

static void test_counting(void)
{
	static const char *const cells[] = {
		"1", "1/0", "def f(:", "", "%nosuch", "raise KeyboardInterrupt", "%reset -f"};
	int64_t count = field(code("0", 0), PROTO_T_EXECUTION);
	struct seen *s;

	for (size_t i = 0; i < sizeof(cells) / sizeof(*cells); i++) {
		char name[96];

		snprintf(name, sizeof(name), "a cell takes one number: '%s'", cells[i]);
		is_int(field(code(cells[i], 0), PROTO_T_EXECUTION), ++count, "%s", name);
	}
	s = code("1 + 1", 0);
	count = field(s, PROTO_T_EXECUTION);
	s = code("_, In[-2]", 0);
	has_str(out(s, PROTO_RESULT), "(2, '1 + 1')", "the last result and input are at hand");
	code("kept = 8; import time as asyncio", 0);
	proto_put_str(begin(), PROTO_T_ACTION, "prepare");
	s = call(PROTO_CONTEXT);
	is_int(field(s, PROTO_T_ERROR), -1, "an interpreter is prepared for its snapshot");
	s = code("kept, asyncio.__name__, In[:-1], dict(Out), 'signal' in globals()", 0);
	is_int(field(s, PROTO_T_EXECUTION), 1, "the first cell behind that has number 1");
	has_str(out(s, PROTO_RESULT), "(8, 'time', [''], {}, False)",
		"variables stay and what was run before is not told");
}

/* ---- interrupts ------------------------------------------------------------------------------- */

static volatile int busy;

static void *burn(void *unused)
{
	while (busy)
		continue;
	return unused;
}

/*
 * Cells that are timed out at once, often before they have begun, on a machine that others keep busy:
 * each is interrupted, none costs the interpreter or touches the next cell.
 */
static void test_interrupts(void)
{
	pthread_t threads[8];
	unsigned n = 0, gone = 0, wrong = 0;

	code("kept = 5; import time", 0);
	busy = 1;
	while (n < 8 && pthread_create(&threads[n], NULL, burn, NULL) == 0)
		n++;
	for (unsigned i = 0; i < 30; i++) {
		struct seen *s =
			code(i % 2 ? "await asyncio.sleep(60)" : "time.sleep(60)", 1 + i % 7);

		gone += field(s, PROTO_T_CONTEXT_GONE) == 1;
		s = code("kept", 0);
		wrong += !strstr(out(s, PROTO_RESULT), "\"5\"");
	}
	busy = 0;
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	is_int(gone, 0, "no interpreter is lost to a time-out on a busy machine");
	is_int(wrong, 0, "the cell behind each of them runs and has its variables");
}

/* ---- the list --------------------------------------------------------------------------------- */

static void test_list(void)
{
	struct seen *s;

	proto_put_str(begin(), PROTO_T_CODE, "1");
	proto_put_str(&body, PROTO_T_CONTEXT, "nobody");
	proto_put_bool(&body, PROTO_T_EXISTING, 1);
	s = call(PROTO_CODE);
	is_int(field(s, PROTO_T_ERROR), ENOENT, "code for a context that must be there finds none");
	proto_put_str(begin(), PROTO_T_ACTION, "list");
	s = call(PROTO_CONTEXT);
	is_str(text(s, PROTO_T_CONTEXT, 0), "default", "contexts are listed by name");
	is_int(field(s, PROTO_T_BUSY), 0, "an idle one as idle");
	proto_put_str(begin(), PROTO_T_ACTION, "start");
	proto_put_str(&body, PROTO_T_CONTEXT, "another");
	proto_put_str(&body, PROTO_T_CWD, "/tmp");
	is_int(field(call(PROTO_CONTEXT), PROTO_T_ERROR), -1, "a second context starts");
	do_sync(PROTO_VERSION, PROTO_VERSION);
	proto_put_str(begin(), PROTO_T_ACTION, "list");
	s = call(PROTO_CONTEXT);
	is_str(text(s, PROTO_T_CONTEXT, 0), "another",
		"a context is listed to a host that comes anew");
	is_str(text(s, PROTO_T_CWD, 0), "/tmp", "a listed context has its directory");
	proto_put_str(begin(), PROTO_T_ACTION, "stop");
	proto_put_str(&body, PROTO_T_CONTEXT, "another");
	call(PROTO_CONTEXT);
	proto_put_str(begin(), PROTO_T_ACTION, "list");
	s = call(PROTO_CONTEXT);
	is_str(text(s, PROTO_T_CONTEXT, 0), "default", "a stopped one is not");
}

static void tests(void)
{
	if (!do_sync(PROTO_VERSION, PROTO_VERSION))
		bail("no HELLO");
	if (system("python3 -c 'import IPython' 2>/dev/null") != 0) {
		tap_skip("contexts: python3 has no IPython");
		return;
	}
	if (!ok(context_start(), "a context starts"))
		return;
	test_failures();
	test_children();
	test_characters();
	test_loop();
	test_displays();
	test_variables();
	test_counting();
	test_interrupts();
	test_list();
	proto_put_str(begin(), PROTO_T_ACTION, "stop");
	call(PROTO_CONTEXT);
}

int main(int argc, char **argv)
{
	(void)argc;
	agent_find(argv[0]);
	find_cgroup(); /* as in a machine, where there is one */
	agent_session(tests);
	return tap_done();
}
