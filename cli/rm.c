/* SPDX-License-Identifier: Apache-2.0 */
/* parbake rm: take tags away. Sandboxes that run keep what they were made from. */
#include "cli/cli.h"

struct args {
	const char *store_dir;
	struct words templates;
};

static int run(void *user)
{
	const struct args *a = user;
	cleanup_store struct store *s = NULL;
	struct err err = {0};

	if (store_open(a->store_dir, false, &s, &err) < 0)
		return cli_fail(&err);
	for (size_t i = 0; i < a->templates.n; i++) {
		if (store_remove(s, a->templates.items[i], &err) < 0)
			return cli_fail(&err);
	}
	return CLI_OK;
}

static const struct option_entry options[] = {OPTION_STORE(struct args, store_dir), {0}};

static const struct operand_entry operands[] = {
	{"TEMPLATE", AT(templates), NAMES_TEMPLATE, .many = true}, {0}};

const struct command command_rm = {"rm", "remove tags (the data go with gc)", .options = options,
	.operands = operands, .args_bytes = sizeof(struct args), .run = run};
