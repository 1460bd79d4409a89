/* SPDX-License-Identifier: Apache-2.0 */
/* parbake create: ask a pool for a sandbox; its id is what is printed. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/limits.h"

struct args {
	const char *template;
	uint64_t timeout_s;
	struct words metadata, env, allow;
	bool auto_pause, json;
};

/* "HOST", or "HOST private". */
static void add_allow(json_t *allow, const char *text)
{
	static const char word[] = " private";
	size_t len = strlen(text), n = sizeof(word) - 1;

	if (len > n && !strcmp(text + len - n, word))
		json_array_append_new(allow,
			json_pack("{s:o, s:b}", "host", json_lossy(text, len - n), "private", 1));
	else
		json_array_append_new(allow, json_lossy(text, len));
}

/* The hosts as the API has them. */
static json_t *allowed(const struct words *hosts)
{
	json_t *list = json_array();

	for (size_t i = 0; i < hosts->n; i++)
		add_allow(list, hosts->items[i]);
	return list;
}

/* Each "NAME=VALUE" of an option as a member of @obj. */
static int add_pairs(json_t *obj, const char *option, const struct words *pairs, struct err *err)
{
	for (size_t i = 0; i < pairs->n; i++) {
		const char *text = pairs->items[i], *equals = strchr(text, '=');

		if (json_object_setn_new(
			    obj, text, (size_t)(equals - text), json_string(equals + 1)) < 0)
			return err_set(err, EINVAL, "%s %s: not UTF-8", option, text);
	}
	return 0;
}

static int create(const struct args *rq, const json_t *metadata, const json_t *env, struct err *err)
{
	cleanup_client struct client *c = NULL;
	cleanup_json json_t *body = json_pack("{s:s, s:O, s:O, s:b}", "templateID", rq->template,
				    "metadata", metadata, "envVars", env, "autoPause",
				    (int)rq->auto_pause),
			    *sandbox = NULL;
	const char *id = NULL;
	int r = client_new(&c, err);

	if (r < 0)
		return r;
	if (!body)
		return err_set(err, EINVAL, "the template's name is not UTF-8");
	if (rq->timeout_s)
		json_object_set_new(body, "timeout", json_integer((json_int_t)rq->timeout_s));
	if (rq->allow.n)
		json_object_set_new(
			body, "network", json_pack("{s:o}", "allowOut", allowed(&rq->allow)));
	r = client_call(c, "POST", "/sandboxes", body, &sandbox, err);
	if (r == 0)
		r = json_get_string(sandbox, "sandboxID", &id, err);
	if (r < 0)
		return r;
	if (rq->json)
		json_print_line(sandbox);
	else
		printf("%s\n", id);
	return 0;
}

static int run(void *user)
{
	const struct args *rq = user;
	cleanup_json json_t *metadata = json_object(), *env = json_object();
	struct err err = {0};

	if (add_pairs(metadata, "--metadata", &rq->metadata, &err) < 0 ||
		add_pairs(env, "--env", &rq->env, &err) < 0)
		return command_usage(&command_create, "%s", err.text);
	return create(rq, metadata, env, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"timeout", 't', OPTION_LEASE, "T", AT(timeout_s),
		"its lease (the pool's default, 5m unless configured)"},
	{"metadata", 'm', OPTION_PAIRS, "K=V", AT(metadata), "a note that ps shows",
		.max = LIMIT_CONFIG_ENV},
	{"env", 'e', OPTION_PAIRS, "K=V", AT(env), "a variable of all its commands",
		.max = LIMIT_CONFIG_ENV},
	{"auto-pause", AT(auto_pause), "at the lease's end it is paused, not killed"},
	{"allow", 0, OPTION_WORDS, "HOST", AT(allow), "a host that it may reach (none otherwise)",
		.max = LIMIT_POOL_ALLOW},
	OPTION_JSON(struct args, json),
	{0},
};

static const struct operand_entry operands[] = {{"TEMPLATE", AT(template), NAMES_TEMPLATE}, {0}};

const struct command command_create = {"create", "ask the pool for a sandbox, print its id",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
