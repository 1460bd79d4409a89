/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_CONFINE_PRIVATE_H
#define PARBAKE_COMMON_CONFINE_PRIVATE_H

/* Confinement: what confine.c and confine_filter.c share. */

#include "common/confine.h"

/* Fill ret->filter for ret->c. */
void confine_filter_make(struct confine_ready *ret);

#endif
