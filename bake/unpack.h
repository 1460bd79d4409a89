/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_UNPACK_H
#define PARBAKE_BAKE_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "bake/ext4.h"
#include "common/err.h"
#include "common/progress.h"

/*
 * An archive (whatever libarchive reads as tar, compressed or not) streamed into an ext4 image; nothing is extracted
 * onto the host. The archive is hostile: absolute names and leading "./" are taken beneath the root; `..` anywhere in
 * a name or in a hard link's target, over-long names, more than LIMIT_ENTRIES entries or
 * LIMIT_ARCHIVE_BYTES bytes, sizes that the data do not bear out are errors that name the entry. Symbolic links may
 * say what they like (they are resolved in the guest only) but no entry is written through one.
 */
struct unpack_options {
	bool no_devices;   /* leave out device nodes (a count is in the stats) */
	int64_t clamp_mtime_s; /* later times become this one; INT64_MAX: none */
	const char *const *skip; /* NULL-terminated path prefixes to leave out ("/dev/"); may be NULL */
};

struct unpack_stats {
	uint64_t entries, bytes, devices_skipped;
};

int unpack_archive(int fd, const char *what, struct ext4 *fs, const struct unpack_options *opt,
	struct progress *progress, struct unpack_stats *ret, struct err *err);
/* Only look: entries and bytes (to size an image) under the same rules. */
int unpack_measure(int fd, const char *what, const struct unpack_options *opt, struct unpack_stats *ret,
	struct err *err);

#endif
