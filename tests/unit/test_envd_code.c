/* SPDX-License-Identifier: Apache-2.0 */
/* Code over HTTP, against the real agent and a real interpreter. */
#include "common/buffer.h"
#include "tests/unit/envd_rig.h"

#include <signal.h>

#include "common/limits.h"

static struct answer code(const char *source, const char *more)
{
	json_t *s = json_string(source);
	cleanup_free char *literal = json_dumps(s, JSON_ENCODE_ANY), *body = NULL;

	if (asprintf(&body, "{\"code\":%s%s}", literal, more) < 0)
		abort();
	json_decref(s);
	return post("/execute", body);
}

/* The @n-th line of @type; a new reference, or NULL. */
static json_t *line_of(const struct answer *a, const char *type, unsigned n)
{
	for (const char *p = a->body; *p;) {
		const char *end = strchrnul(p, '\n');
		json_t *v = json_loadb(p, (size_t)(end - p), 0, NULL);
		const char *t = json_string_value(json_object_get(v, "type"));

		if (t && !strcmp(t, type) && n-- == 0)
			return v;
		json_decref(v);
		p = *end ? end + 1 : end;
	}
	return NULL;
}

/* @key of the first line of @type, as text (static). */
static const char *value_of(const struct answer *a, const char *type, const char *key)
{
	static char text[4][4096];
	static unsigned n;
	char *t = text[n++ % 4];
	json_t *v = line_of(a, type, 0), *x = json_object_get(v, key);
	char *dump = x ? json_dumps(x, JSON_ENCODE_ANY) : NULL;

	snprintf(t, 4096, "%s", json_is_string(x) ? json_string_value(x) : dump ? dump : "(none)");
	free(dump);
	json_decref(v);
	return t;
}

static char *all_of(const struct answer *a, const char *type)
{
	struct buffer b = {0};
	json_t *v;

	for (unsigned n = 0; (v = line_of(a, type, n)); n++) {
		const char *text = json_string_value(json_object_get(v, "text"));

		buffer_append(&b, text, strlen(text));
		json_decref(v);
	}
	buffer_append(&b, "", 1);
	return (char *)b.bytes;
}

static bool ended(const struct answer *a)
{
	json_t *v = line_of(a, "end_of_execution", 0);

	json_decref(v);
	return v && a->whole;
}

static void test_execute(void)
{
	struct answer a = code("print('hi'); import sys; print('err', file=sys.stderr); 6 * 7", "");
	char *text;

	is_int(a.status, 200, "code runs");
	is_str(value_of(&a, "stdout", "text"), "hi\n", "code's output is told");
	has_str(value_of(&a, "stdout", "timestamp"), "T", "an event of output has a time");
	is_str(value_of(&a, "stderr", "text"), "err\n", "code's standard error is told");
	is_str(value_of(&a, "result", "text"), "42", "the value of an expression is a result");
	is_str(value_of(&a, "result", "is_main_result"), "true",
		"an expression's value is the main result");
	is_str(value_of(&a, "number_of_executions", "execution_count"), "1",
		"a result has its execution count");
	ok(ended(&a), "an execution ends with its end");
	answer_free(&a);
	a = code("1/0", "");
	is_str(value_of(&a, "error", "name"), "ZeroDivisionError", "what is raised");
	is_str(value_of(&a, "error", "value"), "division by zero", "an exception's text is told");
	has_str(value_of(&a, "error", "traceback"), "1/0", "an exception's traceback is told");
	ok(ended(&a), "an execution that raised ends with its end");
	answer_free(&a);
	a = code(
		"from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))\n'text'", "");
	is_str(value_of(&a, "result", "html"), "<b>x</b>", "a display");
	is_str(value_of(&a, "result", "is_main_result"), "false",
		"a display is not the main result");
	answer_free(&a);
	/* characters that fall on the borders of what is read at once */
	a = code("print('\\u20ac' * 200000)", "");
	text = all_of(&a, "stdout");
	ok(strlen(text) == 600001 && !strstr(text, "\xef\xbf\xbd"), "no character falls apart");
	free(text);
	answer_free(&a);
	a = code("import os; n = os.write(1, b'a\\xffb\\xe2\\x82')", "");
	text = all_of(&a, "stdout");
	is_str(text,
		"a\xef\xbf\xbd"
		"b\xef\xbf\xbd",
		"what is no text is shown as such");
	free(text);
	answer_free(&a);
	rig.target.output_bytes = 1 << 20;
	a = code("print('x' * (3 << 20))", "");
	is_str(value_of(&a, "end_of_execution", "stdout_cut"), "true",
		"output past the limit is cut, and marked");
	text = all_of(&a, "stdout");
	is_int((int64_t)strlen(text), 1 << 20, "output up to the limit is there");
	free(text);
	answer_free(&a);
	rig.target.output_bytes = 0;
}

