/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting until what a recipe starts is ready. Most checks fail for a while and then pass. Some can
 * never pass, and the way in which they fail shows it: a name that is not defined, a line that the
 * shell cannot parse, a program that nothing installs. One such failure may be chance (a file that
 * is being written is being read), two of the same are not.
 */
#include "bake/ready.h"

#include <stdio.h>
#include <string.h>

#include "bake/guest_install.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/str.h"

#define POLL_MS 200
#define CHECK_MS 60000
#define NOTE_MS 30000 /* after that long what it says is shown again */
#define SHELL_SYNTAX 2 /* a shell's exit status for what it cannot parse … */
#define SHELL_DENIED 126 /* … may not execute … */
#define SHELL_NOT_FOUND 127 /* … does not find: POSIX, "Exit Status for Commands" */

/* Exceptions of code that is wrong, wherever and whenever it runs. */
static const char *const wrong_code[] = {"SyntaxError", "IndentationError", "TabError", "NameError",
	"UnboundLocalError", "ImportError", "ModuleNotFoundError"};

/* The last line of @text with anything in it: a copy. NULL: there is none. */
static char *last_line(const char *text)
{
	size_t len = text ? strlen(text) : 0;
	const char *begin;

	while (len && strchr("\n\r\t ", text[len - 1]))
		len--;
	if (!len)
		return NULL;
	begin = memrchr(text, '\n', len);
	begin = begin ? begin + 1 : text;
	return str_printf("%.*s", (int)(text + len - begin), begin);
}

static char *describe(const struct guest_result *res)
{
	cleanup_free char *said = last_line(res->err);

	if (res->timed_out)
		return str_printf("no end within %d s", CHECK_MS / 1000);
	if (res->context_gone)
		return str_dup("the interpreter died");
	if (res->ename) {
		/* an exception's text may have many lines: the first says what it is */
		size_t len = strcspn(res->evalue ?: "", "\r\n");

		return str_printf(
			"%s%s%.*s", res->ename, len ? ": " : "", (int)len, res->evalue ?: "");
	}
	if (!said)
		said = last_line(res->out);
	if (res->exit_signal)
		return str_printf("signal %d%s%s", res->exit_signal, said ? ": " : "", said ?: "");
	return str_printf("exit status %d%s%s", res->exit_code, said ? ": " : "", said ?: "");
}

static bool is_wrong_code(const char *ename)
{
	for (size_t i = 0; i < sizeof(wrong_code) / sizeof(wrong_code[0]); i++) {
		if (!strcmp(ename, wrong_code[i]))
			return true;
	}
	return false;
}

static bool is_hopeless(const struct guest_result *res, bool service)
{
	if (res->timed_out || res->exit_signal)
		return false;
	if (res->context_gone)
		return true; /* nobody starts it again */
	if (res->ename)
		return is_wrong_code(res->ename);
	if (res->exit_code == SHELL_SYNTAX)
		return res->err && strcasestr(res->err, "syntax error");
	/* what the recipe starts may be what makes the program */
	return (res->exit_code == SHELL_DENIED || res->exit_code == SHELL_NOT_FOUND) && !service;
}

enum ready_verdict ready_judge(const struct guest_result *res, bool service, char **ret_line)
{
	if (!res->timed_out && !res->context_gone && !res->ename && !res->exit_signal &&
		!res->exit_code)
		return READY_YES;
	*ret_line = describe(res);
	return is_hopeless(res, service) ? READY_NEVER : READY_NOT_YET;
}

static int check_once(struct oven *o, const struct recipe *r, const char *const *env,
	enum ready_verdict *ret, char **ret_line, struct err *err)
{
	struct guest_exec_spec spec = {
		.shell = r->ready, .env = env, .timeout_ms = CHECK_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int64_t deadline = clock_deadline(2 * CHECK_MS);
	int rc;

	if (r->ready_python)
		rc = guest_code(o->guest, NULL, r->ready, &spec, deadline, o->alive_fd, &res, err);
	else
		rc = guest_exec(o->guest, &spec, deadline, o->alive_fd, &res, err);
	if (rc == 0)
		*ret = ready_judge(&res, r->start_command != NULL, ret_line);
	return rc;
}

/* What the check said last, and since when that has been shown. */
struct said {
	char *line;
	int64_t again; /* deadline for showing it once more */
};

/* Takes @line. Returns whether it is the same as before. */
static bool tell(struct oven *o, struct said *s, char *line)
{
	bool same = s->line && !strcmp(s->line, line);

	if (!same || !clock_left_ms(s->again)) {
		progress_note(o->progress, "[start] ready: not yet: %s", line);
		s->again = clock_deadline(NOTE_MS);
	}
	free(s->line);
	s->line = line;
	return same;
}

static int wait(struct oven *o, const struct recipe *r, struct said *s, struct err *err)
{
	cleanup_free const char **env = guest_env(r, NULL);
	int64_t give_up = clock_deadline(READY_MS);
	const bool never = false;

	for (;;) {
		enum ready_verdict verdict = READY_NOT_YET;
		char *line = NULL;
		int rc = check_once(o, r, env, &verdict, &line, err);
		bool same;

		if (rc || verdict == READY_YES)
			return rc;
		same = tell(o, s, line);
		if (verdict == READY_NEVER && same)
			return err_set(
				err, EIO, "it will not pass, however long one waits: %s", line);
		if (!clock_left_ms(give_up))
			return err_set(
				err, ETIMEDOUT, "not ready within %d s: %s", READY_MS / 1000, line);
		rc = guest_wait(o->guest, &never, clock_deadline(POLL_MS), o->alive_fd, err);
		if (rc != -ETIMEDOUT)
			return rc;
	}
}

int ready_wait(struct oven *o, const struct recipe *r, struct err *err)
{
	struct said s = {0};
	int rc = wait(o, r, &s, err);

	free(s.line);
	if (rc)
		err_prefix(err, "[start] ready");
	return rc;
}
