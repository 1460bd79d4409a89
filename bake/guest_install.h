/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_GUEST_INSTALL_H
#define PARBAKE_BAKE_GUEST_INSTALL_H

#include "bake/oven.h"
#include "bake/recipe/recipe.h"
#include "common/err.h"
#include "common/str.h"

/*
 * Installing in the guest, by [install]: pip's requirements, then the numbered steps, parents'
 * first. With [network] allow or pip the guest has its HTTP proxy meanwhile, and the host's pip
 * index and CA bundle; all of that is gone when this returns 0. Steps have [secrets] as variables.
 * What the guest was lent is added to @lent, for the scan (bake/scan/scan.h), and is not shown in
 * their output. A step that fails is an error `FILE:LINE: [install] N: exit status …` with the last
 * lines of its output.
 */
int guest_install(struct oven *o, const struct recipe *r, struct lent *lent, struct err *err);

/*
 * The environment of every step: [env], @more, and variables that keep tools from asking questions.
 * NULL-terminated; the strings are borrowed from @r, the array is the caller's to free.
 */
const char **guest_env(const struct recipe *r, const struct strings *more);

#endif
