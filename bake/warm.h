/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_WARM_H
#define PARBAKE_BAKE_WARM_H

#include "bake/oven.h"
#include "bake/recipe/recipe.h"
#include "common/err.h"

/*
 * Warming: bringing into memory what a snapshot is to have there. That is the interpreter where
 * anything runs in it, [start] command as a service that lives on, its ready check until it passes
 * (bake/ready.h), and the [warm] steps. Then guest_quiesce() makes the guest still: garbage
 * collected where the agent can, file systems synced, caches dropped as the recipe says, processes
 * recorded (@o's processes), free memory zeroed, file systems frozen (for at most WARM_FREEZE_MS; they thaw by themselves after it,
 * and in each clone).
 */
#define WARM_FREEZE_MS 60000
int guest_warm(struct oven *o, const struct recipe *r, struct err *err);
int guest_quiesce(struct oven *o, const struct recipe *r, struct err *err);

#endif
