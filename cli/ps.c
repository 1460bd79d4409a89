/* SPDX-License-Identifier: Apache-2.0 */
/* parbake ps: the sandboxes of a pool, a line each. */
#include "cli/cli.h"

#include <getopt.h>
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

int cmd_ps(int argc, char **argv)
{
	static const struct option options[] = {
		{"all", no_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{"quiet", no_argument, NULL, 'q'},
		{NULL, 0, NULL, 0},
	};
	cleanup_client struct client *c = NULL;
	cleanup_json json_t *list = NULL;
	bool all = false, json = false, quiet = false;
	struct err err = {0};
	json_t *one;
	size_t i;
	int opt;

	while ((opt = getopt_long(argc, argv, "aq", options, NULL)) != -1) {
		if (opt == '?')
			return cli_usage("ps", "see above");
		all |= opt == 'a';
		json |= opt == 'j';
		quiet |= opt == 'q';
	}
	if (optind < argc)
		return cli_usage("ps", "\"%s\"?", argv[optind]);
	if (client_new(&c, &err) < 0 || client_list(c, all ? NULL : "running", &list, &err) < 0)
		return cli_fail(&err);
	if (!json && !quiet)
		printf("%-20s %-20s %-8s %7s %7s %4s %9s  %s\n", "SANDBOX", "TEMPLATE", "STATE",
			"AGE", "LEASE", "CPUS", "MEMORY", "METADATA");
	json_array_foreach(list, i, one)
	{
		if (json)
			json_print_line(one);
		else if (quiet)
			printf("%s\n", client_string(one, "sandboxID"));
		else
			print_row(one, clock_realtime_ns() / 1000000);
	}
	return CLI_OK;
}
