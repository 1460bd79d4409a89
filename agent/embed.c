/* SPDX-License-Identifier: Apache-2.0 */
/* The files of agent/python, agent/javascript and agent/bridge, carried inside the agent. */
#include "agent/embed.h"

#define EMBED(name, file)                                                                          \
	__asm__(".section .rodata\n"                                                               \
		".global embed_" #name "\n"                                                        \
		".global embed_" #name "_end\n"                                                    \
		"embed_" #name ":\n"                                                               \
		".incbin \"" file "\"\n"                                                           \
		"embed_" #name "_end:\n"                                                           \
		".byte 0\n"                                                                        \
		".previous\n")

EMBED(python_driver, "agent/python/driver.py");
EMBED(python_results, "agent/python/results.py");
EMBED(python_loop, "agent/python/loop.py");
EMBED(python_rich, "agent/python/rich.py");
EMBED(python_chart, "agent/python/chart.py");
EMBED(javascript_driver, "agent/javascript/driver.js");
EMBED(bridge_driver, "agent/bridge/driver.py");
EMBED(bridge_bash, "agent/bridge/loop.bash");
EMBED(bridge_r, "agent/bridge/loop.R");
EMBED(bridge_java, "agent/bridge/Loop.java");
