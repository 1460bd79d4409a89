/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake run: one sandbox for one command. Standard input, output and error and
 * the exit status pass through; the sandbox is gone when this returns, and when this
 * is killed (the monitor dies with us and owns nothing that has a name).
 */
#include "cli/cli.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/recipe/recipe.h"
#include "cli/terminal.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/limits.h"
#include "common/progress.h"
#include "common/str.h"
#include "store/signed.h"
#include "restore/train.h"

#define MAX_FILES 64
#define MAX_ENV 256

/* "here:there" of --file and --fetch, split at the last colon. */
struct copy {
	char *from, *to;
};

struct copies {
	struct copy items[MAX_FILES];
	size_t n;
};

struct args {
	const char *ref, *store_dir, *keys; /* keys: --require-signature */
	const char *code, *shell, *cwd, *user;
	const char *const *argv;
	struct words env;
	struct copies files, fetches;
	uint64_t timeout_ms, max_output;
	bool tty, json;
	char *code_read; /* owned: --code - */
};

static int take_copy(void *field, const char *option, const char *arg, struct err *err)
{
	struct copies *list = field;
	const char *colon = strrchr(arg, ':');

	if (!colon || colon == arg || !colon[1])
		return err_set(err, EINVAL, "%s %s: write FROM:TO", option, arg);
	if (list->n == MAX_FILES)
		return err_set(err, E2BIG, "more than %d of %s", MAX_FILES, option);
	list->items[list->n].from = str_printf("%.*s", (int)(colon - arg), arg);
	list->items[list->n].to = str_dup(colon + 1);
	list->n++;
	return 0;
}

static void free_copies(struct copies *list)
{
	for (size_t i = 0; i < list->n; i++) {
		free(list->items[i].from);
		free(list->items[i].to);
	}
}

static int read_code(struct args *rq, struct err *err)
{
	size_t len;
	int r;

	if (!rq->code || strcmp(rq->code, "-"))
		return 0;
	r = file_read_rest(
		STDIN_FILENO, "standard input", PROTO_BODY_MAX / 2, &rq->code_read, &len, err);
	if (r < 0)
		return r;
	if (strlen(rq->code_read) != len)
		return err_set(err, EINVAL, "--code -: there is a NUL byte in the code");
	rq->code = rq->code_read;
	return 0;
}

static int pass_output(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	(void)user;
	return terminal_pass(channel == PROTO_ERR ? STDERR_FILENO : STDOUT_FILENO, bytes, len);
}

static int put_files(struct sandbox *sb, const struct args *rq, int64_t deadline, struct err *err)
{
	for (size_t i = 0; i < rq->files.n; i++) {
		cleanup_fd int fd = open(rq->files.items[i].from, O_RDONLY | O_CLOEXEC);
		struct stat st;
		int r;

		if (fd < 0 || fstat(fd, &st) < 0)
			return err_sys(err, errno, "--file %s", rq->files.items[i].from);
		if (!S_ISREG(st.st_mode))
			return err_set(err, EINVAL, "--file %s: not a regular file",
				rq->files.items[i].from);
		r = guest_put_file(sandbox_guest(sb), fd, rq->files.items[i].to, st.st_mode & 0777,
			rq->user, deadline, machine_pidfd(sandbox_machine(sb)), err);
		if (r < 0) {
			err_prefix(err, "copy %s to %s", rq->files.items[i].from,
				rq->files.items[i].to);
			return r;
		}
	}
	return 0;
}

/* @max: a file with more bytes is none that the machine can hold, but holes: not ours to write out. */
static int fetch_one(
	struct sandbox *sb, const struct copy *c, uint64_t max, int64_t deadline, struct err *err)
{
	cleanup_publish struct publish p = PUBLISH_INIT;
	cleanup_free char *copy = str_dup(c->to);
	char *slash = strrchr(copy, '/');
	const char *name = slash ? slash + 1 : copy,
		   *dir = slash == copy ? "/"
		: slash                 ? copy
					: ".";
	int r;

	if (slash)
		*slash = '\0';
	r = publish_begin(&p, dir, err);
	if (r < 0)
		return r;
	r = guest_get_file(sandbox_guest(sb), c->from, p.fd, max, deadline,
		machine_pidfd(sandbox_machine(sb)), err);
	if (r < 0)
		return r;
	return publish_commit(&p, name, 0666 & ~cli_umask, err);
}

