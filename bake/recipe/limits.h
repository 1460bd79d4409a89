/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_RECIPE_LIMITS_H
#define PARBAKE_BAKE_RECIPE_LIMITS_H

#include "common/limits.h"

/* The bounds of recipes. What exceeds one is refused with an error that names it. */
#define LIMIT_RECIPE_STEPS 256
#define LIMIT_RECIPE_DEPTH 8 /* of `from` */
#define LIMIT_PACKAGES 4096
#define LIMIT_DISK_MIN (16 * MIB)

#endif
