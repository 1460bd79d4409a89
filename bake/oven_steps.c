/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running steps in the oven. A step's output is shown as progress; its end is success, or an error
 * that quotes its last lines. It has no terminal and no stdin. The guest's command interpreter
 * stops at the first command that fails; bash does so within pipes, too.
 */
#include <stdio.h>
#include <string.h>

#include "bake/oven.h"
#include "common/clock.h"
#include "bake/limits.h"

#define TAIL_LINES 12
#define TAIL_LINE 120
#define GRACE_MS 60000

/* Output cut into lines, the last of them kept. */
struct lines {
	struct progress *progress;
	const struct lent *lent;
	const char *label;
	struct line {
		char text[LIMIT_STEP_LINE + 1];
		size_t len;
		bool returned; /* a carriage return came: what is next begins the line anew */
	} line[2]; /* standard output, standard error */
	char tail[TAIL_LINES][TAIL_LINE + 1];
	unsigned n;
};

/* The length of the character at @s that may go to a terminal: 0 where there is none. */
static size_t printable(const unsigned char *s, size_t len)
{
	size_t n = s[0] < 0x80 ? 1
		: s[0] < 0xc2  ? 0
		: s[0] < 0xe0  ? 2
		: s[0] < 0xf0  ? 3
		: s[0] < 0xf5  ? 4
			       : 0;

	if (n > len || (n == 1 && ((s[0] < ' ' && s[0] != '\t') || s[0] == 0x7f)))
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	/* U+0080 to U+009F are control characters, too */
	return n == 2 && s[0] == 0xc2 && s[1] < 0xa0 ? 0 : n;
}

static void clean(char *text, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t n = printable((unsigned char *)text + i, len - i);

		if (!n)
			text[i] = '?';
		i += n ? n : 1;
	}
}

static void end_line(struct lines *l, struct line *line)
{
	size_t len = line->len;

	line->text[len] = '\0';
	line->len = 0;
	line->returned = false;
	if (!len)
		return;
	if (l->lent)
		lent_mask(l->lent, line->text, len);
	clean(line->text, len);
	progress_note(l->progress, "%s: %s", l->label, line->text);
	len = len > TAIL_LINE ? TAIL_LINE : len;
	memcpy(l->tail[l->n % TAIL_LINES], line->text, len);
	l->tail[l->n++ % TAIL_LINES][len] = '\0';
}

static int take_output(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct lines *l = user;
	struct line *line = &l->line[channel == PROTO_ERR];

	for (size_t i = 0; i < len; i++) {
		uint8_t c = bytes[i];

		if (c == '\n' || line->len == LIMIT_STEP_LINE)
			end_line(l, line);
		if (c == '\r') {
			line->returned = true;
		} else if (c != '\n') {
			if (line->returned)
				line->len = 0; /* a progress bar redraws its line */
			line->returned = false;
			line->text[line->len++] = (char)c;
		}
	}
	return 0;
}

static void quote_tail(const struct lines *l, struct err *err)
{
	for (unsigned i = l->n > TAIL_LINES ? l->n - TAIL_LINES : 0; i < l->n; i++)
		err_append(err, "\n  %s", l->tail[i % TAIL_LINES]);
}

/* How a command or code ended, as an error of it; 0 where it ended well. */
static int judge(const struct guest_result *res, struct err *err)
{
	if (res->timed_out)
		return err_set(err, ETIMEDOUT, "not done within %d minutes", LIMIT_STEP_MS / 60000);
	if (res->context_gone)
		return err_set(err, EIO, "the interpreter died");
	if (res->ename)
		return err_set(err, EIO, "%s", res->traceback ? res->traceback : res->ename);
	if (res->exit_signal)
		return err_set(err, EIO, "killed by signal %d%s", res->exit_signal,
			res->oom ? " (out of memory: raise [machine] memory)" : "");
	if (res->exit_code)
		return err_set(err, EIO, "exit status %d%s", res->exit_code,
			res->oom ? " (out of memory: raise [machine] memory)" : "");
	return 0;
}

static int finish(
	struct oven *o, struct lines *l, int rc, const struct guest_result *res, struct err *err)
{
	end_line(l, &l->line[0]);
	end_line(l, &l->line[1]);
	if (rc) {
		if (machine_get_state(o->machine) == MACHINE_ENDED)
			machine_end_reason(o->machine, err);
		else
			oven_explain(o, err);
	} else {
		rc = judge(res, err);
		if (rc)
			quote_tail(l, err);
	}
	if (rc)
		err_prefix(err, "%s", l->label);
	return rc;
}

/* @argv, or, where that is NULL, @code in the interpreter. */
static int run_step(struct oven *o, const char *label, const char *const *argv,
	const char *const *env, const char *code, struct err *err)
{
	cleanup_free struct lines *l = calloc(1, sizeof(*l));
	cleanup_guest_result struct guest_result res = {0};
	struct guest_exec_spec spec = {
		.argv = argv,
		.env = env,
		.timeout_ms = LIMIT_STEP_MS,
		.limit_out = LIMIT_STEP_OUTPUT,
		.limit_err = LIMIT_STEP_OUTPUT,
		.stdin_fd = -1,
		.output = take_output,
		.user_data = l,
	};
	int64_t deadline = clock_deadline(LIMIT_STEP_MS + GRACE_MS);
	int rc;

	if (!l)
		abort();
	l->progress = o->progress;
	l->lent = o->lent;
	l->label = label;
	if (argv)
		rc = guest_exec(o->guest, &spec, deadline, o->alive_fd, &res, err);
	else
		rc = guest_code(o->guest, NULL, code, &spec, deadline, o->alive_fd, &res, err);
	return finish(o, l, rc, &res, err);
}

int oven_shell(struct oven *o, const char *label, const char *line, const char *const *env,
	struct err *err)
{
	const char *const bash[] = {"/bin/bash", "-e", "-o", "pipefail", "-c", line, NULL};
	const char *const sh[] = {"/bin/sh", "-e", "-c", line, NULL};

	return run_step(o, label, o->bash ? bash : sh, env, NULL, err);
}

int oven_python(struct oven *o, const char *label, const char *code, struct err *err)
{
	return run_step(o, label, NULL, NULL, code, err);
}
