/* SPDX-License-Identifier: Apache-2.0 */
/* The files of agent/python, carried inside the agent. */
#include "agent/embed.h"

#define EMBED(name, file) \
	__asm__(".section .rodata\n" \
		".global embed_" #name "\n" \
		".global embed_" #name "_end\n" \
		"embed_" #name ":\n" \
		".incbin \"" file "\"\n" \
		"embed_" #name "_end:\n" \
		".byte 0\n" \
		".previous\n")

EMBED(python_driver, "agent/python/driver.py");
EMBED(python_results, "agent/python/results.py");
EMBED(python_loop, "agent/python/loop.py");
EMBED(python_rich, "agent/python/rich.py");
EMBED(python_chart, "agent/python/chart.py");
