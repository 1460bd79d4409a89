/* SPDX-License-Identifier: Apache-2.0 */
/* The pager's handshake: JSON from a monitor that a guest may have taken over. What is accepted
 * must be whole pages within the memory, apart from each other. */
#include <stdlib.h>

#include "restore/pager/pager_private.h"

#define MEMORY (64 * MIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pager_region r[LIMIT_REGIONS];
	unsigned n = 0;
	struct err err;

	if (pager_regions_parse(data, size, MEMORY, r, &n, &err) < 0)
		return 0;
	if (n < 1 || n > LIMIT_REGIONS)
		abort();
	for (unsigned i = 0; i < n; i++) {
		if (r[i].start >= r[i].end || r[i].end > MEMORY || r[i].start % IMAGE_PAGE ||
			r[i].end % IMAGE_PAGE || r[i].base % IMAGE_PAGE ||
			r[i].base + (r[i].end - r[i].start) < r[i].base)
			abort();
		for (unsigned j = 0; j < i; j++) {
			if (r[i].start < r[j].end && r[j].start < r[i].end)
				abort();
		}
	}
	return 0;
}
