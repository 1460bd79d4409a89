/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_RECIPE_RECIPE_PRIVATE_H
#define PARBAKE_BAKE_RECIPE_RECIPE_PRIVATE_H

#include "bake/recipe/recipe.h"
#include "common/inifile.h"

/* What the files of the recipe reader share; nobody else includes it. */

/* Defaults, before the oldest recipe of a chain is applied. Never NULL. */
struct recipe *recipe_new(void);
/* Add what one file of the chain says, over what its parents said. */
int recipe_apply(struct recipe *r, const struct inifile *ini, struct err *err);

void recipe_rules_add(struct recipe_rules *rules, const struct proxy_rule *r);

/* Where the reader of a value is. */
struct recipe_reader {
	struct recipe *r;
	const struct inifile *ini;
	const struct inifile_entry *e;
	char *file; /* its name, owned by the recipe */
	bool allow_added; /* by this value */
	struct err *err;
	struct recipe_steps install, warm; /* this file's, sorted by number as they come */
};

/* A key that stands for many: a number, a path, a name. */
#define KEY_NUMBER "\001"
#define KEY_ANY "\002"

struct recipe_key {
	const char *section, *key;
	int (*read)(struct recipe_reader *rd);
};
#define RECIPE_KEYS_MAX 64
extern const struct recipe_key recipe_keys[];
extern const size_t recipe_n_keys;

#endif
