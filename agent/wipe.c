/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent forgets. free(3) wipes: what passes through the agent (environment of commands, files, code) may
 * be secret, and its heap goes into snapshots as it is, freed parts too. The linker puts these functions in the
 * place of every call (--wrap), the C library's own included.
 */
#include "agent/wipe.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES 4096 /* of XSAVE: the legacy area, the header, and all that a mask names */
#define STATE_MXCSR 24 /* where MXCSR stands in the legacy area */
#define STATE_MASK 0xe6u /* SSE, AVX, and the three parts of AVX-512 */
#define OSXSAVE (1u << 27) /* CPUID 1, ECX: the kernel has switched XSAVE on */

void __real_free(void *p);
void __wrap_free(void *p);
void *__wrap_realloc(void *p, size_t size);

void __wrap_free(void *p)
{
	int saved = errno;

	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	__real_free(p);
	errno = saved;
}

/* Never in place: the old bytes are wiped where they were. */
void *__wrap_realloc(void *p, size_t size)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *fresh = malloc(size ? size : 1);

	if (!fresh)
		return NULL;
	if (p)
		memcpy(fresh, p, had < size ? had : size);
	__wrap_free(p);
	return fresh;
}

/*
 * A header without a bit has XRSTOR put each component that is asked for into its first state: zeros, in
 * registers that this compiler may not even name (Intel's manual, volume 1, 13.8). Every processor of the
 * last fifteen years has it, and so has the emulated one; another keeps what it has.
 */
void registers_wipe(void)
{
	static const struct {
		_Alignas(64) uint8_t bytes[STATE_BYTES];
	} first = {.bytes = {[STATE_MXCSR] = 0x80, [STATE_MXCSR + 1] = 0x1f}};
	unsigned a = 1, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (c & OSXSAVE)
		__asm__ volatile("xrstor64 %0"
				 :
				 : "m"(first), "a"(STATE_MASK), "d"(0)
				 : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
				 "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
				 "xmm14", "xmm15");
}
