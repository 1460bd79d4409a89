/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_EMBED_H
#define PARBAKE_AGENT_EMBED_H

/* The interpreter driver's text, from the first to the second. */
extern const char embed_context_py[], embed_context_py_end[];

#endif
