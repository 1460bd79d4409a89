/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_CONTEXT_PRIVATE_H
#define PARBAKE_POOL_ENVD_CONTEXT_PRIVATE_H

#include "pool/envd/envd_private.h"

/* Interpreters of a sandbox, by name (envd_context.c). */

/* Is @language ("": Python) one that runs here? false: answered. */
bool envd_language(struct envd_call *c, const char *language);
/* Is there a context @id, "default" or one that was made here? false: answered. */
bool envd_context_known(struct envd_call *c, const char *id);

/* envd_result.c: what a display or result of {mime: text} is in E2B's shape. New reference. */
json_t *envd_result(const json_t *data, bool main_result);

#endif
