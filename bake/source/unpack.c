/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking: libarchive reads, ext4 writes, and nothing touches the host. The archive is read front
 * to back once, each entry checked before it is passed on, and every loop here is bounded: entries
 * by LIMIT_ENTRIES, data by LIMIT_ARCHIVE_BYTES, expansion by LIMIT_ARCHIVE_RATIO, and one layer of
 * compression is all there may be.
 *
 * Two habits of libarchive are kept out. Its "all filters" run programs of the host (lrzip, grzip
 * …) on the archive's bytes: only the filters that are compiled in are turned on. And it turns
 * names into the locale's character set, in a UTF-8 locale into composed form even, so that the
 * same archive gave other names elsewhere: while it reads, this thread is in the C locale, where
 * the conversion fails for anything but ASCII and libarchive then leaves the bytes as they are (and
 * warns; that one warning is expected, any other fails the archive).
 */
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bake/source/unpack_private.h"
#include "common/limits.h"

#define READ_BYTES (256 * KIB)

struct unpacker {
	struct archive *archive;
	const char *what;
	struct ext4 *fs; /* NULL: only look */
	const struct unpack_options *opt;
	struct progress *progress;
	struct unpack_stats stats;
	struct unpack_meta meta;
	char path[LIMIT_PATH], target[LIMIT_PATH];
	/* the archive's bytes */
	int fd, read_errno;
	bool seekable;
	uint64_t size, at;
	char *buf;
};

static la_ssize_t read_more(struct archive *a, void *data, const void **ret)
{
	struct unpacker *u = data;
	ssize_t n;

	do {
		n = u->seekable ? pread(u->fd, u->buf, READ_BYTES, u->at)
				: read(u->fd, u->buf, READ_BYTES);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		u->read_errno = errno;
		archive_set_error(a, errno, "cannot read");
		return -1;
	}
	u->at += n;
	progress_update(u->progress, u->at);
	*ret = u->buf;
	return n;
}

static la_int64_t skip_some(struct archive *a, void *data, la_int64_t request)
{
	struct unpacker *u = data;
	uint64_t left = u->size > u->at ? u->size - u->at : 0;

	(void)a;
	if (!u->seekable || request < 0)
		return 0;
	if ((uint64_t)request < left)
		left = request;
	u->at += left;
	progress_update(u->progress, u->at);
	return left;
}

static int archive_fail(struct unpacker *u, struct err *err)
{
	const char *text = archive_error_string(u->archive);

	if (u->read_errno)
		return err_sys(err, u->read_errno, "%s", u->what);
	if (u->stats.entries == 0)
		return err_set(err, EBADMSG, "%s: %s", u->what, text ? text : "not an archive");
	return err_set(err, EBADMSG, "%s: at or after entry %llu (%.512s): %s", u->what,
		(unsigned long long)u->stats.entries, u->path, text ? text : "damaged");
}

/* The warning that every name beyond ASCII gives in the C locale. */
static bool is_charset_warning(struct archive *a)
{
	const char *text = archive_error_string(a);

	return text && strstr(text, "can't be converted from");
}

/* Far more out than in is nothing that a root file system is like. */
static int ratio_check(struct unpacker *u, struct err *err)
{
	uint64_t out = archive_filter_bytes(u->archive, 0);

	if (out > LIMIT_ARCHIVE_BYTES)
		return err_set(err, EFBIG,
			"%s: at %.512s: more than LIMIT_ARCHIVE_BYTES, %llu bytes, unpacked",
			u->what, u->path, (unsigned long long)LIMIT_ARCHIVE_BYTES);
	if (out > LIMIT_ARCHIVE_RATIO_FROM && out / LIMIT_ARCHIVE_RATIO > u->at)
		return err_set(err, EFBIG,
			"%s: at %.512s: a bomb: %llu bytes unpacked from %llu, more than "
			"LIMIT_ARCHIVE_RATIO (%d) each",
			u->what, u->path, (unsigned long long)out, (unsigned long long)u->at,
			LIMIT_ARCHIVE_RATIO);
	return 0;
}

static int bytes_add(struct unpacker *u, uint64_t len, struct err *err)
{
	if (len > LIMIT_ARCHIVE_BYTES - u->stats.bytes)
		return err_set(err, EFBIG,
			"%s: %.512s: more than LIMIT_ARCHIVE_BYTES, %llu bytes, of data", u->what,
			u->path, (unsigned long long)LIMIT_ARCHIVE_BYTES);
	u->stats.bytes += len;
	return 0;
}

