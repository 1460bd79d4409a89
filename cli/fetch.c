/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake fetch`: what recipes need of a network, into a directory. */
#include "cli/cli.h"

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

struct args {
	const char *into;
	bool json;
	struct words recipes;
};

static int run(void *user)
{
	const struct args *a = user;
	struct recipe_dirs dirs = {0};
	struct err err = {0};
	int rc = 0;

	recipe_dirs_find(&dirs);
	for (size_t i = 0; i < a->recipes.n && !rc; i++)
		rc = fetch_one(a->recipes.items[i], (const char *const *)dirs.items, a->into,
			a->json, &err);
	recipe_dirs_clear(&dirs);
	return rc ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"into", 0, OPTION_TEXT, "DIR", AT(into),
		"where it goes; `parbake bake --sources DIR` takes it from there", .required = true,
		.names = NAMES_DIR},
	{"json", AT(json), "events, one JSON object a line"},
	{0},
};

static const struct operand_entry operands[] = {
	{"RECIPE", AT(recipes), NAMES_RECIPE, .many = true}, {0}};

const struct command command_fetch = {"fetch",
	"save what recipes' roots take from a network, for bakes without one", .options = options,
	.operands = operands, .args_bytes = sizeof(struct args), .run = run};
