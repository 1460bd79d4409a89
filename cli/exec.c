/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake exec: a command in a sandbox of the pool. Standard output and error and the exit status
 * pass through, as with `parbake run`; so does standard input where it is no terminal, or with -i.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/client_stream.h"
#include "cli/terminal.h"
#include "common/buffer.h"
#include "common/limits.h"

struct args {
	const char *sandbox;
	struct client_exec exec;
	struct words env;
	bool interactive, json;
};

/* With --json: what came of each stream. */
struct kept {
	struct buffer bytes[2];
	bool cut[2];
};

/* Is there input? Not where nobody would type it, and not that of a device that has none. */
static int input_of(const struct args *rq)
{
	struct stat st;

	if (rq->interactive)
		return STDIN_FILENO;
	if (rq->exec.tty || fstat(STDIN_FILENO, &st) < 0 || S_ISCHR(st.st_mode))
		return -1;
	return STDIN_FILENO;
}

static int pass_output(void *user, int fd, const void *bytes, size_t len)
{
	(void)user;
	return terminal_pass(fd, bytes, len);
}

static int keep_output(void *user, int fd, const void *bytes, size_t len)
{
	struct kept *kept = user;
	unsigned i = fd == STDERR_FILENO;

	if (len > LIMIT_OUTPUT_BYTES - kept->bytes[i].len) {
		len = LIMIT_OUTPUT_BYTES - kept->bytes[i].len;
		kept->cut[i] = true;
	}
	buffer_append(&kept->bytes[i], bytes, len);
	return 0;
}

static json_t *total(int64_t told, size_t kept)
{
	return json_integer(told >= 0 ? (json_int_t)told : (json_int_t)kept);
}

static void print_json(const struct client_exit *e, const struct kept *kept)
{
	cleanup_json json_t *obj = json_object();

	json_object_set_new(obj, "exit_code", e->code >= 0 ? json_integer(e->code) : json_null());
	json_object_set_new(obj, "signal", e->signal ? json_integer(e->signal) : json_null());
	json_object_set_new(obj, "timed_out", json_boolean(e->timed_out));
	json_object_set_new(obj, "out_of_memory", json_boolean(e->oom));
	json_object_set_new(
		obj, "stdout", json_lossy(buffer_text(&kept->bytes[0]) ?: "", kept->bytes[0].len));
	json_object_set_new(
		obj, "stderr", json_lossy(buffer_text(&kept->bytes[1]) ?: "", kept->bytes[1].len));
	json_object_set_new(obj, "stdout_bytes", total(e->total_out, kept->bytes[0].len));
	json_object_set_new(obj, "stderr_bytes", total(e->total_err, kept->bytes[1].len));
	json_object_set_new(obj, "stdout_cut", json_boolean(e->cut_out || kept->cut[0]));
	json_object_set_new(obj, "stderr_cut", json_boolean(e->cut_err || kept->cut[1]));
	json_print_line(obj);
}

static void say_cut(const char *which, bool cut, int64_t bytes)
{
	if (cut && bytes >= 0)
		fprintf(stderr, "parbake: %s was cut: %lld bytes were written\n", which,
			(long long)bytes);
	else if (cut)
		fprintf(stderr, "parbake: %s was cut\n", which);
}

static int conclude(const struct args *rq, const struct client_exit *e, const struct kept *kept)
{
	if (rq->json) {
		print_json(e, kept);
	} else {
		say_cut("standard output", e->cut_out, e->total_out);
		say_cut("standard error", e->cut_err, e->total_err);
		if (e->oom)
			fprintf(stderr,
				"parbake: out of memory: the kernel killed a process of the "
				"command\n");
		if (e->timed_out)
			fprintf(stderr, "parbake: timed out: everything it started was killed\n");
	}
	if (e->timed_out)
		return CLI_TIMED_OUT;
	return e->code >= 0 ? e->code : CLI_SIGNAL + e->signal;
}

static int not_run(int r)
{
	return r == -ENOENT       ? CLI_NOT_FOUND
		: r == -EACCES    ? CLI_NOT_EXECUTABLE
		: r == -ETIMEDOUT ? CLI_TIMED_OUT
				  : CLI_NOT_RUN;
}

static int run_command(struct args *rq)
{
	cleanup_client struct client *c = NULL;
	cleanup_free char *id = NULL;
	struct client_exec *spec = &rq->exec;
	struct client_exit e = {0};
	struct kept kept = {0};
	struct err err = {0};
	int r, status;

	if (client_open(rq->sandbox, &c, &id, &err) < 0) {
		cli_fail(&err);
		return CLI_NOT_RUN;
	}
	spec->env = rq->env.items;
	spec->stdin_fd = input_of(rq);
	spec->output = rq->json ? keep_output : pass_output;
	spec->user_data = &kept;
	if (spec->tty && spec->stdin_fd >= 0)
		terminal_raw();
	r = spec->tty || spec->stdin_fd >= 0 ? client_process_run(c, id, spec, &e, &err)
					     : client_exec_run(c, id, spec, &e, &err);
	terminal_restore();
	if (r < 0)
		cli_fail(&err);
	status = r < 0 ? not_run(r) : conclude(rq, &e, &kept);
	buffer_free(&kept.bytes[0]);
	buffer_free(&kept.bytes[1]);
	return status;
}

static int run(void *user)
{
	struct args *rq = user;

	if (!rq->exec.argv == !rq->exec.shell)
		return command_usage(&command_exec, "give one of: -- COMMAND, --shell LINE");
	if (rq->json && rq->exec.tty)
		return command_usage(
			&command_exec, "--json and -t: what a terminal shows is no JSON");
	return run_command(rq);
}

static const struct option_entry options[] = {
	{"shell", 0, OPTION_TEXT, "LINE", AT(exec.shell), "run a line of sh(1)"},
	{"interactive", 'i', AT(interactive), "pass standard input on, also from a terminal"},
	{"tty", 't', AT(exec.tty), "give the command a terminal"},
	{"env", 'e', OPTION_PAIRS, "K=V", AT(env), "set a variable", .max = LIMIT_CONFIG_ENV},
	{"cwd", 'C', OPTION_TEXT, "DIR", AT(exec.cwd), "directory in the sandbox"},
	{"user", 'u', OPTION_TEXT, "USER", AT(exec.user), "name or uid[:gid]"},
	{"timeout", 0, OPTION_DURATION, "T", AT(exec.timeout_ms),
		"kill the whole process tree after T"},
	{"json", AT(json), "print one JSON object with everything instead"},
	{0},
};

static const struct operand_entry operands[] = {
	{"ID", AT(sandbox), NAMES_SANDBOX},
	{"COMMAND", AT(exec.argv), .optional = true, .names = NAMES_COMMAND},
	{0},
};

const struct command command_exec = {"exec", "run a command in a sandbox of the pool",
	.notes = "One of -- COMMAND and --shell says what to run. Exit status: as `parbake run` "
		 "has it.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args),
	.defaults = &(const struct args){.exec.stdin_fd = -1}, .run = run};
