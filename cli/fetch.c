/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake fetch`: what recipes need of a network, into a directory. */
#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

#include "bake/bake.h"
#include "cli/recipes.h"
#include "common/progress.h"

static int fetch_one(
	const char *name, const char *const *dirs, const char *into, bool json, struct err *err)
{
	cleanup_recipe struct recipe *r = NULL;
	struct bake_options opt = {.from = PLAN_STAGES};
	int rc = recipe_read(name, dirs, &r, err);

	if (rc)
		return rc;
	opt.progress = progress_new(json ? PROGRESS_JSON : PROGRESS_AUTO);
	rc = bake_fetch(r, &opt, into, err);
	progress_free(opt.progress);
	if (rc) {
		err_prefix(err, "fetch %s", r->name);
		return rc;
	}
	if (!json && (r->pip.n || r->allow.n))
		fprintf(stderr,
			"parbake: %s: what pip and the steps ask the network for is not saved: a "
			"bake "
			"without one fails there\n",
			r->name);
	return 0;
}

int cmd_fetch(int argc, char **argv)
{
	static const struct option options[] = {
		{"into", required_argument, NULL, 'i'},
		{"json", no_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	struct recipe_dirs dirs = {0};
	const char *into = NULL;
	struct err err = {0};
	bool json = false;
	int opt, rc = 0;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'i')
			into = optarg;
		else if (opt == 'j')
			json = true;
		else
			return cli_usage("fetch", "see above");
	}
	if (!into)
		return cli_usage("fetch", "--into DIR says where it goes");
	if (optind == argc)
		return cli_usage("fetch", "which recipe?");
	recipe_dirs_find(&dirs);
	for (int i = optind; i < argc && !rc; i++)
		rc = fetch_one(argv[i], (const char *const *)dirs.items, into, json, &err);
	recipe_dirs_clear(&dirs);
	return rc ? cli_fail(&err) : CLI_OK;
}
