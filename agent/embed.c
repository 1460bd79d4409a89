/* SPDX-License-Identifier: Apache-2.0 */
/* agent/context.py, carried inside the agent. */
#include "agent/embed.h"

__asm__(".section .rodata\n"
	".global embed_context_py\n"
	".global embed_context_py_end\n"
	"embed_context_py:\n"
	".incbin \"agent/context.py\"\n"
	"embed_context_py_end:\n"
	".byte 0\n"
	".previous\n");
