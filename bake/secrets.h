/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SECRETS_H
#define PARBAKE_BAKE_SECRETS_H

#include "bake/recipe/recipe.h"
#include "bake/scan/lent.h"
#include "common/err.h"
#include "common/str.h"

/*
 * [secrets]: read each where the recipe says it is, add NAME=value to @env, and the value to @lent. The last
 * line end of a file is no part of its value. -ENOENT: it is not there; -EINVAL: it is shorter than SEARCH_MIN
 * bytes, or no text. Both lists are the caller's, whatever is returned.
 */
int secrets_read(const struct recipe *r, struct strings *env, struct lent *lent, struct err *err);

/* Free a list of variables that holds secrets, and wipe it. */
void secrets_clear(struct strings *env);

#endif
