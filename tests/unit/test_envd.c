/* SPDX-License-Identifier: Apache-2.0 */
/* Using a sandbox over HTTP: commands, against the real agent. */
#include "common/buffer.h"
#include "tests/unit/envd_rig.h"

#include <signal.h>

#include "common/base64.h"
#include "common/digest.h"
#include "common/file.h"
#include "pool/envd/limits.h"

/* ---- /exec -------------------------------------------------------------------------------- */

static json_t *exec_json(const char *body, int *ret_status)
{
	struct answer a = post("/exec", body);
	json_t *v = json_loadb(a.body, a.len, JSON_ALLOW_NUL, NULL);

	*ret_status = a.status;
	if (!v)
		printf("# %d %.200s\n", a.status, a.body);
	answer_free(&a);
	return v;
}

#define text_of(v, key) json_string_value(json_object_get((v), (key)))
#define int_of(v, key) json_integer_value(json_object_get((v), (key)))
#define true_of(v, key) json_is_true(json_object_get((v), (key)))

static void test_exec(void)
{
	int status;
	json_t *v = exec_json("{\"cmd\":\"echo one; echo two >&2; exit 7\"}", &status);

	is_int(status, 200, "a command runs");
	is_int(int_of(v, "exit_code"), 7, "POST /exec tells the exit code");
	ok(json_is_null(json_object_get(v, "signal")), "no signal");
	is_str(text_of(v, "stdout"), "one\n", "POST /exec tells the output");
	is_str(text_of(v, "stderr"), "two\n", "POST /exec tells the standard error");
	json_decref(v);
	v = exec_json("{\"argv\":[\"printf\",\"%s|\",\"a b\",\"c\"],\"cwd\":\"/tmp\"}", &status);
	is_str(text_of(v, "stdout"), "a b|c|", "arguments, as they are");
	json_decref(v);
	v = exec_json("{\"cmd\":\"pwd\",\"args\":[],\"cwd\":\"/tmp\"}", &status);
	is_str(text_of(v, "stdout"), "/tmp\n", "a program and its directory");
	json_decref(v);
	v = exec_json(
		"{\"cmd\":\"echo $A $B $C $D\",\"env\":{\"C\":\"own\",\"D\":\"d e\"}}", &status);
	is_str(text_of(v, "stdout"), "template sandbox own d e\n",
		"variables: of the template, the sandbox, its own");
	json_decref(v);
	v = exec_json("{\"cmd\":\"tr a-z A-Z\",\"stdin\":\"input\\u00e4\"}", &status);
	is_str(text_of(v, "stdout"), "INPUT\xc3\xa4", "POST /exec passes input on");
	json_decref(v);
	v = exec_json("{\"cmd\":\"kill -9 $$\"}", &status);
	ok(json_is_null(json_object_get(v, "exit_code")) && int_of(v, "signal") == 9,
		"a signal's end");
	json_decref(v);
	v = exec_json("{\"cmd\":\"sleep 300 & sleep 300\",\"timeout_ms\":200}", &status);
	ok(status == 200 && true_of(v, "timed_out"), "a timeout ends the whole tree");
	json_decref(v);
	v = exec_json("{\"cmd\":\"pgrep -cfx 'sleep 300'\"}", &status);
	is_str(text_of(v, "stdout"), "0\n", "which is gone");
	json_decref(v);
	v = exec_json("{\"cmd\":\"printf 'a\\\\377b\\\\303'\"}", &status);
	is_str(text_of(v, "stdout"),
		"a\xef\xbf\xbd"
		"b\xef\xbf\xbd",
		"bytes that are no text are shown as such");
	json_decref(v);
	v = exec_json("{\"cmd\":\"head -c 5000000 /dev/zero\"}", &status);
	ok(true_of(v, "stdout_cut") && !true_of(v, "stderr_cut") &&
			int_of(v, "stdout_bytes") == 5000000 &&
			json_string_length(json_object_get(v, "stdout")) == LIMIT_ENVD_COLLECT,
		"output past the limit is cut, marked and counted");
	json_decref(v);
	v = exec_json("{\"cmd\":\"tty; stty size\",\"tty\":{\"rows\":33,\"cols\":77}}", &status);
	has_str(text_of(v, "stdout"), "33 77", "a terminal");
	json_decref(v);
}

