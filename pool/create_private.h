/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CREATE_PRIVATE_H
#define PARBAKE_POOL_CREATE_PRIVATE_H

/* Creates: a new sandbox from a template or a snapshot (pool/create.c). */

#include "common/json.h"

struct pool_handout;

/* The done() of a hand-out that creates or forks a sandbox. */
void pool_create_done(struct pool_handout *j, int error, const char *text, const json_t *reply);

#endif