static void test_variables(void)
{
	static const char show[] = "import os; print(os.environ.get('A'), os.environ.get('B'))";
	struct answer a;

	a = code("import os; os.environ['A'] = 'before'; 0", "");
	answer_free(&a);
	a = code(show, ",\"env_vars\":{\"A\":\"it's \\\"\\\\ \\u20ac\\ud83d\\ude00\",\"B\":\"b\"}");
	is_str(value_of(&a, "stdout", "text"), "it's \"\\ \xe2\x82\xac\xf0\x9f\x98\x80 b\n",
		"variables of a call");
	answer_free(&a);
	a = code(show, "");
	is_str(value_of(&a, "stdout", "text"), "before None\n",
		"variables of one call are put back after it");
	answer_free(&a);
	a = code("0", "");
	{
		int before = atoi(value_of(&a, "number_of_executions", "execution_count"));

		answer_free(&a);
		a = code("0", ",\"env_vars\":{\"A\":\"1\"}");
		is_int(atoi(value_of(&a, "number_of_executions", "execution_count")), before + 1,
			"the cells that set variables are not counted");
		answer_free(&a);
	}
	a = code("1/0", ",\"env_vars\":{\"A\":\"raised\"}");
	is_str(value_of(&a, "error", "name"), "ZeroDivisionError", "code that raises");
	answer_free(&a);
	a = code(show, "");
	is_str(value_of(&a, "stdout", "text"), "before None\n", "has them put back too");
	answer_free(&a);
	rig.target.env = json_pack("{s:s}", "B", "of the sandbox");
	a = code(show, "");
	is_str(value_of(&a, "stdout", "text"), "before of the sandbox\n", "the sandbox's");
	answer_free(&a);
	a = code("'ok'", ",\"env_vars\":{\"S\":\"tok-7f3a\\nline=2\"}");
	answer_free(&a);
	a = code(
		"import os; print(os.environ.get('S'), [x for x in In if 'tok-' + '7f3a' in x], _)",
		"");
	is_str(value_of(&a, "stdout", "text"), "None [] ok\n",
		"a call's variables are in no history and take no result away");
	answer_free(&a);
	a = code("import os; os.environ['B'] = 'changed'", "");
	answer_free(&a);
	a = code(show, "");
	is_str(value_of(&a, "stdout", "text"), "before changed\n",
		"what code makes of the sandbox's variables stays");
	answer_free(&a);
	json_decref((json_t *)rig.target.env);
	rig.target.env = NULL;
}

/* Two at once, with variables of their own: each has its own. */
static void test_turns(void)
{
	struct client c[3];

	for (int i = 0; i < 3; i++) {
		char body[200];

		snprintf(body, sizeof(body),
			"{\"code\":\"import os, time; time.sleep(0.1); print('got', "
			"os.environ['N'])\","
			"\"env_vars\":{\"N\":\"%d\"}}",
			i);
		c[i] = ask_json("/execute", body);
	}
	leave(&c[1]); /* one that waits goes away */
	for (int i = 0; i < 3; i += 2) {
		char want[20];
		struct answer a = finish(&c[i]);

		snprintf(want, sizeof(want), "got %d\n", i);
		is_str(value_of(&a, "stdout", "text"), want,
			"a variable of one call is seen in that call");
		answer_free(&a);
	}
}

