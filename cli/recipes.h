/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_RECIPES_H
#define PARBAKE_CLI_RECIPES_H

/* Where named recipes lie: $PARBAKE_TEMPLATES, beside the program, among what is installed. NULL-terminated. */
#define RECIPE_DIRS_MAX 4

struct recipe_dirs {
	char *items[RECIPE_DIRS_MAX]; /* owned */
};

void recipe_dirs_find(struct recipe_dirs *d);
void recipe_dirs_clear(struct recipe_dirs *d);

#endif
