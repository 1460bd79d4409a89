/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expanded disks, in the cache. A disk's name is made of its content: the digest of the root disk,
 * or, where the bake wrote over it, the digest of both images and of the list of what was written.
 * A disk that has its name is whole, because it gets the name only after its digests were checked,
 * and a record says what it holds (common/artifact.h). So to open it again is an open(2) and a look
 * at the record; a process that dies on the way leaves nothing; and a disk that was damaged since
 * is made anew.
 *
 * A delta holds the listed ranges one behind the other. A hole in the delta was written with zeros,
 * and must be zero in the disk, whatever the root disk holds there.
 */
#include "restore/disk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/artifact.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/str.h"
#include "store/image.h"

#define DIRECTORY "disks"
#define COPY_BYTES (256 * KIB)

void disk_name(const struct snapshot_config *c, char ret[static DIGEST_HEX_SIZE])
{
	char sum[DIGEST_TEXT_SIZE];
	cleanup_digest struct digest *d = NULL;
	cleanup_free char *ranges = NULL;

	if (!c->delta_raw_digest[0]) {
		snprintf(ret, DIGEST_HEX_SIZE, "%s", c->disk_raw_digest + strlen("sha256:"));
		return;
	}
	d = digest_new();
	ranges = json_text(json_object_get(c->extra, "delta") ?: json_null());
	digest_update(d, c->disk_raw_digest, strlen(c->disk_raw_digest));
	digest_update(d, c->delta_raw_digest, strlen(c->delta_raw_digest));
	digest_update(d, ranges, strlen(ranges));
	digest_final(d, sum);
	snprintf(ret, DIGEST_HEX_SIZE, "%s", sum + strlen("sha256:"));
}

/* -ENOENT: not there, or not whole (the size of another config); -EBADMSG: damaged. Either way it is to be made. */
static int open_made(const char *dir, const char *name, uint64_t bytes, int *ret_fd)
{
	cleanup_free char *path = str_printf("%s/%s", dir, name);
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	struct err err;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_mode & 0222 || (uint64_t)st.st_size != bytes)
		return -ENOENT;
	r = artifact_check(DIRECTORY, name, fd, false, NULL, &err);
	if (r == -EBADMSG)
		log_warn("%s", err.text);
	if (r < 0)
		return r;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int open_image(int fd, uint64_t bytes, const char *what, struct image **ret, struct err *err)
{
	struct image *img;
	int r = image_open(fd, &img, err);

	if (r < 0) {
		err_prefix(err, "the template's %s", what);
		return r;
	}
	if (image_raw_bytes(img) != bytes) {
		r = err_set(err, EBADMSG, "the template's %s has %llu bytes, its config says %llu",
			what, (unsigned long long)image_raw_bytes(img), (unsigned long long)bytes);
		image_free(img);
		return r;
	}
	*ret = img;
	return 0;
}

/* @len bytes at @pos of the expanded delta go to @at of the disk. */
static int copy_data(int from, uint64_t pos, int to, uint64_t at, uint64_t len, struct err *err)
{
	cleanup_free char *buf = malloc(COPY_BYTES);
	int r = buf ? 0 : -ENOMEM;

	for (uint64_t done = 0; r == 0 && done < len;) {
		size_t n = len - done < COPY_BYTES ? (size_t)(len - done) : COPY_BYTES;

		r = file_pread_full(from, buf, n, (off_t)(pos + done));
		if (r == 0)
			r = file_pwrite_full(to, buf, n, (off_t)(at + done));
		done += n;
	}
	return r < 0 ? err_sys(err, -r, "put the disk's delta over it") : 0;
}

static int zero_data(int to, uint64_t at, uint64_t len, struct err *err)
{
	static const char zeros[64 * KIB];
	uint64_t end = at + len;

	if (fallocate(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len) == 0)
		return 0;
	while (at < end) {
		size_t n = end - at < sizeof(zeros) ? (size_t)(end - at) : sizeof(zeros);
		int r = file_pwrite_full(to, zeros, n, (off_t)at);

		if (r < 0)
			return err_sys(err, -r, "put the disk's delta over it");
		at += n;
	}
	return 0;
}

