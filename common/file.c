/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, and their publishing: a reader sees the old file or the new one, never a part of one. The
 * file is made in the directory of its final name, so naming it stays on one file system; file and
 * directory are synced around it, so the order holds through a power cut.
 */
#include "common/file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/fault.h"
#include "common/limits.h"
#include "common/str.h"

#define COPY_BYTES (256 * KIB)
#define COPY_STEP ((off_t)(16 * MIB))

int file_pread_full(int fd, void *buf, size_t len, off_t offset)
{
	char *at = buf;

	while (len) {
		ssize_t n = pread(fd, at, len, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		at += n;
		offset += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_write_full(int fd, const void *buf, size_t len)
{
	const char *at = buf;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_pwrite_full(int fd, const void *buf, size_t len, off_t offset)
{
	const char *at = buf;

	while (len) {
		ssize_t n = pwrite(fd, at, len, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		offset += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Bytes at the same place of both. By the kernel, where it can between these two; else through @buf. */
static int copy_some(int from, int to, off_t at, size_t n, char *buf, bool *by_kernel)
{
	while (n && *by_kernel) {
		off_t in = at, out = at;
		ssize_t done = copy_file_range(from, &in, to, &out, n, 0);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 &&
			(errno == ENOSPC || errno == EIO || errno == EDQUOT || errno == EFBIG))
			return -errno;
		if (done <=
			0) /* not between these; what is wrong otherwise the other way finds, too */
			*by_kernel = false;
		else
			at += done, n -= (size_t)done;
	}
	while (n) {
		size_t some = n < COPY_BYTES ? n : COPY_BYTES;
		int r = file_pread_full(from, buf, some, at);

		if (r == 0)
			r = file_pwrite_full(to, buf, some, at);
		if (r < 0)
			return r;
		at += (off_t)some;
		n -= some;
	}
	return 0;
}

int file_copy_sparse(int from, int to, uint64_t len, int (*go_on)(void *user), void *user)
{
	cleanup_free char *buf = malloc(COPY_BYTES);
	bool by_kernel = true;
	struct stat st;
	off_t at = 0, end;

	if (!buf)
		return -ENOMEM;
	if (fstat(from, &st) == 0 && (uint64_t)st.st_size == len && ioctl(to, FICLONE, from) == 0)
		return 0;
	while ((uint64_t)at < len) {
		int r = 0;

		at = lseek(from, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break; /* holes to the end */
		end = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		if ((uint64_t)end > len)
			end = (off_t)len;
		while (r == 0 && at < end) {
			size_t n = end - at < COPY_STEP ? (size_t)(end - at) : COPY_STEP;

			r = go_on ? go_on(user) : 0;
			if (r == 0)
				r = copy_some(from, to, at, n, buf, &by_kernel);
			at += (off_t)n;
		}
		if (r != 0)
			return r;
	}
	return 0;
}

int file_read_rest(
	int fd, const char *name, size_t max, char **ret, size_t *ret_len, struct err *err)
{
	cleanup_free char *buf = NULL;
	size_t len = 0, room = 0;

	for (;;) {
		ssize_t n;

		if (len == room) {
			char *more;

			room = room ? room * 2 : 4096;
			more = realloc(buf, room + 1);
			if (!more)
				return err_sys(err, ENOMEM, "read %s", name);
			buf = more;
		}
		n = read(fd, buf + len, room - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, errno, "read %s", name);
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > max)
			return err_set(err, EFBIG, "read %s: longer than %zu bytes", name, max);
	}
	buf[len] = '\0';
	*ret = steal_ptr(&buf);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int file_read_all(
	int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *err)
{
	cleanup_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open %s", path);
	return file_read_rest(fd, path, max, ret, ret_len, err);
}

static int make_dir(const char *path, mode_t mode, struct err *err)
{
	struct stat st;

	if (mkdir(path, mode) == 0) {
		/* not what the umask left of it */
		if (chmod(path, mode) < 0)
			return err_sys(err, errno, "set the mode of %s", path);
		return 0;
	}
	if (errno != EEXIST)
		return err_sys(err, errno, "make directory %s", path);
	if (stat(path, &st) < 0)
		return err_sys(err, errno, "make directory %s", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(
			err, ENOTDIR, "make directory %s: something else has that name", path);
	return 0;
}

int file_mkdir_p(const char *path, mode_t mode, struct err *err)
{
	cleanup_free char *copy = str_dup(path);

	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = '\0';
		r = make_dir(copy, mode, err);
		if (r < 0)
			return r;
		*slash = '/';
	}
	return make_dir(copy, mode, err);
}

/* Everything below the open directory @fd, which is consumed. */
static int remove_below(int fd, dev_t dev, unsigned depth, struct err *err)
{
	cleanup_dir DIR *dir = fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		int r = err_sys(err, errno, "remove a tree");

		close(fd);
		return r;
	}
	if (depth > LIMIT_PATH_DEPTH)
		return err_set(err, ELOOP, "remove a tree: deeper than %d", LIMIT_PATH_DEPTH);
	while ((errno = 0, entry = readdir(dir))) {
		struct stat st;
		int sub, r;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != EPERM)
			return err_sys(err, errno, "remove %s", entry->d_name);
		sub = openat(
			dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0)
			return err_sys(err, errno, "remove %s", entry->d_name);
		if (fstat(sub, &st) < 0 || st.st_dev != dev) {
			close(sub);
			return err_set(err, EXDEV,
				"remove %s: another file system is mounted there", entry->d_name);
		}
		r = remove_below(sub, dev, depth + 1, err);
		if (r < 0)
			return r;
		if (unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			return err_sys(err, errno, "remove %s", entry->d_name);
	}
	return errno ? err_sys(err, errno, "read a directory") : 0;
}

int file_remove_tree(int dirfd, const char *name, struct err *err)
{
	struct stat st;
	int fd, r;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_sys(err, errno, "remove %s", name);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "remove %s", name);
	if (fstat(fd, &st) < 0) {
		r = err_sys(err, errno, "remove %s", name);
		close(fd);
		return r;
	}
	r = remove_below(fd, st.st_dev, 0, err);
	if (r < 0)
		return r;
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove %s", name);
	return 0;
}

/* Call @make with fresh temporary names until there is one that nothing has; its result. */
static int with_tmp_name(struct publish *p, int (*make)(const struct publish *p))
{
	static _Atomic unsigned serial;
	int r;

	do {
		snprintf(p->tmp, sizeof(p->tmp), ".tmp-%ld-%u", (long)getpid(), serial++);
		r = make(p);
	} while (r < 0 && errno == EEXIST);
	if (r < 0)
		p->tmp[0] = '\0';
	return r;
}

static int create_tmp(const struct publish *p)
{
	return openat(p->dirfd, p->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int link_as(const struct publish *p, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fd);
	return linkat(AT_FDCWD, path, p->dirfd, name, AT_SYMLINK_FOLLOW);
}

static int link_tmp(const struct publish *p)
{
	return link_as(p, p->tmp);
}

/* O_TMPFILE in @dirfd; -1 with EOPNOTSUPP where it cannot be had. */
static int open_unnamed(int dirfd)
{
	int fd = fault_point("file.unnamed");

	if (fd < 0) {
		errno = -fd;
		return -1;
	}
	fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EISDIR || errno == ENOENT)) /* as old kernels read the flags */
		errno = EOPNOTSUPP;
	return fd;
}

int publish_begin(struct publish *p, const char *dir, struct err *err)
{
	p->tmp[0] = '\0';
	p->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dirfd < 0)
		return err_sys(err, errno, "open directory %s", dir);
	p->fd = open_unnamed(p->dirfd);
	if (p->fd < 0 && errno == EOPNOTSUPP)
		p->fd = with_tmp_name(p, create_tmp);
	return p->fd < 0 ? err_sys(err, errno, "make a file in %s", dir) : 0;
}

/* linkat(2) replaces nothing, rename(2) does. */
static int give_name(struct publish *p, const char *name)
{
	if (!p->tmp[0]) {
		if (link_as(p, name) == 0)
			return 0;
		if (errno != EEXIST || with_tmp_name(p, link_tmp) < 0)
			return -1;
	}
	return renameat(p->dirfd, p->tmp, p->dirfd, name);
}

int publish_commit(struct publish *p, const char *name, mode_t mode, struct err *err)
{
	if (fchmod(p->fd, mode) < 0 || fsync(p->fd) < 0)
		return err_sys(err, errno, "write %s", name);
	if (give_name(p, name) < 0)
		return err_sys(err, errno, "publish %s", name);
	close_fd(&p->fd);
	if (fsync(p->dirfd) < 0)
		return err_sys(err, errno, "publish %s: sync the directory", name);
	close_fd(&p->dirfd);
	return 0;
}

void publish_end(struct publish *p)
{
	if (p->fd >= 0 && p->tmp[0]) {
		int saved = errno;

		unlinkat(p->dirfd, p->tmp, 0);
		errno = saved;
	}
	close_fd(&p->fd);
	close_fd(&p->dirfd);
}

int file_publish(const char *dir, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err)
{
	cleanup_publish struct publish p = PUBLISH_INIT;
	int r = publish_begin(&p, dir, err);

	if (r < 0)
		return r;
	r = file_write_full(p.fd, data, len);
	if (r < 0)
		return err_sys(err, -r, "write %s/%s", dir, name);
	return publish_commit(&p, name, mode, err);
}

int file_scratch(const char *dir, struct err *err)
{
	cleanup_publish struct publish p = PUBLISH_INIT;
	int r = publish_begin(&p, dir, err);

	if (r < 0) {
		err_prefix(err, "scratch data");
		return r;
	}
	if (p.tmp[0] && unlinkat(p.dirfd, p.tmp, 0) < 0)
		return err_sys(err, errno, "scratch data in %s", dir);
	p.tmp[0] = '\0';
	return steal_fd(&p.fd);
}

int file_lock(const char *dir, const char *name, bool exclusive, bool wait, struct err *err)
{
	cleanup_free char *path = str_printf("%s/%s", dir, name);
	cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int op = (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB);

	if (fd < 0)
		return err_sys(err, errno, "open the lock %s", path);
	while (flock(fd, op) < 0) {
		if (errno == EWOULDBLOCK)
			return err_set(err, EWOULDBLOCK, "lock %s: another process holds it", path);
		if (errno != EINTR)
			return err_sys(err, errno, "lock %s", path);
	}
	return steal_fd(&fd);
}
