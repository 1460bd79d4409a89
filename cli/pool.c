/* SPDX-License-Identifier: Apache-2.0 */
/* parbake pool: its verbs. */
#include "cli/cli.h"

#include <string.h>

#include "common/nearest.h"

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{"status", pool_status_main},
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

int cmd_pool(int argc, char **argv)
{
	const char *names[N_VERBS], *near;

	for (size_t i = 0; i < N_VERBS; i++) {
		if (argc > 1 && !strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
		names[i] = verbs[i].name;
	}
	if (argc < 2)
		return cli_usage("pool", "which one?");
	near = nearest_name(argv[1], names, N_VERBS);
	return cli_usage("pool", "there is no `pool %s`%s%s%s", argv[1],
		near ? ", do you mean `pool " : "", near ?: "", near ? "`?" : "");
}
