/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_EMBED_H
#define PARBAKE_AGENT_EMBED_H

/* The texts of the interpreters' drivers, carried inside the agent: each from its first symbol to its second. */
#define EMBED_DECLARE(name) extern const char embed_##name[], embed_##name##_end[]

EMBED_DECLARE(python_driver);
EMBED_DECLARE(python_results);
EMBED_DECLARE(python_loop);
EMBED_DECLARE(python_rich);
EMBED_DECLARE(python_chart);
EMBED_DECLARE(javascript_driver);
EMBED_DECLARE(bridge_driver);
EMBED_DECLARE(bridge_bash);
EMBED_DECLARE(bridge_r);
EMBED_DECLARE(bridge_java);

/* One of them as {name, begin, end}. */
#define EMBED_FILE(name)                                                                           \
	{                                                                                          \
#name, embed_##name, embed_##name##_end                                            \
	}

#endif