/* The delta is expanded beside the disk, checked as a whole, and its ranges copied. */
static int apply_delta(
	int delta_fd, const struct snapshot_config *c, const char *dir, int disk, struct err *err)
{
	cleanup_image struct image *img = NULL;
	cleanup_fd int scratch = -1;
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges ranges = {0};
	uint64_t bytes = 0, pos = 0;
	int r = snapshot_delta_get(c, &ranges, err);

	for (size_t i = 0; r == 0 && i < ranges.n; i++)
		bytes += ranges.ranges[i].bytes;
	if (r == 0)
		r = open_image(delta_fd, bytes, "disk delta", &img, err);
	if (r < 0)
		return r;
	scratch = file_scratch(dir, err);
	if (scratch < 0)
		return scratch;
	r = image_expand(img, scratch, c->delta_raw_digest, NULL, err);
	if (r < 0) {
		err_prefix(err, "the template's disk delta");
		return r;
	}
	for (size_t i = 0; i < ranges.n && r == 0; i++) {
		uint64_t at = ranges.ranges[i].offset, end = pos + ranges.ranges[i].bytes;

		while (r == 0 && pos < end) {
			bool data;
			uint64_t next =
				image_run_end(img, pos / IMAGE_PAGE * IMAGE_PAGE, end, &data);

			r = data ? copy_data(scratch, pos, disk, at, next - pos, err)
				 : zero_data(disk, at, next - pos, err);
			at += next - pos;
			pos = next;
		}
	}
	return r;
}

static int make(int root_fd, int delta_fd, const struct snapshot_config *c, const char *dir,
	const char *name, struct progress *progress, struct err *err)
{
	cleanup_image struct image *img = NULL;
	cleanup_publish struct publish p = PUBLISH_INIT;
	int r = open_image(root_fd, c->disk_bytes, "disk", &img, err);

	if (r == 0)
		r = publish_begin(&p, dir, err);
	if (r < 0)
		return r;
	progress_stage(progress, "expand the disk", "bytes", c->disk_bytes);
	r = image_expand(img, p.fd, c->disk_raw_digest, progress, err);
	if (r < 0) {
		err_prefix(err, "the template's disk");
		return r;
	}
	if (c->delta_raw_digest[0])
		r = apply_delta(delta_fd, c, dir, p.fd, err);
	if (r < 0)
		return r;
	r = fault_point("restore.disk.before-publish");
	if (r < 0)
		return err_sys(err, -r, "publish the expanded disk");
	r = publish_commit(&p, name, 0400, err);
	if (r == 0)
		r = artifact_seal(DIRECTORY, name, err);
	if (r == 0)
		progress_done(progress, NULL);
	return r;
}

int disk_open(int root_fd, int delta_fd, const struct snapshot_config *c, struct progress *progress,
	int *ret_fd, struct err *err)
{
	cleanup_free char *dir = NULL;
	cleanup_fd int lock = -1;
	char name[DIGEST_HEX_SIZE], lock_name[16];
	int r;

	if (!digest_valid(c->disk_raw_digest) ||
		(c->delta_raw_digest[0] && (!digest_valid(c->delta_raw_digest) || delta_fd < 0)))
		return err_set(
			err, EINVAL, "the template's config does not name its disk's digests");
	r = paths_sub(PATHS_CACHE, DIRECTORY, &dir, err);
	if (r < 0)
		return r;
	disk_name(c, name);
	if (open_made(dir, name, c->disk_bytes, ret_fd) == 0)
		return 0;
	/* by the first digit: two templates seldom wait for each other, and no lock file is litter
	 */
	snprintf(lock_name, sizeof(lock_name), ".lock-%c", name[0]);
	lock = file_lock(dir, lock_name, true, true, err);
	if (lock < 0)
		return lock;
	if (open_made(dir, name, c->disk_bytes, ret_fd) == 0)
		return 0;
	r = make(root_fd, delta_fd, c, dir, name, progress, err);
	if (r < 0)
		return r;
	r = open_made(dir, name, c->disk_bytes, ret_fd);
	return r < 0 ? err_sys(err, -r, "open the expanded disk %s/%s", dir, name) : 0;
}

int disk_verify(const struct snapshot_config *c, uint64_t *ret_bytes, struct err *err)
{
	char name[DIGEST_HEX_SIZE];

	if (!digest_valid(c->disk_raw_digest))
		return 0;
	disk_name(c, name);
	return artifact_verify(DIRECTORY, name, ret_bytes, err);
}
