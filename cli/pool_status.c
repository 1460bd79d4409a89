/* SPDX-License-Identifier: Apache-2.0 */
/* parbake pool status: the templates of a running pool, what waits for each and what came of it. */
#include "cli/cli.h"

#include <stdio.h>

#include "cli/client.h"

static void print_pair(unsigned long long is, unsigned long long wanted)
{
	char text[48];

	snprintf(text, sizeof(text), "%llu/%llu", is, wanted);
	printf(" %9s", text);
}

static void print_row(const json_t *t)
{
	double spare = client_number(t, "hits_spare"), standby = client_number(t, "hits_standby"),
	       miss = client_number(t, "misses"), all = spare + standby + miss;

	printf("%-20s %-10s", client_string(t, "name"), client_string(t, "tag"));
	print_pair((unsigned long long)client_number(t, "spares"),
		(unsigned long long)client_number(t, "want_spares"));
	print_pair((unsigned long long)client_number(t, "standbys"),
		(unsigned long long)client_number(t, "want_standbys"));
	printf(" %7.0f %7.0f %9.0f %7.0f %6.0f%% %9.2f %7.0f\n", client_number(t, "making"),
		client_number(t, "sandboxes"), all, miss, all > 0 ? 100 * (all - miss) / all : 0,
		client_number(t, "arrivals_per_s"), client_number(t, "failures"));
	if (*client_string(t, "error"))
		printf("  last failure: %s\n", client_string(t, "error"));
}

/* Sandboxes, in whatever state, of versions with a name, each counted once: several names may lead to one. */
static double of_names(const json_t *list)
{
	double n = 0;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *t = json_array_get(list, i);
		bool again = false;

		for (size_t j = 0; j < i; j++)
			again |= !strcmp(client_string(json_array_get(list, j), "digest"),
				client_string(t, "digest"));
		n += again ? 0 : client_number(t, "sandboxes");
	}
	return n;
}

struct args {
	bool json;
};

static int run(void *user)
{
	const struct args *a = user;
	cleanup_client struct client *c = NULL;
	cleanup_json json_t *answer = NULL;
	const json_t *list;
	struct err err = {0};
	json_t *one;
	const char *state;
	double older = 0;
	size_t i;

	if (client_new(&c, &err) < 0 || client_call(c, "GET", "/v1/pool", NULL, &answer, &err) < 0)
		return cli_fail(&err);
	if (a->json) {
		json_print_line(answer);
		return CLI_OK;
	}
	printf("%-20s %-10s %9s %9s %7s %7s %9s %7s %7s %9s %7s\n", "TEMPLATE", "TAG", "SPARES",
		"STANDBYS", "MAKING", "RUNNING", "CREATES", "MISSES", "HITS", "PER_S", "FAILED");
	list = json_object_get(answer, "templates");
	json_array_foreach(list, i, one) print_row(one);
	json_object_foreach(json_object_get(answer, "sandboxes"), state, one)
	{
		older += json_number_value(one);
	}
	older -= of_names(list);
	if (older > 0)
		printf("%.0f more are of versions that no name leads to any more, or of "
		       "snapshots\n",
			older);
	return CLI_OK;
}

static const struct option_entry options[] = {OPTION_JSON(struct args, json), {0}};

const struct command command_pool_status = {"pool status",
	"what waits for each template, and what came of it", .options = options,
	.args_bytes = sizeof(struct args), .run = run};
