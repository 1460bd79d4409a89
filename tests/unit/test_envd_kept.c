/* SPDX-License-Identifier: Apache-2.0 */
/* Commands over HTTP that outlive the channel to their sandbox, and words that are no UTF-8, against the real agent. */
#include "tests/unit/envd_rig.h"

#include <signal.h>
#include <sys/stat.h>

#include "common/base64.h"
#include "common/limits.h"

static struct client start(const char *body)
{
	return ask_stream("/process.Process/Start", CONNECT, body);
}

static struct client connect_to(const char *selector)
{
	char body[200];

	snprintf(body, sizeof(body), "{\"process\":{%s}}", selector);
	return ask_stream("/process.Process/Connect", CONNECT, body);
}

/* What the stream @c carried of @key; the rest of it is let go. Caller frees both. */
static char *ends_with(struct client *c, const char *key, char **ret_lines)
{
	struct answer a = finish(c);
	unsigned flags;
	struct buffer out;

	*ret_lines = messages(&a, &flags);
	out = carried(*ret_lines, key);
	buffer_append(&out, "", 1);
	answer_free(&a);
	return (char *)out.bytes;
}

static void test_found_again(void)
{
	struct client c =
		start("{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"n=0; while read x; do "
		      "n=$((n+1)); echo $n:$x; done; exit 7\"]},\"tag\":\"mine\"}");
	unsigned pid = pid_of(&c);
	char selector[64], *lines;
	struct answer a;

	ok(pid > 1 && kill((pid_t)pid, 0) == 0, "a command's number is that of its process");
	is_int(with_pid("SendInput", pid, ",\"input\":{\"stdin\":\"YQo=\"}"), 200,
		"a command that is followed takes input");
	ok(until(&c, says(&c, "MTphCg==")), "a command that took input says so");
	rig_reconnect();
	free(ends_with(&c, "stdout", &lines));
	has_str(lines, "\"code\":\"unavailable\"",
		"the channel goes, and whoever follows it is told");
	free(lines);
	a = post("/process.Process/List", "{}");
	snprintf(selector, sizeof(selector), "\"pid\":%u", pid);
	has_str(a.body, selector, "a command is listed after its client left");
	has_str(a.body, "\"tag\":\"mine\"", "with its tag");
	has_str(a.body, "\"cmd\":\"sh\"", "a listed command has its words");
	answer_free(&a);
	is_int(with_pid("SendInput", pid, ",\"input\":{\"stdin\":\"Ygo=\"}"), 200,
		"a command is found by its number, be nobody following it");
	c = connect_to(selector);
	is_int(pid_of(&c), pid, "Connect follows it");
	a = call("POST", "/process.Process/SendSignal", JSON,
		"{\"process\":{\"tag\":\"mine\"},\"signal\":\"SIGNAL_SIGCONT\"}");
	is_int(a.status, 200, "a command is found by its tag as well");
	answer_free(&a);
	is_int(with_pid("SendInput", pid, ",\"input\":{\"stdin\":\"Ywo=\"}"), 200,
		"a command takes more input");
	/* "3:c", alone or behind "2:b", which nobody may have followed */
	ok(until(&c, says(&c, "MzpjCg==") || says(&c, "MjpiCjM6Ywo=")),
		"a command has counted what came before");
	a = call("POST", "/process.Process/Start", CONNECT, "");
	answer_free(&a);
	rig_reconnect();
	leave(&c);
	c = connect_to("\"tag\":\"mine\"");
	is_int(pid_of(&c), pid, "Connect finds a command by its tag");
	is_int(with_pid("CloseStdin", pid, ""), 200, "a command's input is closed");
	free(ends_with(&c, "stdout", &lines));
	has_str(lines, "\"exitCode\":7", "a command whose input is closed ends");
	free(lines);
	c = connect_to(selector);
	free(ends_with(&c, "stdout", &lines));
	has_str(lines, "\"code\":\"not_found\"", "a command that ended is not found by its number");
	free(lines);
	c = connect_to("\"tag\":\"mine\"");
	free(ends_with(&c, "stdout", &lines));
	has_str(lines, "no command with the tag mine runs",
		"a command that ended is not found by its tag");
	free(lines);
}

/* Two ask for one at once while it is looked for. */
static void test_together(void)
{
	struct client c = start("{\"process\":{\"cmd\":\"cat\"}}"), d;
	unsigned pid = pid_of(&c);
	char selector[64];

	rig_reconnect();
	leave(&c);
	snprintf(selector, sizeof(selector), "\"pid\":%u", pid);
	c = connect_to(selector);
	d = connect_to(selector);
	is_int(pid_of(&c), pid, "two look for one");
	is_int(pid_of(&d), pid, "a second client follows the same command");
	is_int(with_pid("SendSignal", pid, ",\"signal\":\"SIGNAL_SIGKILL\""), 200,
		"a command is killed by its number");
	ok(until(&c, says(&c, "signal: killed")) && until(&d, says(&d, "signal: killed")),
		"both are told");
	leave(&c);
	leave(&d);
}

