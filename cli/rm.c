/* SPDX-License-Identifier: Apache-2.0 */
/* parbake rm: take tags away. Sandboxes that run keep what they were made from. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>

int cmd_rm(int argc, char **argv)
{
	static const struct option options[] = {
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	cleanup_store struct store *s = NULL;
	const char *dir = NULL;
	struct err err = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt != 'S')
			return cli_usage("rm", "see above");
		dir = optarg;
	}
	if (optind == argc)
		return cli_usage("rm", "which template?");
	if (store_open(dir, false, &s, &err) < 0)
		return cli_fail(&err);
	for (; optind < argc; optind++) {
		if (store_remove(s, argv[optind], &err) < 0)
			return cli_fail(&err);
	}
	return CLI_OK;
}