static void test_ends(void)
{
	struct answer a = code("import time\ntime.sleep(100)", ",\"timeout_ms\":300");
	struct client c;
	int pid;

	is_str(value_of(&a, "error", "name"), "TimeoutError", "a timeout is an error");
	has_str(a.body, "\"timed_out\":true", "which says that it is one");
	ok(ended(&a), "a timeout is followed by an end");
	answer_free(&a);
	a = code("x = 'kept'; x", "");
	is_str(value_of(&a, "result", "text"), "kept", "the interpreter goes on");
	answer_free(&a);
	/* a client that goes interrupts its code */
	c = ask_json("/execute",
		"{\"code\":\"print('on', flush=True)\\nimport time\\ntime.sleep(100)\"}");
	until(&c, says(&c, "on\\n"));
	leave(&c);
	a = code("x", "");
	is_str(value_of(&a, "result", "text"), "kept", "a client that goes interrupts its code");
	answer_free(&a);
	a = code("import os; os._exit(3)", "");
	is_str(value_of(&a, "error", "name"), "ContextGone", "a dead interpreter is an error");
	has_str(value_of(&a, "error", "value"), "exited with code 3",
		"the error says how a dead interpreter ended");
	ok(ended(&a), "a dead interpreter's execution has an end");
	answer_free(&a);
	a = code("'x' in dir()", "");
	is_str(value_of(&a, "result", "text"), "False", "the next is a fresh one");
	answer_free(&a);
	/* one that dies between calls: code with variables does not run in a fresh one unasked */
	a = code("import os; os.getpid()", "");
	pid = atoi(value_of(&a, "result", "text"));
	answer_free(&a);
	ok(pid > 1 && kill(pid, SIGKILL) == 0 && until(NULL, kill(pid, 0) < 0),
		"an interpreter that dies when nobody waits");
	a = code("'ran'", ",\"env_vars\":{\"A\":\"1\"}");
	is_str(value_of(&a, "error", "name"), "ContextGone",
		"the end of an interpreter that nobody waited for is told");
	is_str(value_of(&a, "result", "text"), "(none)",
		"code of a client that has gone does not run on");
	answer_free(&a);
	a = code("'ran'", ",\"env_vars\":{\"A\":\"1\"}");
	is_str(value_of(&a, "result", "text"), "ran", "until it is asked again");
	answer_free(&a);
}

static void test_wrong(void)
{
	struct answer a = post("/execute", "{}");

	is_int(a.status, 400, "no code");
	answer_free(&a);
	a = code("1", ",\"language\":\"cobol\"");
	is_int(a.status, 400, "code in an unknown language is refused");
	has_str(a.body, "python", "what runs is said");
	answer_free(&a);
	a = code("1", ",\"context_id\":\"nope\"");
	is_int(a.status, 404, "a context that is not there");
	answer_free(&a);
	a = code("1", ",\"context_id\":\"default\",\"language\":\"python\"");
	is_int(a.status, 400, "code with both a context and a language is refused");
	answer_free(&a);
	a = code("1", ",\"env_vars\":{\"A\":1}");
	is_int(a.status, 400, "a variable that is none");
	answer_free(&a);
}