static void test_exec_wrong(void)
{
	static const struct {
		const char *body, *says;
		int status;
	} cases[] = {
		{"{}", "is needed", 400},
		{"[]", "not a JSON object", 400},
		{"{\"cmd\":", "request's body", 400},
		{"{\"cmd\":7}", "cmd: must be a string", 400},
		{"{\"cmd\":\"a\\u0000b\"}", "", 400},
		{"{\"cmd\":\"a\",\"argv\":[\"b\"]}", "one of", 400},
		{"{\"argv\":[]}", "program", 400},
		{"{\"argv\":[1]}", "strings are needed", 400},
		{"{\"cmd\":\"a\",\"env\":[]}", "variables", 400},
		{"{\"cmd\":\"a\",\"env\":{\"A=B\":\"x\"}}", "A=B", 400},
		{"{\"cmd\":\"a\",\"timeout_ms\":-1}", "timeout_ms", 400},
		{"{\"cmd\":\"a\",\"timeout_ms\":1.5}", "timeout_ms", 400},
		{"{\"cmd\":\"a\",\"stdin_base64\":\"*\"}", "base64", 400},
		{"{\"cmd\":\"a\",\"cwd\":\"~x/y\"}", "~", 400},
		{"{\"argv\":[\"/no/such\"]}", "/no/such", 400},
		{"{\"cmd\":\"true\",\"cwd\":\"/no/such\"}", "/no/such", 400},
		{"{\"cmd\":\"true\",\"user\":\"nobody-such\"}", "nobody-such", 401},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status;
		json_t *v = exec_json(cases[i].body, &status);

		is_int(status, cases[i].status, "%s: its status", cases[i].body);
		has_str(text_of(v, "message"), cases[i].says, "an error has its message");
		is_int(int_of(v, "code"), cases[i].status, "an error has its code");
		json_decref(v);
	}
}

static void test_exec_stream(void)
{
	struct answer a = post("/exec",
		"{\"cmd\":\"head -c 3000000 /dev/urandom | tee /tmp/parbake-wire-random; "
		"exit 3\",\"stream\":true}");
	struct buffer out = carried(a.body, "stdout");
	cleanup_free char *file = NULL;
	size_t len = 0;

	is_int(a.status, 200, "a stream");
	ok(a.whole, "a stream has an event of its end");
	ok(!strncmp(a.body, "{\"pid\":", 7), "a stream begins with the command's number");
	has_str(a.body, "\"type\":\"end\"", "a stream ends with the event of the end");
	has_str(a.body, "\"exit_code\":3", "the event of the end has the exit code");
	file_read_all(AT_FDCWD, "/tmp/parbake-wire-random", 4000000, &file, &len, NULL);
	ok(len == 3000000 && out.len == len && !memcmp(out.bytes + out.head, file, len),
		"byte for byte");
	unlink("/tmp/parbake-wire-random");
	buffer_free(&out);
	answer_free(&a);
}

/* A sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* A client that reads slowly costs no memory. */
static void test_slow(void)
{
	struct client c;
	struct rusage before, after;
	uint64_t bytes = 0;
	size_t turns = 0;

	getrusage(RUSAGE_SELF, &before);
	c = ask_json("/exec", "{\"cmd\":\"yes | head -c 60000000\",\"stream\":true}");
	ok(until(&c, says(&c, "\"type\":\"stdout\"")), "much output");
	c.take = 0; /* now it reads nothing, for as many turns as would bring all of it */
	while (turns++ < 500)
		turn(&c);
	c.take = SIZE_MAX;
	while (!c.closed) {
		bytes += c.len;
		c.len = 0; /* count it, keep nothing */
		turn(&c);
		if (says(&c, "\"type\":\"end\""))
			break;
	}
	has_str(c.got, "\"stdout_bytes\":60000000", "much output was all written");
	has_str(c.got, "\"stdout_cut\":false", "much output was not cut");
	bytes += c.len;
	ok(bytes > 80000000, "much output came to the client whole");
	getrusage(RUSAGE_SELF, &after);
	ok(SANITIZED || after.ru_maxrss - before.ru_maxrss < 16 * 1024,
		"much output takes little memory of the daemon (%ld KiB more)",
		after.ru_maxrss - before.ru_maxrss);
	leave(&c);
}

static bool runs(const char *pattern)
{
	char body[200];
	int status;
	bool found;
	json_t *v;

	snprintf(body, sizeof(body), "{\"argv\":[\"pgrep\",\"-fx\",\"%s\"]}", pattern);
	v = exec_json(body, &status);
	found = int_of(v, "exit_code") == 0;
	json_decref(v);
	return found;
}

