/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_EGRESS_PRIVATE_H
#define PARBAKE_POOL_EGRESS_PRIVATE_H

/* A sandbox's way out to the network (pool/egress.c). */

#include "common/err.h"
#include "common/json.h"

struct pool_egress;
struct pool_record;
struct pool_sandbox;

/* Serve the way out of @sb, which may reach something and whose guest is open. */
int pool_egress_new(struct pool_sandbox *sb, struct err *err);
void pool_egress_free(struct pool_egress *e);
/*
 * The sandbox's environment variables, with those that lead to the proxy over them. A new object.
 */
json_t *pool_egress_env(const struct pool_record *n);

#endif
