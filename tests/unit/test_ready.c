/* SPDX-License-Identifier: Apache-2.0 */
/* What a ready check's end means, and the one line that says why. */
#include <stdlib.h>
#include <string.h>

#include "bake/ready.h"
#include "common/cleanup.h"
#include "tests/unit/tap.h"

#define LONG                                                                                       \
	"a text that is far longer than what used to be kept of an exception, which was its "      \
	"class alone"

static const struct {
	const char *what;
	struct guest_result res;
	bool service;
	enum ready_verdict want;
	const char *line;
} cases[] = {
	{"a check that passes", {.exit_code = 0}, true, READY_YES, NULL},
	{"code that passes and prints", {.exit_code = 0, .out = (char *)"fine\n"}, false, READY_YES,
		NULL},
	{"a refused connection", {.exit_code = 7, .err = (char *)"one\ncurl: (7) refused\n"}, true,
		READY_NOT_YET, "exit status 7: curl: (7) refused"},
	{"a failure without a word", {.exit_code = 1}, true, READY_NOT_YET, "exit status 1"},
	{"a failure told on standard output", {.exit_code = 1, .out = (char *)"a\nb"}, true,
		READY_NOT_YET, "exit status 1: b"},
	{"a signal", {.exit_code = -1, .exit_signal = 9}, true, READY_NOT_YET, "signal 9"},
	{"a check that does not end", {.timed_out = true, .exit_code = -1, .exit_signal = 9}, true,
		READY_NOT_YET, "no end within 60 s"},
	{"a name that is not defined",
		{.ename = (char *)"NameError", .evalue = (char *)"name 'sevrer' is not defined"},
		true, READY_NEVER, "NameError: name 'sevrer' is not defined"},
	{"code that does not parse",
		{.ename = (char *)"SyntaxError", .evalue = (char *)"invalid syntax (cell, line 1)"},
		true, READY_NEVER, "SyntaxError: invalid syntax (cell, line 1)"},
	{"a module that is not installed",
		{.ename = (char *)"ModuleNotFoundError",
			.evalue = (char *)"No module named 'flask'"},
		false, READY_NEVER, "ModuleNotFoundError: No module named 'flask'"},
	{"a server that is not up",
		{.ename = (char *)"ConnectionRefusedError", .evalue = (char *)"[Errno 111] " LONG},
		true, READY_NOT_YET, "ConnectionRefusedError: [Errno 111] " LONG},
	{"an assertion without a text", {.ename = (char *)"AssertionError", .evalue = (char *)""},
		true, READY_NOT_YET, "AssertionError"},
	{"an interpreter that died", {.context_gone = true}, true, READY_NEVER,
		"the interpreter died"},
	{"a shell line that does not parse",
		{.exit_code = 2, .err = (char *)"sh: 1: Syntax error: \"fi\" unexpected\n"}, true,
		READY_NEVER, "exit status 2: sh: 1: Syntax error: \"fi\" unexpected"},
	{"status 2 for another reason", {.exit_code = 2, .err = (char *)"grep: no such file\n"},
		false, READY_NOT_YET, "exit status 2: grep: no such file"},
	{"a program that is not there",
		{.exit_code = 127, .err = (char *)"sh: 1: crul: not found\n"}, false, READY_NEVER,
		"exit status 127: sh: 1: crul: not found"},
	{"one that what is started may make",
		{.exit_code = 127, .err = (char *)"sh: 1: /srv/check: not found\n"}, true,
		READY_NOT_YET, "exit status 127: sh: 1: /srv/check: not found"},
};

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_free char *line = NULL;

		is_int(ready_judge(&cases[i].res, cases[i].service, &line), cases[i].want, "%s",
			cases[i].what);
		if (cases[i].line)
			is_str(line, cases[i].line, "%s: what is said", cases[i].what);
		else
			ok(!line, "%s: nothing is said", cases[i].what);
	}
	return tap_done();
}