static int fetch_files(struct sandbox *sb, const struct snapshot_config *config,
	const struct args *rq, int64_t deadline, struct err *err)
{
	uint64_t max = config->disk_bytes > config->memory_bytes ? config->disk_bytes
								 : config->memory_bytes;

	for (size_t i = 0; i < rq->fetches.n; i++) {
		int r = fetch_one(sb, &rq->fetches.items[i], max, deadline, err);

		if (r < 0) {
			err_prefix(err, "copy %s out to %s", rq->fetches.items[i].from,
				rq->fetches.items[i].to);
			return r;
		}
	}
	return 0;
}

/* The recipe's [env], then --env: a later one wins in the agent. Caller frees the array. */
static const char **merge_env(const struct snapshot_config *config, const struct args *rq)
{
	const char **env = calloc(config->env.n + rq->env.n + 1, sizeof(*env));
	size_t n = 0;

	if (!env)
		abort();
	for (size_t i = 0; i < config->env.n; i++)
		env[n++] = config->env.items[i];
	for (size_t i = 0; i < rq->env.n; i++)
		env[n++] = rq->env.items[i];
	return env;
}

/* What a command's own failure to start, or to end in time, is as a status. */
static int not_run(int r)
{
	switch (r) {
	case -ENOENT:
		return CLI_NOT_FOUND;
	case -EACCES:
		return CLI_NOT_EXECUTABLE;
	case -ETIMEDOUT:
		return CLI_TIMED_OUT;
	default:
		return CLI_NOT_RUN;
	}
}

/* *@ret_status: our own, where it fails. */
static int execute(struct template *t, struct sandbox *sb, const struct args *rq,
	struct guest_result *res, int *ret_status, struct err *err)
{
	const struct snapshot_config *config = template_config(t);
	uint64_t timeout = rq->timeout_ms ? rq->timeout_ms
		: config->exec_timeout_ms ? config->exec_timeout_ms
					  : LIMIT_EXEC_TIMEOUT_MS;
	cleanup_free const char **env = merge_env(config, rq);
	cleanup_fd int resize_fd = -1;
	struct guest_exec_spec spec = {
		.argv = rq->argv,
		.shell = rq->shell,
		.env = env,
		.cwd = rq->cwd,
		.user = rq->user,
		.timeout_ms = timeout,
		.limit_out = rq->max_output ? rq->max_output : config->output_bytes,
		.memory_max = config->exec_memory_bytes,
		.pids_max = config->exec_pids,
		.stdin_fd = STDIN_FILENO,
		.output = rq->json ? NULL : pass_output,
		.user_data = &resize_fd,
	};
	int pidfd = machine_pidfd(sandbox_machine(sb));
	int64_t deadline = clock_deadline((int64_t)timeout + LIMIT_CREATE_MS);
	int r;

	spec.limit_err = spec.limit_out;
	r = put_files(sb, rq, deadline, err);
	if (r < 0)
		return r;
	if (rq->tty) {
		resize_fd = terminal_resize_fd();
		terminal_size(&spec.rows, &spec.cols);
		spec.resize_fd = resize_fd;
		spec.resize = resize_fd >= 0 ? terminal_resized : NULL;
	}
	guest_clock_check(sandbox_guest(sb));
	if (rq->code)
		r = guest_code(sandbox_guest(sb), NULL, rq->code, &spec, deadline, pidfd, res, err);
	else
		r = guest_exec(sandbox_guest(sb), &spec, deadline, pidfd, res, err);
	if (r < 0) {
		*ret_status = not_run(r);
		return r;
	}
	return fetch_files(sb, config, rq, clock_deadline(LIMIT_EXEC_TIMEOUT_MS), err);
}

static void set_text(json_t *obj, const char *key, const char *text)
{
	if (text)
		json_object_set_new(obj, key, json_lossy(text, strlen(text)));
}

static json_t *results_json(const char *lines)
{
	json_t *list = json_array();

	while (lines && *lines) {
		size_t len = strcspn(lines, "\n");
		json_t *one = json_loadb(lines, len, 0, NULL);

		if (one)
			json_array_append_new(list, one);
		lines += len + (lines[len] == '\n');
	}
	return list;
}

