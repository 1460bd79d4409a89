/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free(3) that wipes. What passes through the agent (environment of commands, files, code) may
 * be secret, and its heap goes into snapshots as it is, freed parts too. The linker puts these in
 * the place of every call (--wrap), the C library's own included.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

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