static void test_gone(void)
{
	struct client c = ask_json("/exec", "{\"cmd\":\"sleep 321 & sleep 322\",\"stream\":true}");
	unsigned pid = pid_of(&c);

	ok(until(&c, runs("sleep 321")), "a command runs");
	leave(&c);
	until(NULL, http_open(rig.server) == 0);
	ok(until(NULL, runs("sleep 321") && runs("sleep 322")),
		"a command goes on when its client has gone");
	is_int(with_pid("SendSignal", pid, ",\"signal\":\"SIGNAL_SIGKILL\""), 200,
		"until it is killed");
	ok(until(NULL, !runs("sleep 32[12]")), "a killed command's whole tree ends");
	c = ask_json("/exec", "{\"cmd\":\"sleep 323 & sleep 324\",\"timeout_ms\":1500}");
	ok(until(&c, runs("sleep 324")), "a command that is answered at its end runs");
	leave(&c);
	until(NULL, http_open(rig.server) == 0);
	ok(until(NULL, !runs("sleep 32[34]")), "goes on too, no longer than its time limit");
}

static void test_sandbox(void)
{
	struct answer a;

	rig.gone = true;
	a = post("/exec", "{\"cmd\":\"true\"}");
	is_int(a.status, 404, "a sandbox that is not there");
	answer_free(&a);
	rig.gone = false;
	rig.paused = true;
	a = post("/exec", "{\"cmd\":\"true\"}");
	is_int(a.status, 409, "a sandbox that is paused cannot be used");
	has_str(a.body, "paused", "the answer of a paused sandbox says so");
	answer_free(&a);
	a = post("/process.Process/List", "{}");
	is_int(a.status, 503, "SDKs are told in their form that a sandbox is not there");
	answer_free(&a);
	rig.paused = false;
	rig.broken = true;
	a = post("/exec", "{\"cmd\":\"true\"}");
	is_int(a.status, 503, "a sandbox whose channel broke cannot be used");
	has_str(a.body, "is ending", "a sandbox whose channel broke is said to be ending");
	ok(!strstr(a.body, "resume"), "not to be one that might be resumed");
	answer_free(&a);
	a = post("/process.Process/List", "{}");
	is_int(a.status, 503, "SDKs are told the same");
	has_str(a.body, "is ending", "in the same words");
	answer_free(&a);
	rig.broken = false;
	a = call("GET", "/exec", "", "");
	is_int(a.status, 405, "a method that is none of its");
	answer_free(&a);
	a = call("GET", "/nowhere", "", "");
	is_int(a.status, 404, "no such route");
	answer_free(&a);
	a = call("GET", "/health", "", "");
	is_int(a.status, 204, "the health route answers");
	answer_free(&a);
}

/* ---- process.Process ---------------------------------------------------------------------- */

static char *start_lines(const char *headers, const char *body, struct answer *ret)
{
	struct client c = ask_stream("/process.Process/Start", headers, body);
	unsigned flags;
	char *lines;

	*ret = finish(&c);
	lines = messages(ret, &flags);
	is_int(flags, ENVD_ENVELOPE_END, "the last envelope ends the stream");
	return lines;
}

static void test_start(void)
{
	struct answer a;
	struct buffer out;
	char *lines = start_lines(CONNECT,
		"{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo $A $E; echo err >&2; "
		"exit 5\"],"
		"\"envs\":{\"E\":\"e\"},\"cwd\":\"/tmp\"}}",
		&a);

	is_int(a.status, 200, "process Start answers");
	ok(!strncmp(lines, "{\"event\":{\"start\":{\"pid\":", 25),
		"the first event of Start names the process");
	out = carried(lines, "stdout");
	ok(out.len == 11 && !memcmp(out.bytes + out.head, "template e\n", 11),
		"Start's events carry the output");
	buffer_free(&out);
	out = carried(lines, "stderr");
	ok(out.len == 4 && !memcmp(out.bytes + out.head, "err\n", 4),
		"Start's events carry the standard error");
	buffer_free(&out);
	has_str(lines,
		"\"end\":{\"error\":\"exit status "
		"5\",\"exitCode\":5,\"exited\":true,\"status\":\"exit status 5\"}",
		"Start's events end with the end");
	ok(!strcmp(lines + strlen(lines) - 3, "{}\n"), "an end without a fault has no error");
	free(lines);
	answer_free(&a);

	lines = start_lines(CONNECT, "{\"process\":{\"cmd\":\"/no/such\"}}", &a);
	ok(a.status == 200 && !strstr(lines, "\"start\""), "what cannot be started does not start");
	has_str(lines, "\"code\":\"invalid_argument\"",
		"a command that cannot be started is an error");
	free(lines);
	answer_free(&a);

	lines = start_lines(CONNECT "Connect-Timeout-Ms: 200\r\n",
		"{\"process\":{\"cmd\":\"sleep\",\"args\":[\"333\"]}}", &a);
	has_str(lines, "\"timedOut\":true", "a timeout");
	has_str(lines, "\"status\":\"signal: killed\"",
		"a command that ran out of time has a status of its own");
	has_str(lines, "deadline_exceeded", "a deadline is told as SDKs know it");
	free(lines);
	answer_free(&a);

	lines = start_lines(CONNECT "Authorization: Basic bm9ib2R5LXN1Y2g6\r\n",
		"{\"process\":{\"cmd\":\"true\"}}", &a);
	has_str(lines, "unauthenticated", "a user that is not there");
	has_str(lines, "nobody-such", "a user that is not there is named");
	free(lines);
	answer_free(&a);

	lines = start_lines(CONNECT,
		"{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"stty size\"]},"
		"\"pty\":{\"size\":{\"rows\":11,\"cols\":22}}}",
		&a);
	out = carried(lines, "pty");
	ok(out.len == 7 && !memcmp(out.bytes + out.head, "11 22\r\n", 7), "a terminal");
	buffer_free(&out);
	free(lines);
	answer_free(&a);
}