static void test_contexts(void)
{
	char path[200], more[200], id[64];
	json_t *v,
		*env = json_pack(
			"{s:s}", "PATH", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	struct answer a;

	rig.target.template_env = json_pack("[s]", "IGNORED");
	rig.target.env = env;
	a = post("/contexts", "{\"cwd\":\"/tmp\",\"language\":\"python\"}");
	is_int(a.status, 200, "a context is made");
	v = json_loads(a.body, 0, NULL);
	snprintf(id, sizeof(id), "%s", json_string_value(json_object_get(v, "id")));
	is_str(json_string_value(json_object_get(v, "cwd")), "/tmp", "in its directory");
	json_decref(v);
	answer_free(&a);
	snprintf(more, sizeof(more), ",\"context_id\":\"%s\"", id);
	a = code("import os; y = 1; os.getcwd()", more);
	is_str(value_of(&a, "result", "text"), "/tmp", "code runs in the new context");
	answer_free(&a);
	a = code("'y' in dir()", "");
	is_str(value_of(&a, "result", "text"), "False", "a context has variables of its own");
	answer_free(&a);
	a = call("GET", "/contexts", "", "");
	has_str(a.body, id, "a new context is listed");
	has_str(a.body, "\"default\"", "beside the first");
	answer_free(&a);
	snprintf(path, sizeof(path), "/contexts/%s/restart", id);
	a = call("POST", path, "", "");
	is_int(a.status, 200, "a context is restarted");
	answer_free(&a);
	a = code("'y' in dir()", more);
	is_str(value_of(&a, "result", "text"), "False", "a restarted context is fresh");
	answer_free(&a);
	snprintf(path, sizeof(path), "/contexts/%s", id);
	a = call("DELETE", path, "", "");
	is_int(a.status, 200, "a context is removed");
	answer_free(&a);
	a = call("DELETE", path, "", "");
	is_int(a.status, 404, "a context is removed only once");
	answer_free(&a);
	a = code("1", more);
	is_int(a.status, 404, "a removed context runs no code");
	answer_free(&a);
	json_decref((json_t *)rig.target.template_env);
	json_decref(env);
	rig.target.template_env = rig.target.env = NULL;
}

/* What was put into a result, one line each. */
static void test_results(void)
{
	static const struct {
		const char *code, *key, *want, *name;
	} rows[] = {
		{"from IPython.display import HTML, JSON; HTML('<b>\\ud800</b>')", "html",
			"<b>\xef\xbf\xbd</b>", "a lone surrogate is replaced in a result"},
		{"class T:\n    def __repr__(self): return 'a\\0b'\nT()", "text",
			"a\xef\xbf\xbd"
			"b",
			"a NUL is replaced in a result"},
		{"JSON({'k': ['\\0', 1]})", "json", "{\"k\": [\"\\ufffd\", 1]}",
			"JSON with a NUL is still an object"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct answer a = code(rows[i].code, "");
		json_t *second = line_of(&a, "result", 1), *want = NULL, *v;

		ok(!second, "a figure is one result: %s", rows[i].name);
		v = line_of(&a, "result", 0);
		want = !strcmp(rows[i].key, "json") ? json_loads(rows[i].want, 0, NULL)
						    : json_string(rows[i].want);
		ok(json_equal(json_object_get(v, rows[i].key), want), "%s", rows[i].name);
		json_decref(v);
		json_decref(want);
		answer_free(&a);
	}
}

static void done(void *user, const struct guest_reply *reply)
{
	*(int *)user = reply->error ? reply->error : -1;
	if (reply->error)
		printf("# %s\n", reply->text);
}

/* One that this daemon has not made: another did, or the sandbox is a fork. */
static void test_foreign_context(void)
{
	static const struct guest_stream_ops ops = {.done = done};
	uint8_t buf[9000];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	char env[8192];
	struct answer a;
	int result = 0;

	snprintf(env, sizeof(env), "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	proto_put_str(&o, PROTO_T_ENV, env);
	proto_put_str(&o, PROTO_T_ACTION, "start");
	proto_put_str(&o, PROTO_T_CONTEXT, "foreign");
	guest_request(rig.guest, PROTO_CONTEXT, o.buf, o.len, &ops, &result);
	rig_watch();
	until(NULL, result);
	a = call("GET", "/contexts", "", "");
	has_str(a.body, "\"foreign\"", "a context that another daemon has made is listed");
	answer_free(&a);
	a = code("z = 3; z", ",\"context_id\":\"foreign\"");
	is_str(value_of(&a, "result", "text"), "3", "code runs in it");
	answer_free(&a);
	a = call("DELETE", "/contexts/foreign", "", "");
	is_int(a.status, 200, "a context with output is removed");
	answer_free(&a);
	a = call("GET", "/contexts", "", "");
	ok(!strstr(a.body, "foreign"), "a removed context is listed no more");
	answer_free(&a);
}

/* The first interpreter, with the python3 of this test's PATH. */
static bool context_start(void)
{
	static const struct guest_stream_ops ops = {.done = done};
	uint8_t buf[9000];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	char env[8192];
	int result = 0;

	snprintf(env, sizeof(env), "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	proto_put_str(&o, PROTO_T_ENV, env);
	proto_put_str(&o, PROTO_T_ACTION, "start");
	guest_request(rig.guest, PROTO_CONTEXT, o.buf, o.len, &ops, &result);
	rig_watch();
	until(NULL, result);
	return result == -1;
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	if (!rig_start()) {
		tap_skip("the agent has not been built");
		return tap_done();
	}
	if (!context_start()) {
		tap_skip("no interpreter with IPython is here");
		rig_stop();
		return tap_done();
	}
	test_execute();
	test_variables();
	test_results();
	test_turns();
	test_wrong();
	test_contexts();
	test_foreign_context();
	test_ends();
	rig_stop();
	return tap_done();
}
