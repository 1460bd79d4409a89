/* SPDX-License-Identifier: Apache-2.0 */
/* The files of agent/python, agent/javascript and agent/bridge, carried inside the agent. */
#include "agent/embed.h"

#define TEXT(file) ".incbin \"" file "\"\n"
#define EMBED(name, texts)                                                                         \
	__asm__(".section .rodata\n"                                                               \
		".global embed_" #name "\n"                                                        \
		".global embed_" #name "_end\n"                                                    \
		"embed_" #name ":\n" texts "embed_" #name "_end:\n"                                \
		".byte 0\n"                                                                        \
		".previous\n")

EMBED(python_driver, TEXT("agent/python/messages.py") TEXT("agent/python/driver.py"));
EMBED(python_results, TEXT("agent/python/results.py"));
EMBED(python_loop, TEXT("agent/python/loop.py"));
EMBED(python_rich, TEXT("agent/python/rich.py"));
EMBED(python_chart, TEXT("agent/python/chart.py"));
EMBED(javascript_driver, TEXT("agent/javascript/driver.js"));
EMBED(bridge_driver, TEXT("agent/python/messages.py") TEXT("agent/bridge/driver.py"));
EMBED(bridge_bash, TEXT("agent/bridge/loop.bash"));
EMBED(bridge_r, TEXT("agent/bridge/loop.R"));
EMBED(bridge_java, TEXT("agent/bridge/Loop.java"));
