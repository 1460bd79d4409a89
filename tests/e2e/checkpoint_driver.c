/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes by command, for tests/e2e/checkpoint.sh: lines on standard input, one answer each on standard
 * output ("ok …" or "error ERRNO …"), until the end of input. Sandboxes have numbers from 0 to 15.
 *
 *     template NAME            the template of all that follows
 *     create N                 hostname "first-N"
 *     exec N COMMAND           its standard output, cut at the first newline
 *     spawn N COMMAND          in the background, beyond restores
 *     capture N DIR go|stop    "ok memory_bytes disk_bytes stopped_ns"
 *     restore N DIR same|fork  from a capture: "ok", then how long it took, and its parts, in ns
 *     spare N DIR              the same, prepared as a spare and then activated
 *     pid N                    of its monitor
 *     kill N
 *     publish DIR NAME
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "restore/checkpoint.h"

#define SANDBOXES 16
#define SOON clock_deadline(60000)

static struct store *store;
static struct template *template;
static struct sandbox *sandboxes[SANDBOXES];

static void answer(int r, struct err *err, const char *text)
{
	for (char *at = err->text; r < 0 && *at; at++) {
		if (*at == '\n')
			*at = ' ';
	}
	if (r < 0)
		printf("error %s %s\n", strerrorname_np(-r) ?: "?", err->text);
	else
		printf("ok %s\n", text);
	fflush(stdout);
}

static int do_template(const char *name, struct err *err)
{
	struct template_options opt = {.no_uffd = getenv("CAPTURE_PRIVATE") != NULL};
	struct store_manifest m;
	int r = store_resolve(store, name, &m, err);

	if (r < 0)
		return r;
	if (template)
		template_free(template);
	template = NULL;
	r = template_open(store, &m, &opt, &template, err);
	store_manifest_clear(&m);
	return r;
}

static int do_exec(struct sandbox *sb, const char *command, bool detach, char *text, size_t size,
	struct err *err)
{
	struct guest_exec_spec spec = {.shell = command, .stdin_fd = -1, .detach = detach};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_exec(
		sandbox_guest(sb), &spec, SOON, machine_pidfd(sandbox_machine(sb)), &res, err);

	if (r < 0)
		return r;
	if (res.out)
		snprintf(text, size, "%.*s", (int)strcspn(res.out, "\n"), res.out);
	if (res.exit_code)
		return err_set(err, EIO, "status %d: %s", res.exit_code, res.err);
	return 0;
}

static int do_capture(
	struct sandbox *sb, const char *dir, bool go_on, char *text, size_t size, struct err *err)
{
	struct checkpoint_info info;
	int r = sandbox_capture(sb, dir, go_on, SOON, &info, err);

	if (r == 0)
		snprintf(text, size, "%" PRIu64 " %" PRIu64 " %" PRId64, info.memory_bytes,
			info.disk_bytes, info.stopped_ns);
	return r;
}

static int do_restore(struct sandbox **ret, const char *dir, const char *how, char *text,
	size_t size, struct err *err)
{
	cleanup_checkpoint struct checkpoint *c = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	const struct sandbox_trace *t;
	int64_t begin = clock_now_ns(), opened;
	int r = checkpoint_open(dir, &c, err);

	opened = clock_now_ns();
	if (r == 0)
		r = sandbox_standby_from(template, c, !strcmp(how, "same"), &sb, err);
	if (r == 0 && !strcmp(how, "spare")) {
		r = sandbox_prepare(sb, SOON, err);
		if (r == 0)
			r = sandbox_activate(sb, "spare", SOON, err);
	} else if (r == 0) {
		r = sandbox_restore(sb, NULL, SOON, err);
	}
	if (r < 0) {
		if (sb)
			sandbox_explain(sb, err);
		return r;
	}
	t = sandbox_trace(sb);
	snprintf(text, size,
		"%" PRId64 " opened %" PRId64 " overlay %" PRId64 " memory %" PRId64
		" ready %" PRId64 " loaded %" PRId64 " answered %" PRId64,
		clock_now_ns() - begin, opened - begin, t->overlay_made - begin,
		t->memory_got - begin, t->monitor_ready - begin, t->state_loaded - begin,
		t->answered - begin);
	*ret = steal_ptr(&sb);
	return 0;
}

static int do_publish(const char *dir, const char *name, struct err *err)
{
	cleanup_checkpoint struct checkpoint *c = NULL;
	struct store_manifest m;
	int r = checkpoint_open(dir, &c, err);

	if (r == 0)
		r = checkpoint_publish(store, c, name, NULL, NULL, &m, err);
	if (r == 0)
		store_manifest_clear(&m);
	return r;
}

static void run(char *line)
{
	char *save, *op = strtok_r(line, " ", &save), *number, *arg, *rest, text[4096] = "";
	struct sandbox **sb = NULL;
	struct err err = {0};
	int r = -EINVAL;

	if (!op || !(template || !strcmp(op, "template") || !strcmp(op, "publish")))
		return;
	number = strtok_r(NULL, " ", &save) ?: "";
	arg = !strcmp(op, "exec") || !strcmp(op, "spawn") ? save : strtok_r(NULL, " ", &save);
	rest = arg && arg != save ? strtok_r(NULL, " ", &save) : NULL;
	if (strcmp(op, "template") && strcmp(op, "publish"))
		sb = &sandboxes[atoi(number) % SANDBOXES];
	err_set(&err, EINVAL, "no such command");
	if (!strcmp(op, "template"))
		r = do_template(number, &err);
	else if (!strcmp(op, "publish") && arg)
		r = do_publish(number, arg, &err);
	else if (!strcmp(op, "create") && !*sb) {
		snprintf(text, sizeof(text), "first-%s", number);
		r = sandbox_create(template, text, SOON, sb, &err);
		if (r == 0)
			snprintf(text, sizeof(text), "%" PRId64 " %" PRId64,
				sandbox_trace(*sb)->answered - sandbox_trace(*sb)->begin,
				sandbox_trace(*sb)->answered - sandbox_trace(*sb)->resumed);
	} else if (!strcmp(op, "exec") && *sb)
		r = do_exec(*sb, arg, false, text, sizeof(text), &err);
	else if (!strcmp(op, "spawn") && *sb)
		r = do_exec(*sb, arg, true, text, sizeof(text), &err);
	else if (!strcmp(op, "capture") && *sb && rest)
		r = do_capture(*sb, arg, !strcmp(rest, "go"), text, sizeof(text), &err);
	else if (!strcmp(op, "restore") && !*sb && rest)
		r = do_restore(sb, arg, rest, text, sizeof(text), &err);
	else if (!strcmp(op, "pid") && *sb) {
		snprintf(text, sizeof(text), "%d", machine_pid(sandbox_machine(*sb)));
		r = 0;
	} else if (!strcmp(op, "kill") && *sb) {
		sandbox_free(*sb);
		*sb = NULL;
		r = 0;
	}
	answer(r, &err, text);
}

int main(void)
{
	cleanup_free char *line = NULL;
	size_t room = 0;
	ssize_t n;
	struct err err;

	if (store_open(NULL, false, &store, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	while ((n = getline(&line, &room, stdin)) > 0) {
		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		run(line);
	}
	for (int i = 0; i < SANDBOXES; i++)
		sandbox_free(sandboxes[i]);
	if (template)
		template_free(template);
	store_free(store);
	return 0;
}
