/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ADOPT_PRIVATE_H
#define PARBAKE_POOL_ADOPT_PRIVATE_H

/*
 * Adoption: a daemon that starts takes over the keepers and checkpoints that the daemon before it
 * left (pool/adopt.c).
 */

#include "common/err.h"

struct pool;
struct pool_machine;

int pool_adopt(struct pool *p, struct err *err);
/* The adopted machine @m, which had been asked which sandbox it has, has ended; @text says why. */
void pool_adopt_ended(struct pool_machine *m, const char *text);

#endif
