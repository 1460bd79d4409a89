/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts in other languages than Python: state, results, failures, interrupts, variables. */
#include "tests/unit/agent_cells.h"

static const char *language;

static void ask(const char *line)
{
	proto_put_str(begin(), PROTO_T_CODE, line);
	proto_put_str(&body, PROTO_T_LANGUAGE, language);
}

static struct seen *run(const char *line)
{
	ask(line);
	return call(PROTO_CODE);
}

static struct seen *run_for(const char *line, uint64_t timeout_ms)
{
	ask(line);
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, timeout_ms);
	return call(PROTO_CODE);
}

static int start(void)
{
	char env[8192];
	struct seen *s;

	/* its programs are those of this test's PATH */
	snprintf(env, sizeof(env), "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	proto_put_str(begin(), PROTO_T_ENV, env);
	proto_put_str(&body, PROTO_T_ACTION, "start");
	proto_put_str(&body, PROTO_T_LANGUAGE, language);
	s = call(PROTO_CONTEXT);
	is_str(text(s, PROTO_T_LANGUAGE, 0), language, "a context in %s starts", language);
	return field(s, PROTO_T_ERROR) == -1;
}

/* What holds in each: @set a variable to 42, @show prints it, @endless computes, @sleeps waits, @shows prints A and S. */
static void test_cells(const char *set, const char *show, const char *endless, const char *sleeps,
	const char *shows)
{
	struct seen *s = run(set);

	is_int(field(s, PROTO_T_ENAME), -1, "%s: a cell runs", language);
	is_int(field(s, PROTO_T_EXECUTION), 1, "%s: it is counted", language);
	is_str(out(run(show), PROTO_OUT), "42\n", "%s: variables stay", language);
	s = run_for(endless, 300);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "%s: code that computes is timed out", language);
	is_str(text(s, PROTO_T_ENAME, 0), "KeyboardInterrupt", "%s: it is interrupted", language);
	s = run_for(sleeps, 300);
	is_str(text(s, PROTO_T_ENAME, 0), "KeyboardInterrupt", "%s: code that waits is interrupted",
		language);
	run_for(endless, 1);
	s = run(show);
	is_str(out(s, PROTO_OUT), "42\n", "%s: an interrupt costs no variable", language);
	is_int(field(s, PROTO_T_EXECUTION), 6, "%s: each cell takes a number", language);
	ask(shows);
	proto_put_str(&body, PROTO_T_SANDBOX_ENV, "A=sandbox");
	proto_put_str(&body, PROTO_T_ENV, "S=call");
	is_str(out(call(PROTO_CODE), PROTO_OUT), "sandbox call\n", "%s: variables of a call",
		language);
	ask(shows);
	proto_put_str(&body, PROTO_T_SANDBOX_ENV, "A=sandbox");
	is_str(out(call(PROTO_CODE), PROTO_OUT), "sandbox none\n", "%s: they are gone behind it",
		language);
}

static void test_bash(void)
{
	struct seen *s;

	language = "bash";
	if (!start())
		return;
	test_cells("x=42; cd /", "echo $x", "while :; do :; done", "sleep 60; echo on",
		"echo $A ${S:-none}");
	s = run("cat <<'X'\n# kept\nX\npwd; false");
	is_str(out(s, PROTO_OUT), "# kept\n/\n",
		"bash: here-documents and the directory are as they were left");
	is_str(text(s, PROTO_T_ENAME, 0), "ExitStatus",
		"bash: a last status other than 0 is a failure");
	is_str(text(s, PROTO_T_EVALUE, 0), "1", "bash: it is told");
	s = run("if true; then");
	has_str(out(s, PROTO_ERR), "syntax error", "bash: a syntax error is told");
	s = run("exit 3");
	has_str(text(s, PROTO_T_EVALUE, 0), "exit code 3", "bash: a shell that ends is an error");
	is_str(out(run("echo [$x]"), PROTO_OUT), "[]\n", "bash: the next cell has a fresh one");
}

static void test_javascript(void)
{
	struct seen *s;

	language = "javascript";
	if (!start())
		return;
	test_cells("let x = 6 * 7; undefined", "console.log(x)", "while (true) {}",
		"await new Promise(() => {})",
		"console.log(process.env.A, process.env.S ?? 'none')");
	s = run("({a: [x]})");
	has_str(out(s, PROTO_RESULT), "{ a: [ 42 ] }", "javascript: the last value is the result");
	s = run("await Promise.resolve('done')");
	has_str(out(s, PROTO_RESULT), "'done'", "javascript: await at the top");
	s = run("import {basename as b} from 'path'; b('/a/c')");
	has_str(out(s, PROTO_RESULT), "'c'", "javascript: a static import");
	s = run("throw new TypeError('bad')");
	is_str(text(s, PROTO_T_ENAME, 0), "TypeError", "javascript: an exception's class");
	is_str(text(s, PROTO_T_EVALUE, 0), "bad", "javascript: an exception's text");
	is_str(text(run("let ("), PROTO_T_ENAME, 0), "SyntaxError", "javascript: a syntax error");
	s = run("display({[Symbol.for('Jupyter.display')]: () => ({'text/html': '<b>'})}); "
		"process.exit(3)");
	has_str(out(s, PROTO_RESULT), "text/html", "javascript: a display");
	has_str(text(s, PROTO_T_EVALUE, 0), "does not end",
		"javascript: process.exit() is an exception");
	is_str(out(run("console.log(x)"), PROTO_OUT), "42\n",
		"javascript: the interpreter goes on");
}

static void test_missing(void)
{
	char env[] = "PATH=/nowhere";
	struct seen *s;

	proto_put_str(begin(), PROTO_T_ENV, env);
	proto_put_str(&body, PROTO_T_ACTION, "start");
	proto_put_str(&body, PROTO_T_CONTEXT, "poor");
	proto_put_str(&body, PROTO_T_LANGUAGE, "js");
	s = call(PROTO_CONTEXT);
	has_str(error_text(s), "packages = nodejs",
		"a language that is not there names its packages");
	has_str(error_text(s), "[root]", "the error names the place in the recipe");
	language = "cobol";
	has_str(error_text(run("1")), "javascript", "one that nobody has is told those that are");
}

static void tests(void)
{
	if (!do_sync(PROTO_VERSION, PROTO_VERSION))
		bail("no HELLO");
	test_missing();
	test_bash();
	if (system("node --version >/dev/null 2>&1") != 0)
		tap_skip("javascript: there is no node");
	else
		test_javascript();
	proto_put_str(begin(), PROTO_T_ACTION, "list");
	is_str(text(call(PROTO_CONTEXT), PROTO_T_LANGUAGE, 0), language,
		"the list tells languages");
	proto_put_str(begin(), PROTO_T_ACTION, "stop");
	proto_put_str(&body, PROTO_T_CONTEXT, "bash");
	call(PROTO_CONTEXT);
	proto_put_str(begin(), PROTO_T_ACTION, "stop");
	proto_put_str(&body, PROTO_T_CONTEXT, "javascript");
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
