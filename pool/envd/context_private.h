/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_CONTEXT_PRIVATE_H
#define PARBAKE_POOL_ENVD_CONTEXT_PRIVATE_H

#include "pool/envd/envd_private.h"

/* Interpreters of a sandbox, by name (wire_context.c). */

/* Is @language ("": Python) one that runs here? false: answered. */
bool wire_language(struct wire_call *c, const char *language);
/* Is there a context @id, "default" or one that was made here? false: answered. */
bool wire_context_known(struct wire_call *c, const char *id);

/* wire_result.c: what a display or result of {mime: text} is in E2B's shape. New reference. */
json_t *wire_result(const json_t *data, bool main_result);

#endif
