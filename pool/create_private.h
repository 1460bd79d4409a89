/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CREATE_PRIVATE_H
#define PARBAKE_POOL_CREATE_PRIVATE_H

/* Creates (pool/create.c). */

#include "common/json.h"

struct pool_handout;

/* A job's done() for what is created or forked. */
void pool_create_done(struct pool_handout *j, int error, const char *text, const json_t *reply);

#endif