static void print_json(
	const struct args *rq, const struct guest_result *res, const struct sandbox_trace *trace)
{
	cleanup_json json_t *obj = json_object();

	if (!rq->code) {
		json_object_set_new(obj, "exit_code",
			res->exit_code >= 0 ? json_integer(res->exit_code) : json_null());
		json_object_set_new(obj, "signal",
			res->exit_signal ? json_integer(res->exit_signal) : json_null());
	}
	json_object_set_new(obj, "timed_out", json_boolean(res->timed_out));
	json_object_set_new(obj, "out_of_memory", json_boolean(res->oom));
	json_object_set_new(obj, "stdout", json_lossy(res->out ?: "", res->out_len));
	json_object_set_new(obj, "stderr", json_lossy(res->err ?: "", res->err_len));
	json_object_set_new(obj, "stdout_bytes", json_integer((json_int_t)res->total_out));
	json_object_set_new(obj, "stderr_bytes", json_integer((json_int_t)res->total_err));
	json_object_set_new(obj, "stdout_cut", json_boolean(res->cut_out));
	json_object_set_new(obj, "stderr_cut", json_boolean(res->cut_err));
	json_object_set_new(obj, "duration_ns", json_integer((json_int_t)res->duration_ns));
	json_object_set_new(obj, "create_ns", json_integer(trace->answered - trace->begin));
	if (rq->code) {
		json_object_set_new(obj, "execution_count", json_integer(res->execution));
		json_object_set_new(obj, "results", results_json(res->results));
		set_text(obj, "error", res->ename);
		set_text(obj, "error_text", res->evalue);
		set_text(obj, "traceback", res->traceback);
	}
	json_print_line(obj);
}

/* The value of the last expression, as an interactive interpreter shows it. */
static void print_results(const struct guest_result *res)
{
	cleanup_json json_t *list = results_json(res->results);
	json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		const char *text = json_string_value(
			json_object_get(json_object_get(one, "data"), "text/plain"));

		if (text)
			printf("%s\n", text);
	}
	fflush(stdout);
}

static void say_cut(const char *which, bool cut, uint64_t total, uint64_t limit)
{
	char was[16], kept[16];

	if (cut)
		fprintf(stderr, "parbake: %s was cut: %s written, the first %s passed on\n", which,
			progress_bytes(total, was), progress_bytes(limit, kept));
}

static int conclude(
	const struct args *rq, const struct guest_result *res, uint64_t limit, uint64_t timeout_ms)
{
	if (!rq->json) {
		if (rq->code)
			print_results(res);
		say_cut("standard output", res->cut_out, res->total_out, limit);
		say_cut("standard error", res->cut_err, res->total_err, limit);
		if (res->oom)
			fprintf(stderr,
				"parbake: out of memory: the kernel killed a process of the "
				"command\n");
	}
	if (res->timed_out) {
		if (!rq->json)
			fprintf(stderr,
				"parbake: timed out after %.3g s: everything it started was "
				"killed\n",
				(double)timeout_ms / 1e3);
		return CLI_TIMED_OUT;
	}
	if (rq->code) {
		if (res->traceback && !rq->json)
			fprintf(stderr, "%s\n", res->traceback);
		return res->ename || res->context_gone ? CLI_FAILED : CLI_OK;
	}
	return res->exit_code >= 0 ? res->exit_code : CLI_SIGNAL + res->exit_signal;
}

/* Output is not the only thing that may be wrong with it. */
static void warn_of_disk(struct sandbox *sb)
{
	const char *text;

	machine_get_state(sandbox_machine(sb));
	text = machine_disk_error(sandbox_machine(sb));
	if (text)
		log_warn("%s", text);
}