static void test_terminal(void)
{
	struct client c =
		start("{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"stty size; read x; stty "
		      "size\"]},\"pty\":{\"size\":{\"rows\":0,\"cols\":0}}}");
	unsigned pid = pid_of(&c);
	char *lines, *out, selector[64];

	ok(until(&c, says(&c, "MjQgODANCg==")), "a terminal of 0 by 0 has 24 by 80");
	rig_reconnect();
	leave(&c);
	snprintf(selector, sizeof(selector), "\"pid\":%u", pid);
	c = connect_to(selector);
	pid_of(&c);
	is_int(with_pid("Update", pid, ",\"pty\":{\"size\":{\"rows\":30,\"cols\":40}}"), 200,
		"a command with a terminal can be given another size");
	is_int(with_pid("SendInput", pid, ",\"input\":{\"pty\":\"Cg==\"}"), 200, "with its input");
	out = ends_with(&c, "pty", &lines);
	has_str(out, "30 40", "a command sees the new size of its terminal");
	free(out);
	free(lines);
}

/* What is no UTF-8 arrives as it is. */
static void test_bytes(void)
{
	static const char script[] = "printf '%s|%s|%s' \"$1\" \"$V\" \"$(pwd)\"";
	cleanup_free char *word = base64_encode("a\xff", 2), *var = base64_encode("V=\xe9", 3);
	cleanup_free char *sh = base64_encode("sh", 2), *flag = base64_encode("-c", 2);
	cleanup_free char *line = base64_encode(script, strlen(script));
	cleanup_free char *cwd = base64_encode("/tmp/parbake-b\xe9", 15), *body = NULL,
			  *other = NULL;
	static const char want[] = "a\xff|\xe9|/tmp/parbake-b\xe9";
	struct client c;
	struct answer a;
	char *lines, *out;

	if (mkdir("/tmp/parbake-b\xe9", 0700) < 0 && errno != EEXIST)
		peer_die("mkdir");
	if (asprintf(&body,
		    "{\"argv_base64\":[\"%s\",\"%s\",\"%s\",\"%s\",\"%s\"],\"env_base64\":[\"%s\"],"
		    "\"cwd_base64\":\"%s\",\"stream\":true}",
		    sh, flag, line, sh, word, var, cwd) < 0 ||
		asprintf(&other,
			"{\"process\":{\"argvBase64\":[\"%s\",\"%s\",\"%s\",\"%s\",\"%s\"],"
			"\"envsBase64\":[\"%s\"],\"cwdBase64\":\"%s\"}}",
			sh, flag, line, sh, word, var, cwd) < 0)
		abort();
	a = post("/exec", body);
	{
		struct buffer got = carried(a.body, "stdout");

		ok(got.len == strlen(want) && !memcmp(got.bytes + got.head, want, got.len),
			"words, a variable and a directory that are no UTF-8");
		buffer_free(&got);
	}
	answer_free(&a);
	c = start(other);
	out = ends_with(&c, "stdout", &lines);
	is_str(out, want, "by process.Process likewise");
	free(out);
	free(lines);
	a = post("/exec", "{\"argv_base64\":[\"%%\"]}");
	is_int(a.status, 400, "what is no base 64");
	answer_free(&a);
	a = post("/exec", "{\"argv_base64\":[\"AGE=\"]}");
	is_int(a.status, 400, "a NUL");
	has_str(a.body, "argv_base64", "an argument with a NUL is told by its place");
	answer_free(&a);
	a = post("/exec", "{\"argv\":[\"true\"],\"env_base64\":[\"QQ==\"]}");
	has_str(a.body, "NAME=VALUE", "a variable without a value");
	answer_free(&a);
	rmdir("/tmp/parbake-b\xe9");
}

/* Too much for the kernel, or for a request: which, how much, and what to do. */
static void test_too_long(void)
{
	cleanup_free char *word = malloc(150001), *body = NULL;
	struct answer a;

	memset(word, 'x', 150000);
	word[150000] = '\0';
	if (asprintf(&body, "{\"argv\":[\"true\",\"%s\"]}", word) < 0)
		abort();
	a = post("/exec", body);
	is_int(a.status, 400, "an argument that is too long");
	has_str(a.body, "argument 1 has 150000 bytes", "an over-long argument is named");
	has_str(a.body, "put it into a file, or send it to standard input",
		"the error of an over-long argument says what to do instead");
	answer_free(&a);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	if (!rig_start()) {
		tap_skip("the agent has not been built");
		return tap_done();
	}
	test_found_again();
	test_together();
	test_terminal();
	test_bytes();
	test_too_long();
	rig_stop();
	return tap_done();
}
