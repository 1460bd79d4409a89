/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake pause, resume, timeout, fork, snapshot, logs: one request about one sandbox, and what
 * came of it. Each may take as long as writing out a machine's memory does.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/limits.h"
#include "common/str.h"

#define LONG_MS (LIMIT_CAPTURE_MS + CLIENT_TIMEOUT_MS)

struct args {
	const char *command;
	const char *word; /* the sandbox, as written */
	const char *duration, *name;
	uint64_t timeout_s, count;
	bool json, replace;
	char *id; /* owned */
	struct client *client;
};

static int ask(struct args *rq, const char *method, const char *leaf, const json_t *body,
	json_t **ret, struct err *err)
{
	int r = client_open(rq->word, &rq->client, &rq->id, err);
	cleanup_free char *path = r == 0 ? str_printf("/sandboxes/%s/%s", rq->id, leaf) : NULL;
	const struct client_spec spec = {
		.method = method, .path = path, .json = body, .timeout_ms = LONG_MS};

	if (r == 0)
		r = client_call_spec(rq->client, &spec, ret, err);
	if (r < 0 && rq->id)
		err_prefix(err, "%s %s", rq->command, rq->id);
	return r;
}

/* @obj (may be NULL: the id alone), or with --json all of it. */
static int tell(const struct args *rq, const json_t *obj, const char *text)
{
	cleanup_json json_t *mine = NULL;

	if (!rq->json) {
		printf("%s\n", text);
	} else if (obj) {
		json_print_line(obj);
	} else {
		mine = json_pack("{s:s}", "sandboxID", rq->id);
		json_print_line(mine);
	}
	return CLI_OK;
}

/* The requests. Each is run with the command's arguments, and cleared by run_request(). */

static int pause_sandbox(struct args *rq, struct err *err)
{
	return ask(rq, "POST", "pause", NULL, NULL, err) < 0 ? cli_fail(err)
							     : tell(rq, NULL, rq->id);
}

static json_t *timeout_body(const struct args *rq)
{
	json_t *body = json_object();

	if (rq->timeout_s)
		json_object_set_new(body, "timeout", json_integer((json_int_t)rq->timeout_s));
	return body;
}

static int resume_sandbox(struct args *rq, struct err *err)
{
	cleanup_json json_t *body = timeout_body(rq), *sandbox = NULL;

	return ask(rq, "POST", "resume", body, &sandbox, err) < 0 ? cli_fail(err)
								  : tell(rq, sandbox, rq->id);
}

static int set_timeout(struct args *rq, struct err *err)
{
	cleanup_json json_t *body = NULL;

	if (cli_lease("DURATION", rq->duration, &rq->timeout_s, err) < 0)
		return command_usage(&command_timeout, "%s", err->text);
	body = timeout_body(rq);
	return ask(rq, "POST", "timeout", body, NULL, err) < 0 ? cli_fail(err)
							       : tell(rq, NULL, rq->id);
}

/* [{"sandbox": {…}} or {"error": {…}}, …] */
static int tell_forks(const struct args *rq, const json_t *answer)
{
	size_t made = 0, i;
	json_t *one;

	json_array_foreach(answer, i, one)
	{
		const json_t *sandbox = json_object_get(one, "sandbox");

		made += sandbox != NULL;
		if (sandbox)
			tell(rq, sandbox, client_string(sandbox, "sandboxID"));
		else
			fprintf(stderr, "parbake: fork %s: %s\n", rq->id,
				client_string(json_object_get(one, "error"), "message"));
	}
	return made == rq->count ? CLI_OK : CLI_FAILED;
}

static int fork_sandbox(struct args *rq, struct err *err)
{
	cleanup_json json_t *body = timeout_body(rq), *answer = NULL;

	json_object_set_new(body, "count", json_integer((json_int_t)rq->count));
	return ask(rq, "POST", "fork", body, &answer, err) < 0 ? cli_fail(err)
							       : tell_forks(rq, answer);
}

static int take_snapshot(struct args *rq, struct err *err)
{
	cleanup_json json_t *body = json_object(), *answer = NULL;
	const char *id;

	if (rq->name)
		json_object_set_new(body, "name", json_string(rq->name));
	if (rq->replace)
		json_object_set_new(body, "replace", json_true());
	if (ask(rq, "POST", "snapshots", body, &answer, err) < 0 ||
		json_get_string(answer, "snapshotID", &id, err) < 0)
		return cli_fail(err);
	return tell(rq, answer, id);
}

static int show_logs(struct args *rq, struct err *err)
{
	cleanup_json json_t *answer = NULL;
	json_t *line;
	size_t i;

	if (ask(rq, "GET", "logs", NULL, &answer, err) < 0)
		return cli_fail(err);
	json_array_foreach(json_object_get(answer, "logs"), i, line)
		tell(rq, line, client_string(line, "line"));
	return CLI_OK;
}

static int run_request(
	struct args *rq, const struct command *c, int (*request)(struct args *rq, struct err *err))
{
	struct err err = {0};
	int status;

	rq->command = c->name;
	status = request(rq, &err);
	free(rq->id);
	if (rq->client)
		client_free(rq->client);
	return status;
}

#define LEASE                                                                                      \
	{                                                                                          \
		"timeout", 0, OPTION_LEASE, "T", AT(timeout_s),                                    \
			"its lease from then on (the pool's default)"                              \
	}
#define ID                                                                                         \
	{                                                                                          \
		"ID", AT(word), NAMES_SANDBOX                                                      \
	}

static const struct option_entry json_options[] = {OPTION_JSON(struct args, json), {0}};
static const struct option_entry lease_options[] = {LEASE, OPTION_JSON(struct args, json), {0}};
static const struct option_entry fork_options[] = {
	{NULL, 'n', OPTION_NUMBER, "N", AT(count), "how many (1)", .min = 1,
		.max = LIMIT_POOL_FORK},
	LEASE,
	OPTION_JSON(struct args, json),
	{0},
};
static const struct option_entry snapshot_options[] = {
	{"name", 0, OPTION_TEXT, "TEMPLATE", AT(name),
		"a new one, NAME or NAME:TAG; without a name the pool keeps it"},
	{"replace", AT(replace), "in the place of one that is there"},
	OPTION_JSON(struct args, json),
	{0},
};
static const struct operand_entry id_operand[] = {ID, {0}};
static const struct operand_entry timeout_operands[] = {ID, {"DURATION", AT(duration)}, {0}};

/* A command of this file: its function, and the table that names it. */
#define COMMAND(word, call, summary, its_options, its_operands)                                    \
	static int run_##word(void *user)                                                          \
	{                                                                                          \
		return run_request(user, &command_##word, call);                                   \
	}                                                                                          \
	const struct command command_##word = {#word, summary, .options = its_options,             \
		.operands = its_operands, .args_bytes = sizeof(struct args),                       \
		.defaults = &(const struct args){.count = 1}, .run = run_##word}

COMMAND(pause, pause_sandbox, "put a sandbox to disk", json_options, id_operand);
COMMAND(resume, resume_sandbox, "go on with a paused sandbox", lease_options, id_operand);
COMMAND(fork, fork_sandbox, "make sandboxes that go on from where one is", fork_options,
	id_operand);
COMMAND(snapshot, take_snapshot, "keep a sandbox's state, as a template where named",
	snapshot_options, id_operand);
COMMAND(timeout, set_timeout, "let a sandbox's lease end that far from now", json_options,
	timeout_operands);
COMMAND(logs, show_logs, "show a sandbox's console", json_options, id_operand);
