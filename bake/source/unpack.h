/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SOURCE_UNPACK_H
#define PARBAKE_BAKE_SOURCE_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "bake/ext4/ext4.h"
#include "common/err.h"
#include "common/progress.h"

/*
 * An archive (whatever libarchive reads as tar, compressed or not) streamed into an ext4 image;
 * nothing is extracted onto the host. The archive is hostile: absolute names and leading "./" are
 * taken beneath the root; `..` anywhere in a name or in a hard link's target, over-long names,
 * more than LIMIT_ENTRIES entries or LIMIT_ARCHIVE_BYTES bytes, sizes that the data do not bear
 * out are errors that name the entry. Symbolic links may say what they like (they are resolved in
 * the guest only) but no entry is written through one.
 */
struct unpack_options {
	bool no_devices; /* leave out device nodes (a count is in the stats) */
	int64_t clamp_mtime_s; /* later times become this one; INT64_MAX: none */
	const char *const *skip; /* NULL-terminated: path prefixes ("/dev/"); or NULL */
};

struct unpack_stats {
	uint64_t entries, bytes, devices_skipped; /* bytes: of data; holes are not counted */
};

int unpack_archive(int fd, const char *what, struct ext4 *fs, const struct unpack_options *opt,
	struct progress *progress, struct unpack_stats *ret, struct err *err);
/*
 * @fd is read from its beginning where it is a regular file (its offset is left alone), else from
 * where it is; @what names it in errors. @opt may be NULL. The caller has opened @progress's
 * stage (in bytes of the archive); its total is set here. Errors: -EBADMSG not an archive or
 * damaged, -EINVAL an entry that must not be, -EFBIG a limit, and those of ext4.h, all with the
 * entry's path. After one, @fs is good for ext4_abort() alone. Extended attributes of namespaces
 * that Linux does not have are left out and noted in @progress.
 */
/* Only look: entries and bytes (to size an image) under the same rules. */
int unpack_measure(int fd, const char *what, const struct unpack_options *opt,
	struct unpack_stats *ret, struct err *err);

#endif
