/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_LIMITS_H
#define PARBAKE_PROVE_LIMITS_H

#include "common/limits.h"

/* The bounds of inventories and comparisons. What exceeds one is refused with an error that names it. */
#define LIMIT_INVENTORY 100000 /* packages on a disk */
#define LIMIT_PACKAGE_TEXT 256 /* bytes of a name, of a version */
#define LIMIT_DIFF_TEXT (16 * KIB) /* of a file whose lines are compared */
#define LIMIT_DIFF_LINES 400

#endif
