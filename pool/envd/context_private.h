/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_CONTEXT_PRIVATE_H
#define PARBAKE_POOL_ENVD_CONTEXT_PRIVATE_H

#include "pool/envd/envd_private.h"

/* Interpreters of a sandbox, by name (context.c). */

#define CONTEXT_DEFAULT "default" /* the one that was warm; made where it is not there */

/* result.c: what a display or result of {mime: text} is in E2B's shape. New reference. */
json_t *envd_result(const json_t *data, bool main_result);

#endif
