/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake pause, resume, timeout, fork, snapshot, logs: one request about one sandbox, and what
 * came of it. Each may take as long as writing out a machine's memory does.
 */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/limits.h"
#include "common/str.h"

#define LONG_MS (LIMIT_CAPTURE_MS + CLIENT_TIMEOUT_MS)

struct request {
	const char *command;
	char *id; /* owned */
	struct client *client;
	uint64_t timeout_s, count;
	const char *name;
	bool json, replace;
};

static void request_clear(struct request *rq)
{
	free(rq->id);
	if (rq->client)
		client_free(rq->client);
}
#define cleanup_request cleanup_with(request_clear)

/* The options that these commands have among them; how many words they want. 0 or an exit status. */
static int parse(
	struct request *rq, int argc, char **argv, const char *letters, int words, const char *what)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"timeout", required_argument, NULL, 't'},
		{"name", required_argument, NULL, 'N'},
		{"replace", no_argument, NULL, 'R'},
		{NULL, 0, NULL, 0},
	};
	struct err err = {0};
	int opt, r = 0;

	rq->command = strrchr(argv[0], ' ') + 1; /* "parbake NAME" */
	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (opt == '?' || (opt != 'j' && !strchr(letters, opt)))
			return cli_usage(rq->command, "see above");
		if (opt == 'j')
			rq->json = true;
		else if (opt == 't')
			r = cli_lease("--timeout", optarg, &rq->timeout_s, &err);
		else if (opt == 'n')
			r = cli_number("-n", optarg, 1, LIMIT_POOL_FORK, &rq->count, &err);
		else if (opt == 'R')
			rq->replace = true;
		else
			rq->name = optarg;
		if (r < 0)
			return cli_usage(rq->command, "%s", err.text);
	}
	if (argc - optind != words)
		return cli_usage(
			rq->command, "%s", argc - optind < words ? what : "too many words");
	return 0;
}

static int ask(struct request *rq, const char *word, const char *method, const char *leaf,
	const json_t *body, json_t **ret, struct err *err)
{
	int r = client_open(word, &rq->client, &rq->id, err);
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
static int tell(const struct request *rq, const json_t *obj, const char *text)
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

int cmd_pause(int argc, char **argv)
{
	cleanup_request struct request rq = {0};
	struct err err = {0};
	int status = parse(&rq, argc, argv, "", 1, "which sandbox?");

	if (status)
		return status;
	if (ask(&rq, argv[optind], "POST", "pause", NULL, NULL, &err) < 0)
		return cli_fail(&err);
	return tell(&rq, NULL, rq.id);
}

int cmd_resume(int argc, char **argv)
{
	cleanup_request struct request rq = {0};
	cleanup_json json_t *body = json_object(), *sandbox = NULL;
	struct err err = {0};
	int status = parse(&rq, argc, argv, "t", 1, "which sandbox?");

	if (status)
		return status;
	if (rq.timeout_s)
		json_object_set_new(body, "timeout", json_integer((json_int_t)rq.timeout_s));
	if (ask(&rq, argv[optind], "POST", "resume", body, &sandbox, &err) < 0)
		return cli_fail(&err);
	return tell(&rq, sandbox, rq.id);
}

int cmd_timeout(int argc, char **argv)
{
	cleanup_request struct request rq = {0};
	cleanup_json json_t *body = json_object();
	struct err err = {0};
	int status = parse(&rq, argc, argv, "", 2, "write ID DURATION");

	if (status)
		return status;
	if (cli_lease("DURATION", argv[optind + 1], &rq.timeout_s, &err) < 0)
		return cli_usage("timeout", "%s", err.text);
	json_object_set_new(body, "timeout", json_integer((json_int_t)rq.timeout_s));
	if (ask(&rq, argv[optind], "POST", "timeout", body, NULL, &err) < 0)
		return cli_fail(&err);
	return tell(&rq, NULL, rq.id);
}

/* [{"sandbox": {…}} or {"error": {…}}, …] */
static int tell_forks(const struct request *rq, const json_t *answer)
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

int cmd_fork(int argc, char **argv)
{
	cleanup_request struct request rq = {.count = 1};
	cleanup_json json_t *body = NULL, *answer = NULL;
	struct err err = {0};
	int status = parse(&rq, argc, argv, "nt", 1, "which sandbox?");

	if (status)
		return status;
	body = json_pack("{s:I}", "count", (json_int_t)rq.count);
	if (rq.timeout_s)
		json_object_set_new(body, "timeout", json_integer((json_int_t)rq.timeout_s));
	if (ask(&rq, argv[optind], "POST", "fork", body, &answer, &err) < 0)
		return cli_fail(&err);
	return tell_forks(&rq, answer);
}

int cmd_snapshot(int argc, char **argv)
{
	cleanup_request struct request rq = {0};
	cleanup_json json_t *body = json_object(), *answer = NULL;
	struct err err = {0};
	const char *id;
	int status = parse(&rq, argc, argv, "NR", 1, "which sandbox?");

	if (status)
		return status;
	if (rq.name)
		json_object_set_new(body, "name", json_string(rq.name));
	if (rq.replace)
		json_object_set_new(body, "replace", json_true());
	if (ask(&rq, argv[optind], "POST", "snapshots", body, &answer, &err) < 0 ||
		json_get_string(answer, "snapshotID", &id, &err) < 0)
		return cli_fail(&err);
	return tell(&rq, answer, id);
}

int cmd_logs(int argc, char **argv)
{
	cleanup_request struct request rq = {0};
	cleanup_json json_t *answer = NULL;
	struct err err = {0};
	json_t *line;
	size_t i;
	int status = parse(&rq, argc, argv, "", 1, "which sandbox?");

	if (status)
		return status;
	if (ask(&rq, argv[optind], "GET", "logs", NULL, &answer, &err) < 0)
		return cli_fail(&err);
	json_array_foreach(json_object_get(answer, "logs"), i, line)
		tell(&rq, line, client_string(line, "line"));
	return CLI_OK;
}
