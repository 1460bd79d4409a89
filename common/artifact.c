/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed files of the cache. A file's content is known by its size and a digest over the pages that
 * are not zeros, each with its place. So holes need not be read, and the digest is the same whether
 * zeros are holes or not.
 */
#include "common/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/file.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/str.h"
#include "common/units.h"

#define DIRECTORY "verified"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define PAGE 4096u
#define CHUNK (1024u * 1024)

/* ---- what it holds -------------------------------------------------------------------------------- */

static void digest_place(struct digest *d, uint64_t at)
{
	uint8_t bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(at >> 8 * i);
	digest_update(d, bytes, sizeof(bytes));
}

static void digest_pages(struct digest *d, const uint8_t *buf, size_t len, uint64_t at)
{
	for (size_t i = 0; i < len; i += PAGE) {
		size_t n = len - i < PAGE ? len - i : PAGE;

		if (buf[i] == 0 && memcmp(buf + i, buf + i + 1, n - 1) == 0)
			continue;
		digest_place(d, at + i);
		digest_update(d, buf + i, n);
	}
}

static int content_of(int fd, uint64_t size, char ret[static DIGEST_TEXT_SIZE], uint64_t *ret_bytes)
{
	cleanup_digest struct digest *d = digest_new();
	cleanup_free uint8_t *buf = malloc(CHUNK);
	uint64_t read_bytes = 0;
	off_t at = 0;

	if (!buf)
		return -ENOMEM;
	digest_place(d, size);
	while ((uint64_t)at < size) {
		off_t data = lseek(fd, at, SEEK_DATA), end;

		if (data < 0 && errno == ENXIO)
			break;
		end = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
		if (end < 0)
			return -errno;
		at = data / PAGE * PAGE;
		end = (off_t)size < end ? (off_t)size : end;
		while (at < end) {
			size_t n = end - at < (off_t)CHUNK ? (size_t)(end - at) : CHUNK;
			int r = file_pread_full(fd, buf, n, at);

			if (r < 0)
				return r;
			digest_pages(d, buf, n, (uint64_t)at);
			at += (off_t)n;
			read_bytes += n;
		}
	}
	digest_final(d, ret);
	*ret_bytes = read_bytes;
	return 0;
}

/* ---- the record ----------------------------------------------------------------------------------- */

static char *record_name(const char *sub, const char *name)
{
	return str_printf("%s-%s", sub, name);
}

/* The file as it lies there, and since when that is known. New reference. */
static json_t *identity_of(const struct stat *st)
{
	cleanup_free char *boot = NULL;
	size_t len = 0;

	if (file_read_all(AT_FDCWD, BOOT_ID, 64, &boot, &len, NULL) < 0)
		boot = str_dup("");
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "boot_id", boot, "dev",
		(json_int_t)st->st_dev, "ino", (json_int_t)st->st_ino, "bytes",
		(json_int_t)st->st_size, "mtime", (json_int_t)st->st_mtim.tv_sec, "mtime_ns",
		(json_int_t)st->st_mtim.tv_nsec, "ctime", (json_int_t)st->st_ctim.tv_sec,
		"ctime_ns", (json_int_t)st->st_ctim.tv_nsec);
}

static int record_write(const char *sub, const char *name, const char *content,
	const struct stat *st, struct err *err)
{
	cleanup_free char *dir = NULL, *file = record_name(sub, name), *text = NULL;
	cleanup_json json_t *record =
		json_pack("{s:s, s:o}", "content", content, "identity", identity_of(st));
	int r = paths_sub(PATHS_CACHE, DIRECTORY, &dir, err);

	if (r < 0)
		return r;
	if (!record)
		return err_set(err, ENOMEM, "no memory for a record of %s/%s", sub, name);
	text = json_text(record);
	return file_publish(dir, file, text, strlen(text), 0600, err);
}

/* -ENOENT: there is none, or none that can be read. New reference. */
static int record_read(const char *sub, const char *name, json_t **ret, struct err *err)
{
	cleanup_free char *dir = NULL, *file = record_name(sub, name), *path = NULL;
	const char *content;
	int r = paths_sub(PATHS_CACHE, DIRECTORY, &dir, err);

	if (r < 0)
		return r;
	path = str_printf("%s/%s", dir, file);
	utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW); /* used now: a gc leaves it */
	if (json_read_file(AT_FDCWD, path, ret, NULL) < 0)
		return err_set(err, ENOENT, "there is no record of what %s/%s holds", sub, name);
	if (json_get_string(*ret, "content", &content, NULL) < 0 || !digest_valid(content)) {
		json_decref(*ret);
		return err_set(err, ENOENT, "the record of what %s/%s holds is damaged", sub, name);
	}
	return 0;
}

/* ---- sealing and checking -------------------------------------------------------------------------- */

static int artifact_open(const char *sub, const char *name, int *ret, struct err *err)
{
	cleanup_free char *path = NULL;
	const char *cache;
	int r = paths_get(PATHS_CACHE, &cache, err);

	if (r < 0)
		return r;
	path = str_printf("%s/%s/%s", cache, sub, name);
	*ret = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return *ret < 0 ? err_sys(err, errno, "%s", path) : 0;
}

int artifact_seal(const char *sub, const char *name, struct err *err)
{
	cleanup_fd int fd = -1;
	char content[DIGEST_TEXT_SIZE];
	uint64_t bytes;
	struct stat st;
	int r = artifact_open(sub, name, &fd, err);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "%s/%s", sub, name);
	r = content_of(fd, (uint64_t)st.st_size, content, &bytes);
	return r < 0 ? err_sys(err, -r, "read %s/%s", sub, name)
		     : record_write(sub, name, content, &st, err);
}

int artifact_check(
	const char *sub, const char *name, int fd, bool anew, uint64_t *ret_bytes, struct err *err)
{
	cleanup_json json_t *record = NULL, *now = NULL;
	char content[DIGEST_TEXT_SIZE];
	uint64_t bytes = 0;
	const char *cache;
	struct stat st;
	int r = paths_get(PATHS_CACHE, &cache, err);

	if (r == 0)
		r = record_read(sub, name, &record, err);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "%s/%s", sub, name);
	now = identity_of(&st);
	if (anew || !json_equal(now, json_object_get(record, "identity"))) {
		const char *want = json_string_value(json_object_get(record, "content"));

		r = content_of(fd, (uint64_t)st.st_size, content, &bytes);
		if (r < 0)
			return err_sys(err, -r, "read %s/%s/%s", cache, sub, name);
		if (strcmp(content, want) != 0)
			return err_set(err, EBADMSG,
				"%s/%s/%s is damaged: it does not hold what it was made with; "
				"remove "
				"it, and it is made anew",
				cache, sub, name);
		/* seen once: not to be seen again costs time alone */
		(void)record_write(sub, name, want, &st, NULL);
	}
	if (ret_bytes)
		*ret_bytes = bytes;
	return 0;
}

int artifact_verify(const char *sub, const char *name, uint64_t *ret_bytes, struct err *err)
{
	cleanup_fd int fd = -1;
	int r = artifact_open(sub, name, &fd, err);

	if (r == 0)
		r = artifact_check(sub, name, fd, true, ret_bytes, err);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}