static void test_start_wrong(void)
{
	struct client c;
	struct answer a = call("POST", "/process.Process/Start",
		"Content-Type: application/connect+proto\r\n", "\0\0\0\0\0");

	is_int(a.status, 415, "protobuf is not spoken");
	has_str(a.body, "application/connect+json", "what is, is said");
	answer_free(&a);
	a = call("POST", "/process.Process/Start", CONNECT, "{}");
	ok(a.status == 200 && strstr(a.body + 5, "invalid_argument"), "no envelope");
	answer_free(&a);
	c = ask("POST", "/process.Process/Start", CONNECT, "\1\0\0\0\2{}", 7);
	a = finish(&c);
	ok(a.status == 200 && strstr(a.body + 5, "compressed"), "a compressed one");
	answer_free(&a);
	a = call("POST", "/process.Process/List", "Content-Type: application/proto\r\n", "");
	is_int(a.status, 415, "compressed plain requests are refused");
	answer_free(&a);
	a = call("POST", "/exec", JSON "Content-Encoding: gzip\r\n", "{\"cmd\":\"true\"}");
	is_int(a.status, 415, "a request in gzip");
	answer_free(&a);
	a = post("/process.Process/SendSignal",
		"{\"process\":{\"pid\":4000000},\"signal\":\"SIGNAL_SIGKILL\"}");
	is_int(a.status, 404, "a number that is none");
	has_str(a.body, "\"code\":\"not_found\"",
		"a signal that is none is refused in the SDKs' form");
	answer_free(&a);
}

#define INPUT (10u << 20)

/* 10 MiB through a command's input and back. */
static void test_input(void)
{
	struct client c =
		ask_stream("/process.Process/Start", CONNECT, "{\"process\":{\"cmd\":\"cat\"}}");
	unsigned pid = pid_of(&c), bad = 0, flags;
	uint8_t *bytes = malloc(INPUT);
	struct buffer out;
	struct answer a;
	char *lines;

	ok(pid, "a command that reads");
	for (size_t i = 0; i < INPUT; i++)
		bytes[i] = (uint8_t)(i * 7 ^ i >> 11);
	for (size_t at = 0; at < INPUT; at += 500000) {
		size_t n = INPUT - at < 500000 ? INPUT - at : 500000;
		cleanup_free char *text = base64_encode(bytes + at, n), *more = NULL;
		struct client in;

		/* (the first client must read on, lest its command waits) */
		if (asprintf(&more, "{\"process\":{\"pid\":%u},\"input\":{\"stdin\":\"%s\"}}", pid,
			    text) < 0)
			abort();
		in = ask_json("/process.Process/SendInput", more);
		until(&c, (read_some(&in), in.closed));
		bad += !says(&in, "200 OK");
		leave(&in);
	}
	is_int(bad, 0, "takes input");
	is_int(with_pid("CloseStdin", pid, ""), 200, "until that is closed");
	ok(with_pid("SendInput", pid, ",\"input\":{\"stdin\":\"YQ==\"}") >= 400,
		"a command gets no input after the end of its input");
	a = finish(&c);
	lines = messages(&a, &flags);
	out = carried(lines, "stdout");
	ok(out.len == INPUT && !memcmp(out.bytes + out.head, bytes, INPUT), "all input came back");
	has_str(lines, "\"exitCode\":0", "a command whose input ended ends well");
	buffer_free(&out);
	free(lines);
	free(bytes);
	answer_free(&a);
}

