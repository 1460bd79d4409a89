/* SPDX-License-Identifier: Apache-2.0 */
/* parbake kill: end sandboxes, many at once; it returns when their machines are gone. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/str.h"

#define AT_ONCE 32

struct args {
	struct client *client;
	char **ids;
	size_t n, begun, ended, failed;
	bool all, json;
	struct words words; /* as written */
};

struct one {
	struct args *crowd;
	const char *id;
};

static void on_done(void *user, const struct client_answer *a)
{
	struct one *one = user;
	struct args *crowd = one->crowd;
	/* of all there were, one may have ended by itself meanwhile */
	bool gone = !a->error || (crowd->all && a->status == 404);

	crowd->ended++;
	if (!gone) {
		crowd->failed++;
		fprintf(stderr, "parbake: kill %s: %s\n", one->id, a->text);
	} else if (crowd->json) {
		cleanup_json json_t *obj =
			json_pack("{s:s, s:b}", "sandboxID", one->id, "killed", 1);

		json_print_line(obj);
	} else {
		printf("%s\n", one->id);
	}
	free(one);
}

static int begin(struct args *crowd, struct err *err)
{
	struct one *one = malloc(sizeof(*one));
	cleanup_free char *path = str_printf("/sandboxes/%s", crowd->ids[crowd->begun]);
	struct client_spec spec = {.method = "DELETE", .path = path, .done = on_done, .user = one};

	if (!one)
		abort();
	*one = (struct one){.crowd = crowd, .id = crowd->ids[crowd->begun++]};
	if (client_begin(crowd->client, &spec, err))
		return 0;
	free(one);
	return -EIO;
}

static int kill_all(struct args *crowd, struct err *err)
{
	int r = 0;

	while (r == 0 && crowd->ended < crowd->n) {
		while (r == 0 && crowd->begun < crowd->n && crowd->begun - crowd->ended < AT_ONCE)
			r = begin(crowd, err);
		if (r == 0)
			r = client_turn(crowd->client, NULL, 0, CLOCK_NEVER, err);
	}
	return r;
}

static int find_all(struct args *crowd, struct err *err)
{
	cleanup_json json_t *list = NULL;
	json_t *sandbox;
	size_t i;
	int r = client_list(crowd->client, NULL, &list, err);

	if (r < 0)
		return r;
	crowd->ids = calloc(json_array_size(list) + 1, sizeof(*crowd->ids));
	if (!crowd->ids)
		abort();
	json_array_foreach(list, i, sandbox)
	{
		char *id = client_escape(client_string(sandbox, "sandboxID"));

		crowd->ids[crowd->n++] = id;
	}
	return 0;
}

static int find_named(struct args *crowd)
{
	crowd->ids = calloc(crowd->words.n, sizeof(*crowd->ids));
	if (!crowd->ids)
		abort();
	for (size_t i = 0; i < crowd->words.n; i++) {
		struct err err = {0};
		int r = client_resolve(
			crowd->client, crowd->words.items[i], &crowd->ids[crowd->n], &err);

		if (r == 0) {
			crowd->n++;
			continue;
		}
		cli_fail(&err);
		crowd->failed++;
		if (r == -ECONNREFUSED)
			return r;
	}
	return 0;
}

static int run(void *user)
{
	struct args *crowd = user;
	cleanup_client struct client *c = NULL;
	struct err err = {0};
	int r;

	if (crowd->all == (crowd->words.n > 0))
		return command_usage(
			&command_kill, crowd->all ? "--all, or ids" : "which sandboxes?");
	r = client_new(&c, &err);
	crowd->client = c;
	if (r == 0)
		r = crowd->all ? find_all(crowd, &err) : find_named(crowd);
	if (r == 0)
		r = kill_all(crowd, &err);
	if (r < 0 && err.text[0])
		cli_fail(&err);
	for (size_t i = 0; i < crowd->n; i++)
		free(crowd->ids[i]);
	free(crowd->ids);
	return r < 0 || crowd->failed ? CLI_FAILED : CLI_OK;
}

static const struct option_entry options[] = {
	{"all", 'a', AT(all), "all of this key's"},
	OPTION_JSON(struct args, json),
	{0},
};

static const struct operand_entry operands[] = {
	{"ID", AT(words), NAMES_SANDBOX, .optional = true, .many = true}, {0}};

const struct command command_kill = {"kill", "end sandboxes of the pool", .options = options,
	.operands = operands, .args_bytes = sizeof(struct args), .run = run};
