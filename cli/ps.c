/* SPDX-License-Identifier: Apache-2.0 */
/* parbake ps: the sandboxes of a pool, a line each. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/progress.h"

static void print_metadata(const json_t *metadata)
{
	const char *key, *sep = "";
	json_t *value;

	json_object_foreach((json_t *)metadata, key, value)
	{
		printf("%s%s=%s", sep, key, json_string_value(value) ?: "?");
		sep = ",";
	}
}

static void print_row(const json_t *sandbox, int64_t now_ms)
{
	const char *alias = client_string(sandbox, "alias"),
		   *state = client_string(sandbox, "state");
	bool paused = !strcmp(state, "paused");
	int64_t started, end;
	char age[16], left[16], memory[16];

	printf("%-20s %-20s %-8s %7s %7s %4d %9s  ", client_string(sandbox, "sandboxID"),
		*alias ? alias : client_string(sandbox, "templateID"), state,
		client_time(sandbox, "startedAt", &started) ? client_age(now_ms - started, age)
							    : "-",
		!paused && client_time(sandbox, "endAt", &end) ? client_age(end - now_ms, left)
							       : "-",
		(int)client_number(sandbox, "cpuCount"),
		progress_bytes((uint64_t)client_number(sandbox, "memoryMB") * MIB, memory));
	print_metadata(json_object_get(sandbox, "metadata"));
	printf("\n");
}

struct args {
	bool all, json, quiet;
};

static int run(void *user)
{
	const struct args *a = user;
	cleanup_client struct client *c = NULL;
	cleanup_json json_t *list = NULL;
	struct err err = {0};
	json_t *one;
	size_t i;

	if (client_new(&c, &err) < 0 || client_list(c, a->all ? NULL : "running", &list, &err) < 0)
		return cli_fail(&err);
	if (!a->json && !a->quiet)
		printf("%-20s %-20s %-8s %7s %7s %4s %9s  %s\n", "SANDBOX", "TEMPLATE", "STATE",
			"AGE", "LEASE", "CPUS", "MEMORY", "METADATA");
	json_array_foreach(list, i, one)
	{
		if (a->json)
			json_print_line(one);
		else if (a->quiet)
			printf("%s\n", client_string(one, "sandboxID"));
		else
			print_row(one, clock_realtime_ns() / 1000000);
	}
	return CLI_OK;
}

static const struct option_entry options[] = {
	{"all", 'a', AT(all), "with those that are paused"},
	{"quiet", 'q', AT(quiet), "ids alone"},
	OPTION_JSON(struct args, json),
	{0},
};

const struct command command_ps = {"ps", "list the pool's sandboxes", .options = options,
	.args_bytes = sizeof(struct args), .run = run};
