/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ADOPT_PRIVATE_H
#define PARBAKE_POOL_ADOPT_PRIVATE_H

/* What a daemon finds when it starts (pool/adopt.c). */

#include "common/err.h"

struct pool;
struct pool_machine;

int pool_adopt(struct pool *p, struct err *err);
/* What came of a machine that was asked who it is. */
void pool_adopt_ended(struct pool_machine *m, const char *text);

#endif
