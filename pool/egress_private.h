/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_EGRESS_PRIVATE_H
#define PARBAKE_POOL_EGRESS_PRIVATE_H

/* A sandbox's way out (pool/egress.c). */

#include "common/err.h"
#include "common/json.h"

struct pool_egress;
struct pool_record;
struct pool_sandbox;

/* For a sandbox that may reach somewhere, with its guest open: serve it. */
int pool_egress_new(struct pool_sandbox *sb, struct err *err);
void pool_egress_free(struct pool_egress *e);
/* The variables that lead there, over those of @sb's own: a new object. */
json_t *pool_egress_env(const struct pool_record *n);

#endif
