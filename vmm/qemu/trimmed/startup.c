/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Linked into the trimmed QEMU: memory for its start. Building a machine takes about two megabytes
 * of small allocations, and every one of those pages would be a fault, every 132 KiB a call of brk
 * and every thread a new arena. So there is one heap, made and mapped at once before main(). A
 * kernel without MADV_POPULATE_WRITE (before 5.14) refuses that, and pages come one by one as ever.
 */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE ((uintptr_t)4096)
#define HEAP_BYTES (1792 * 1024)
#define MMAP_BYTES (1024 * 1024) /* what glibc would find for itself, were its limits not set */

__attribute__((constructor(101))) static void make_heap(void)
{
	uintptr_t from = ((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1), to;
	void *volatile first; /* or the compiler would see that nobody wants it */

	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, 2 * HEAP_BYTES);
	mallopt(M_TOP_PAD, HEAP_BYTES);
	first = malloc(256 * 1024); /* more than there may be already */
	free(first);
	mallopt(M_TOP_PAD, 128 * 1024);
	to = (uintptr_t)sbrk(0) & ~(PAGE - 1);
	if (from < to)
		(void)madvise((void *)from, to - from, MADV_POPULATE_WRITE);
}
