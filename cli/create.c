/* SPDX-License-Identifier: Apache-2.0 */
/* parbake create: ask a pool for a sandbox; its id is what is printed. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>

#include "cli/client.h"
#include "common/limits.h"

struct request {
	const char *template;
	uint64_t timeout_s;
	json_t *metadata, *env, *allow;
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

static int take_option(int opt, struct request *rq, struct err *err)
{
	switch (opt) {
	case 't':
		return cli_lease("--timeout", optarg, &rq->timeout_s, err);
	case 'm':
		return cli_pair("--metadata", optarg, rq->metadata, err);
	case 'e':
		return cli_pair("--env", optarg, rq->env, err);
	case 'a':
		if (json_array_size(rq->allow) == LIMIT_POOL_ALLOW)
			return err_set(err, E2BIG, "--allow: at most %d hosts", LIMIT_POOL_ALLOW);
		add_allow(rq->allow, optarg);
		return 0;
	case 'p':
		rq->auto_pause = true;
		return 0;
	case 'j':
		rq->json = true;
		return 0;
	default:
		return -EINVAL;
	}
}

static int create(const struct request *rq, struct err *err)
{
	cleanup_client struct client *c = NULL;
	cleanup_json json_t *body = json_pack("{s:s, s:O, s:O, s:b}", "templateID", rq->template,
				    "metadata", rq->metadata, "envVars", rq->env, "autoPause",
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
	if (json_array_size(rq->allow))
		json_object_set_new(body, "network", json_pack("{s:O}", "allowOut", rq->allow));
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

int cmd_create(int argc, char **argv)
{
	static const struct option options[] = {
		{"timeout", required_argument, NULL, 't'},
		{"metadata", required_argument, NULL, 'm'},
		{"env", required_argument, NULL, 'e'},
		{"allow", required_argument, NULL, 'a'},
		{"auto-pause", no_argument, NULL, 'p'},
		{"json", no_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	cleanup_json json_t *metadata = json_object(), *env = json_object(), *allow = json_array();
	struct request rq = {.metadata = metadata, .env = env, .allow = allow};
	struct err err = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "t:m:e:", options, NULL)) != -1) {
		if (opt == '?')
			return cli_usage("create", "see above");
		if (take_option(opt, &rq, &err) < 0)
			return cli_usage("create", "%s", err.text);
	}
	if (argc - optind != 1)
		return cli_usage("create", optind == argc ? "which template?" : "one template");
	rq.template = argv[optind];
	return create(&rq, &err) < 0 ? cli_fail(&err) : CLI_OK;
}