static int run_once(struct args *rq)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	cleanup_guest_result struct guest_result res = {0};
	struct template_options opt = {0};
	struct progress *progress =
		progress_new(isatty(STDERR_FILENO) ? PROGRESS_AUTO : PROGRESS_SILENT);
	const struct snapshot_config *config;
	struct err err = {0};
	int r, status = CLI_NOT_RUN;

	opt.progress = progress;
	r = read_code(rq, &err);
	if (!r)
		r = cli_resolve(rq->store_dir, rq->ref, &s, &m, &err);
	if (!r && rq->keys)
		r = store_signed_by_file(s, m.digest, rq->keys, &err);
	if (!r)
		r = template_open(s, &m, &opt, &t, &err);
	progress_free(progress);
	if (!r)
		r = sandbox_create(t, NULL, clock_deadline(LIMIT_CREATE_MS), &sb, &err);
	if (r < 0) {
		cli_fail(&err);
		return CLI_NOT_RUN;
	}
	if (rq->tty)
		terminal_raw();
	r = execute(t, sb, rq, &res, &status, &err);
	terminal_restore();
	warn_of_disk(sb);
	/* the next one has them */
	if (template_trainable(t) && !template_trained(t))
		train_in_background(rq->store_dir, m.digest, m.name, m.tag, false);
	if (r < 0) {
		sandbox_explain(sb, &err);
		cli_fail(&err);
		return status;
	}
	if (rq->json)
		print_json(rq, &res, sandbox_trace(sb));
	config = template_config(t);
	return conclude(rq, &res,
		rq->max_output                 ? rq->max_output
			: config->output_bytes ? config->output_bytes
					       : LIMIT_OUTPUT_BYTES,
		rq->timeout_ms                    ? rq->timeout_ms
			: config->exec_timeout_ms ? config->exec_timeout_ms
						  : LIMIT_EXEC_TIMEOUT_MS);
}

static int run(void *user)
{
	struct args *rq = user;
	int status;

	if (!!rq->argv + !!rq->code + !!rq->shell != 1)
		status = command_usage(&command_run, "give one of: -- COMMAND, --code, --shell");
	else if (rq->code && (rq->user || rq->cwd || rq->env.n || rq->tty))
		status = command_usage(&command_run,
			"--code runs in an interpreter that is running already: --env, --cwd, "
			"--user and --tty are for a command");
	else
		status = run_once(rq);
	free_copies(&rq->files);
	free_copies(&rq->fetches);
	free(rq->code_read);
	return status;
}

static const struct option_entry options[] = {
	{"code", 0, OPTION_TEXT, "CODE", AT(code),
		"run Python in the template's warm interpreter (-: from standard input)"},
	{"shell", 0, OPTION_TEXT, "LINE", AT(shell), "run a line of sh(1)"},
	{"env", 'e', OPTION_PAIRS, "K=V", AT(env), "set a variable", .max = MAX_ENV},
	{"file", 'f', OPTION_CALL, "A:B", AT(files), "copy the file A into the sandbox as B first",
		.take = take_copy, .repeats = true, .names = NAMES_FILE},
	{"fetch", 'o', OPTION_CALL, "B:A", AT(fetches), "copy B out of the sandbox as A afterwards",
		.take = take_copy, .repeats = true},
	{"timeout", 't', OPTION_DURATION, "T", AT(timeout_ms),
		"kill the whole process tree after T (the recipe's, else 5m)"},
	{"cwd", 'C', OPTION_TEXT, "DIR", AT(cwd), "directory in the sandbox"},
	{"user", 'u', OPTION_TEXT, "USER", AT(user), "name or uid[:gid] (root)"},
	{"require-signature", 0, OPTION_TEXT, "FILE", AT(keys),
		"run nothing that no key in FILE has signed", NAMES_FILE},
	{"max-output", 0, OPTION_SIZE, "N", AT(max_output),
		"bytes of each output stream passed on (the recipe's, else 16M)"},
	{"tty", AT(tty), "give the command a terminal"},
	{"json", AT(json), "print one JSON object with everything instead"},
	OPTION_STORE(struct args, store_dir),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", AT(ref), NAMES_TEMPLATE},
	{"COMMAND", AT(argv), NAMES_COMMAND, .optional = true},
	{0},
};

const struct command command_run = {"run", "make a sandbox, run a command in it, remove it",
	.notes = "One of -- COMMAND, --code and --shell says what to run.\nExit status: the "
		 "command's; 124 timed out; 125 parbake failed; 126, 127 as sh(1); 128+N killed by "
		 "signal N.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
