/* SPDX-License-Identifier: Apache-2.0 */
/* Where named recipes are looked for. */
#include "cli/recipes.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/paths.h"
#include "common/str.h"

/* Takes @dir. What is no directory, or is there already by another name, is passed over. */
static void add_dir(struct recipe_dirs *d, char *dir)
{
	char *real = dir ? realpath(dir, NULL) : NULL;
	struct stat st;
	size_t n = 0;

	free(dir);
	while (real && d->items[n] && strcmp(d->items[n], real))
		n++;
	if (real && !d->items[n] && n < RECIPE_DIRS_MAX - 1 && !stat(real, &st) &&
		S_ISDIR(st.st_mode))
		d->items[n] = real;
	else
		free(real);
}

void recipe_dirs_find(struct recipe_dirs *d)
{
	const char *env = getenv("PARBAKE_TEMPLATES");
	cleanup_free char *program = realpath("/proc/self/exe", NULL);
	char *slash = program ? strrchr(program, '/') : NULL, *lib = NULL;

	if (env && *env)
		add_dir(d, str_dup(env));
	if (slash)
		add_dir(d, str_printf("%.*s/templates", (int)(slash - program), program));
	if (!paths_lib("templates", &lib, NULL))
		add_dir(d, lib);
}

void recipe_dirs_clear(struct recipe_dirs *d)
{
	for (size_t i = 0; i < RECIPE_DIRS_MAX; i++)
		free(d->items[i]);
}
