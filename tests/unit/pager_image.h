/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_PAGER_IMAGE_H
#define PARBAKE_TESTS_PAGER_IMAGE_H

/* The memory image that the machines of pager_child.h check their bytes against. */
#include <sys/mman.h>

#include "store/image.h"
#include "store/snapshot.h"
#include "tests/unit/pager_child.h"

/* Of @pages pages, in frames of @frame_bytes; a memfd. */
static inline int image_file(uint64_t pages, uint32_t frame_bytes)
{
	int raw = memfd_create("raw", MFD_CLOEXEC), out = memfd_create("image", MFD_CLOEXEC);
	struct image_options opt = {.frame_bytes = frame_bytes, .level = 1, .threads = 2};
	struct image_stats stats;
	struct err err;
	uint8_t buf[PAGE];

	if (raw < 0 || out < 0 || ftruncate(raw, (off_t)(pages * PAGE)) < 0)
		child_die("memfd");
	for (uint64_t page = 0; page < pages; page++) {
		oracle_page(page, buf);
		if (oracle_has_data(page) &&
			pwrite(raw, buf, PAGE, (off_t)(page * PAGE)) != (ssize_t)PAGE)
			child_die("pwrite");
	}
	if (image_write(raw, pages * PAGE, &opt, out, NULL, &stats, &err) < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
	close(raw);
	return out;
}

/* The difference of oracle_own(): its image, a memfd; ranges to @ret (with @pages of room), their number to
 * *@ret_n. */
static inline int own_file(
	uint64_t pages, uint32_t frame_bytes, struct snapshot_range *ret, size_t *ret_n)
{
	int raw = memfd_create("raw", MFD_CLOEXEC), out = memfd_create("own", MFD_CLOEXEC);
	struct image_options opt = {.frame_bytes = frame_bytes, .level = 1, .threads = 2};
	struct image_stats stats;
	uint64_t at = 0;
	struct err err;
	uint8_t buf[PAGE];
	size_t n = 0;

	for (uint64_t page = 0; page < pages; page++) {
		if (oracle_own(page) == OWN_NOT)
			continue;
		oracle_own_page(page, buf);
		if (oracle_own(page) == OWN_DATA &&
			pwrite(raw, buf, PAGE, (off_t)at) != (ssize_t)PAGE)
			child_die("pwrite");
		at += PAGE;
		if (n && ret[n - 1].offset + ret[n - 1].bytes == page * PAGE)
			ret[n - 1].bytes += PAGE;
		else
			ret[n++] = (struct snapshot_range){page * PAGE, PAGE};
	}
	if (raw < 0 || out < 0 || ftruncate(raw, (off_t)at) < 0)
		child_die("memfd");
	if (image_write(raw, at, &opt, out, NULL, &stats, &err) < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
	close(raw);
	*ret_n = n;
	return out;
}

#endif