static int data_copy(struct unpacker *u, uint64_t size, struct err *err)
{
	const void *data;
	la_int64_t offset;
	size_t len;
	int r;

	while ((r = archive_read_data_block(u->archive, &data, &len, &offset)) == ARCHIVE_OK) {
		if (offset < 0 || (uint64_t)offset > size || len > size - (uint64_t)offset)
			return err_set(err, EBADMSG,
				"%s: %.512s: data beyond its size of %llu bytes", u->what, u->path,
				(unsigned long long)size);
		r = bytes_add(u, len, err);
		if (r == 0)
			r = ratio_check(u, err);
		if (r < 0)
			return r;
		if (!u->fs)
			continue;
		r = ext4_file_write(u->fs, offset, data, len, err);
		if (r < 0) {
			err_prefix(err, "%s", u->what);
			return r;
		}
	}
	return r == ARCHIVE_EOF ? 0 : archive_fail(u, err);
}

static int file_unpack(struct unpacker *u, struct archive_entry *entry, struct err *err)
{
	uint64_t size = archive_entry_size(entry);
	int r;

	if (!archive_entry_size_is_set(entry) || archive_entry_size(entry) < 0)
		return err_set(err, EBADMSG, "%s: %.512s: a file without a size", u->what, u->path);
	if (size > LIMIT_ARCHIVE_BYTES)
		return err_set(err, EFBIG,
			"%s: %.512s: says it has %llu bytes, more than LIMIT_ARCHIVE_BYTES, %llu",
			u->what, u->path, (unsigned long long)size,
			(unsigned long long)LIMIT_ARCHIVE_BYTES);
	/* nothing to look at in a plain file's data: the next header is found by skipping it */
	if (!u->fs && archive_entry_sparse_count(entry) == 0)
		return bytes_add(u, size, err);
	if (u->fs) {
		r = ext4_file_begin(u->fs, u->path, &u->meta.meta, err);
		if (r < 0) {
			err_prefix(err, "%s", u->what);
			return r;
		}
	}
	r = data_copy(u, size, err);
	if (r < 0 || !u->fs)
		return r;
	r = ext4_file_end(u->fs, size, err);
	if (r < 0)
		err_prefix(err, "%s", u->what);
	return r;
}

/* Everything but a file's data. */
static int node_add(
	struct unpacker *u, struct archive_entry *entry, const char *hardlink, struct err *err)
{
	const char *target;

	if (hardlink) {
		int r = unpack_path(hardlink, u->target, err);

		if (r < 0) {
			err_prefix(err, "%.512s: the target of this hard link", u->path);
			return r;
		}
		return u->fs ? ext4_add_hardlink(u->fs, u->path, u->target, err) : 0;
	}
	switch (archive_entry_filetype(entry)) {
	case AE_IFDIR:
		return u->fs ? ext4_add_dir(u->fs, u->path, &u->meta.meta, err) : 0;
	case AE_IFLNK:
		target = archive_entry_symlink(entry);
		if (!target || !*target)
			return err_set(
				err, EINVAL, "%.512s: a symbolic link without a target", u->path);
		return u->fs ? ext4_add_symlink(u->fs, u->path, target, &u->meta.meta, err) : 0;
	case AE_IFCHR:
	case AE_IFBLK:
	case AE_IFIFO:
	case AE_IFSOCK:
		return u->fs ? ext4_add_node(u->fs, u->path, &u->meta.meta, err) : 0;
	default:
		return err_set(err, EINVAL, "%.512s: an entry of an unknown type (%o)", u->path,
			archive_entry_filetype(entry));
	}
}

static bool is_skipped(const struct unpacker *u)
{
	for (const char *const *s = u->opt->skip; s && *s; s++) {
		if (strncmp(u->path, *s, strlen(*s)) == 0)
			return true;
	}
	return false;
}

/*
 * A layer of an image marks what is deleted of the layers below: a file .wh.NAME (image-spec, layer.md; .wh..wh..opq
 * of a whole directory), or in overlayfs's own form a character device 0:0. As files of a root they would bring back
 * what was deleted, and be there themselves.
 */
static bool is_whiteout(const struct unpacker *u, struct archive_entry *entry)
{
	const char *base = strrchr(u->path, '/');

	base = base ? base + 1 : u->path;
	return strncmp(base, ".wh.", 4) == 0 ||
		(archive_entry_filetype(entry) == AE_IFCHR && archive_entry_rdevmajor(entry) == 0 &&
			archive_entry_rdevminor(entry) == 0);
}