static void test_control(void)
{
	struct client
		c = ask_stream("/process.Process/Start", CONNECT,
			"{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"trap 'stty size; exit 4' "
			"TERM; echo up; while :; do "
			"sleep 0.05; "
			"done\"]},\"pty\":{\"size\":{\"rows\":10,\"cols\":20}},\"tag\":\"mine\"}"),
		other;
	unsigned pid = pid_of(&c);
	struct answer a;

	ok(until(&c, says(&c, "\"pty\":\"dXANCg==\"")), "a command with a terminal and a tag");
	a = post("/process.Process/List", "{}");
	has_str(a.body, "\"tag\":\"mine\"", "a command with a tag is listed by it");
	has_str(a.body, "\"cmd\":\"sh\"", "List tells what a command is");
	answer_free(&a);
	other = ask_stream("/process.Process/Connect", CONNECT, "{\"process\":{\"tag\":\"mine\"}}");
	is_int(pid_of(&other), pid, "a second client can follow a command");
	leave(&c);
	is_int(with_pid("Update", pid, ",\"pty\":{\"size\":{\"rows\":30,\"cols\":40}}"), 200,
		"a new size");
	is_int(with_pid("SendInput", pid, ",\"input\":{\"stdin\":\"YQ==\"}"), 400,
		"a command with a size has a terminal");
	is_int(with_pid("SendInput", pid, ",\"input\":{\"pty\":\"YQ==\"}"), 200,
		"which takes input");
	is_int(with_pid("SendSignal", pid, ",\"signal\":\"SIGNAL_SIGTERM\"}"), 400,
		"a broken request");
	is_int(with_pid("SendSignal", pid, ",\"signal\":\"SIGNAL_SIGTERM\""), 200, "a signal");
	a = finish(&other);
	{
		unsigned flags;
		char *lines = messages(&a, &flags);
		struct buffer out = carried(lines, "pty");

		ok(memmem(out.bytes + out.head, out.len, "30 40", 5),
			"the command's terminal has the new size");
		has_str(lines, "\"exitCode\":4", "the command ended by its signal handler");
		buffer_free(&out);
		free(lines);
	}
	answer_free(&a);
	a = post("/process.Process/List", "{}");
	is_str(a.body, "{\"processes\":[]}", "no command is left in the list");
	answer_free(&a);

	c = ask_stream("/process.Process/Start", CONNECT,
		"{\"process\":{\"cmd\":\"sleep\",\"args\":[\"344\"]},\"tag\":\"stays\"}");
	pid = pid_of(&c);
	leave(&c);
	until(NULL, http_open(rig.server) == 0);
	ok(until(NULL, runs("sleep 344")), "what has a tag goes on without a client");
	is_int(with_pid("SendSignal", pid, ",\"signal\":\"SIGNAL_SIGKILL\""), 200,
		"until it is killed");
	ok(until(NULL, !runs("sleep 344")), "a command that was killed ends");
	c = ask_stream("/process.Process/Start", CONNECT,
		"{\"process\":{\"cmd\":\"sleep\",\"args\":[\"345\"]}}");
	pid = pid_of(&c);
	leave(&c);
	until(NULL, http_open(rig.server) == 0);
	ok(until(NULL, runs("sleep 345")), "a command without followers goes on");
	is_int(with_pid("SendSignal", pid, ",\"signal\":\"SIGNAL_SIGKILL\""), 200,
		"until it is killed");
	ok(until(NULL, !runs("sleep 345")), "a command without followers ends when it is killed");
}

int main(void)
{
	json_t *template_env = json_pack("[s,s]", "A=template", "B=template");
	json_t *env = json_pack("{s:s,s:s}", "B", "sandbox", "C", "sandbox");
	struct client left;

	signal(SIGPIPE, SIG_IGN);
	if (!rig_start()) {
		tap_skip("the agent has not been built");
		return tap_done();
	}
	rig.target.template_env = template_env;
	rig.target.env = env;
	test_exec();
	test_exec_wrong();
	test_exec_stream();
	test_slow();
	test_gone();
	test_sandbox();
	test_start();
	test_start_wrong();
	test_input();
	test_control();
	left = ask_stream("/process.Process/Start", CONNECT,
		"{\"process\":{\"cmd\":\"cat\"},\"tag\":\"left\"}");
	pid_of(&left);
	rig_stop(); /* with a command that runs */
	leave(&left);
	json_decref(template_env);
	json_decref(env);
	return tap_done();
}
