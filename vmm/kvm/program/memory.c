/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to guest memory. A guest's address is checked where it is used, each time: the guest may
 * change any number in its memory between two looks at it.
 *
 * Memory is discarded by MADV_REMOVE where the memory is shared (a booting machine's: its file gets
 * a hole, which keeps the snapshot small) and by MADV_DONTNEED where it is private; there the
 * kernel waits until the pager has read that the pages are removed, so that it never gives what the
 * snapshot held in their place.
 */
#include "vmm/kvm/program/memory.h"

#include <stddef.h>
#include <sys/mman.h>

int memory_map(struct memory *m, int fd, uint64_t bytes, bool shared, struct err *err)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		(shared ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE, fd, 0);

	if (at == MAP_FAILED)
		return err_sys(err, errno, "map guest memory");
	madvise(at, bytes, MADV_DONTDUMP);
	*m = (struct memory){.base = at, .bytes = bytes, .shared = shared};
	return 0;
}

void *memory_at(const struct memory *m, uint64_t at, uint64_t len)
{
	uint64_t low = memory_low(m), high = m->bytes - low;

	if (at < low && len <= low - at)
		return m->base + at;
	if (at >= MEMORY_HIGH && at - MEMORY_HIGH < high && len <= high - (at - MEMORY_HIGH))
		return m->base + low + (at - MEMORY_HIGH);
	return NULL;
}

void memory_discard(const struct memory *m, uint64_t at, uint64_t len)
{
	uint64_t begin = (at + MEMORY_PAGE - 1) & ~(MEMORY_PAGE - 1);
	uint64_t end = (at + len) & ~(MEMORY_PAGE - 1);
	void *there;

	/* begin or end may have wrapped: then there is no such memory */
	if (at + len < at || begin < at || end <= begin)
		return;
	there = memory_at(m, begin, end - begin);
	if (there)
		madvise(there, end - begin, m->shared ? MADV_REMOVE : MADV_DONTNEED);
}