static int entry_unpack(struct unpacker *u, struct archive_entry *entry, struct err *err)
{
	const char *hardlink = archive_entry_hardlink(entry);
	unsigned type = archive_entry_filetype(entry);
	int r = unpack_path(archive_entry_pathname(entry), u->path, err);

	if (r == 0 && ++u->stats.entries > LIMIT_ENTRIES)
		r = err_set(err, EFBIG, "more than LIMIT_ENTRIES (%lu) entries", LIMIT_ENTRIES);
	if (r < 0) {
		err_prefix(err, "%s", u->what);
		return r;
	}
	if (is_skipped(u))
		return 0;
	if (is_whiteout(u, entry))
		return err_set(err, EINVAL,
			"%s: %.512s: a whiteout: this is one layer of an image, not a whole root; "
			"give the root that its layers make together (as `docker export` writes "
			"it)",
			u->what, u->path);
	if (!hardlink && u->opt->no_devices && (type == AE_IFCHR || type == AE_IFBLK)) {
		u->stats.devices_skipped++;
		return 0;
	}
	r = hardlink ? 0 : unpack_meta_read(entry, u->opt->clamp_mtime_s, &u->meta, err);
	if (r < 0) {
		err_prefix(err, "%s: %.512s", u->what, u->path);
		return r;
	}
	if (!hardlink && type == AE_IFREG)
		return file_unpack(u, entry, err);
	r = node_add(u, entry, hardlink, err);
	if (r < 0)
		err_prefix(err, "%s", u->what);
	return r;
}

static int entries_unpack(struct unpacker *u, struct err *err)
{
	struct archive_entry *entry;
	int r;

	for (;;) {
		r = archive_read_next_header(u->archive, &entry);
		if (r == ARCHIVE_EOF)
			return 0;
		if (r != ARCHIVE_OK && !(r == ARCHIVE_WARN && is_charset_warning(u->archive)))
			return archive_fail(u, err);
		/* the last filter is the file itself */
		if (archive_filter_count(u->archive) > 2)
			return err_set(err, EBADMSG, "%s: compressed more than once", u->what);
		r = entry_unpack(u, entry, err);
		if (r == 0)
			r = ratio_check(u, err);
		if (r < 0)
			return r;
	}
}

/* Only what is compiled into libarchive; where it would run a program instead, it says so. */
static int reader_new(struct unpacker *u, struct err *err)
{
	static int (*const filters[])(struct archive *) = {
		archive_read_support_filter_gzip,
		archive_read_support_filter_bzip2,
		archive_read_support_filter_xz,
		archive_read_support_filter_lzma,
		archive_read_support_filter_zstd,
		archive_read_support_filter_lz4,
		archive_read_support_filter_compress,
	};

	u->archive = archive_read_new();
	u->buf = malloc(READ_BYTES);
	if (!u->archive || !u->buf)
		return err_sys(err, ENOMEM, "%s", u->what);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		if (filters[i](u->archive) != ARCHIVE_OK)
			return err_set(err, ENOTSUP, "%s: this libarchive lacks a decompressor: %s",
				u->what, archive_error_string(u->archive));
	}
	if (archive_read_support_format_tar(u->archive) != ARCHIVE_OK ||
		archive_read_open2(u->archive, u, NULL, read_more, skip_some, NULL) != ARCHIVE_OK)
		return archive_fail(u, err);
	return 0;
}

static int unpack(struct unpacker *u, struct unpack_stats *ret, struct err *err)
{
	static const struct unpack_options plain = {.clamp_mtime_s = INT64_MAX};
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before;
	struct stat st;
	int r;

	if (!c)
		return err_sys(err, errno, "the C locale");
	if (!u->opt)
		u->opt = &plain;
	if (fstat(u->fd, &st) == 0 && S_ISREG(st.st_mode)) {
		u->seekable = true;
		u->size = st.st_size;
		progress_total(u->progress, u->size);
	}
	before = uselocale(c);
	r = reader_new(u, err);
	if (r == 0)
		r = entries_unpack(u, err);
	archive_read_free(u->archive);
	uselocale(before);
	freelocale(c);
	free(u->buf);
	if (r < 0)
		return r;
	if (u->meta.xattrs_skipped)
		progress_note(u->progress,
			"%s: %llu extended attributes left out: Linux has no such namespace",
			u->what, (unsigned long long)u->meta.xattrs_skipped);
	if (ret)
		*ret = u->stats;
	return 0;
}

int unpack_archive(int fd, const char *what, struct ext4 *fs, const struct unpack_options *opt,
	struct progress *progress, struct unpack_stats *ret, struct err *err)
{
	cleanup_free struct unpacker *u = calloc(1, sizeof(*u));

	if (!u)
		return err_sys(err, ENOMEM, "%s", what);
	u->fd = fd;
	u->what = what;
	u->fs = fs;
	u->opt = opt;
	u->progress = progress;
	return unpack(u, ret, err);
}

int unpack_measure(int fd, const char *what, const struct unpack_options *opt,
	struct unpack_stats *ret, struct err *err)
{
	return unpack_archive(fd, what, NULL, opt, NULL, ret, err);
}
