/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes are made by name in an opened parent directory: the last component is never
 * followed, so a link is replaced, renamed or removed itself. PUT writes beside its target
 * and renames when the host has said that it is whole.
 */
#include "agent/fileop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/entry.h"
#include "agent/root.h"
#include "agent/worker.h"

#define COPY_CHUNK (256u << 10)

static int op_fail(struct fail *f, int err, const char *what, const char *path)
{
	return fail_set(f, err, "cannot %s '%.300s': %s", what, path, strerror(err));
}

static int op_chown(const struct fileop *op, int dir, const char *name)
{
	if (!op->has_user)
		return 0;
	return fchownat(dir, name, op->user.uid, op->user.gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
											: 0;
}

/* ---- paths ---------------------------------------------------------------------------- */

static int parents_make(const struct fileop *op, char *dir);

/*
 * Split @path: its parent directory is opened (made, with parents, where @make)
 * and the last component copied to @name. -EINVAL where there is none (`/`, `..`).
 */
static int parent_open(
	const struct fileop *op, const char *path, char name[NAME_MAX + 1], bool make)
{
	char dir[PROTO_PATH_MAX + 2], *slash;
	size_t len = strlen(path);
	int fd;

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (len > PROTO_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(dir, path, len);
	dir[len] = '\0';
	slash = strrchr(dir, '/');
	if (!slash || !slash[1] || !strcmp(slash + 1, ".") || !strcmp(slash + 1, ".."))
		return -EINVAL;
	if (strlen(slash + 1) > NAME_MAX)
		return -ENAMETOOLONG;
	strcpy(name, slash + 1);
	slash[1] = '\0';
	fd = root_open(dir, O_PATH | O_DIRECTORY, 0);
	if (fd == -ENOENT && make) {
		fd = parents_make(op, dir);
		if (fd == 0)
			fd = root_open(dir, O_PATH | O_DIRECTORY, 0);
	}
	return fd;
}

/* Make every directory of @dir (which ends in '/') that is not there; each prefix is resolved
 * beneath the root anew. */
static int parents_make(const struct fileop *op, char *dir)
{
	for (char *p = dir + 1; *p; p++) {
		char name[NAME_MAX + 1];
		int fd, parent, res = 0;

		if (*p != '/' || p[-1] == '/')
			continue;
		*p = '\0';
		fd = root_open(dir, O_PATH | O_DIRECTORY, 0);
		if (fd == -ENOENT) {
			parent = parent_open(op, dir, name, false);
			if (parent < 0)
				res = parent;
			else if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
				res = -errno;
			else
				res = op_chown(op, parent, name);
			close_fd(&parent);
		} else if (fd < 0) {
			res = fd;
		}
		close_fd(&fd);
		*p = '/';
		if (res < 0)
			return res;
	}
	return 0;
}

/* ---- PUT ------------------------------------------------------------------------------ */

static int copy_in(int from, int to, uint64_t *ret_bytes)
{
	char *buf = agent_alloc(COPY_CHUNK);
	int res = 0;
	ssize_t n;

	while (res == 0 && (n = read(from, buf, COPY_CHUNK)) != 0) {
		if (n < 0) {
			res = errno == EINTR ? 0 : -errno;
			continue;
		}
		for (ssize_t at = 0, w; res == 0 && at < n; at += w) {
			w = write(to, buf + at, (size_t)(n - at));
			if (w < 0) {
				res = -errno;
				break;
			}
		}
		*ret_bytes += (uint64_t)n;
	}
	free(buf);
	return res;
}

/* What the new file replaces gives it its mode and owner, unless asked otherwise. */
static int put_attributes(const struct fileop *op, int dir, const char *name, int fd)
{
	mode_t mode = op->request->has_mode ? op->request->mode & 07777 : 0644;
	struct stat st;
	int res;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
		if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
			return -EINVAL;
		if (S_ISREG(st.st_mode)) {
			if (!op->request->has_mode)
				mode = st.st_mode & 07777;
			if (!op->has_user && fchown(fd, st.st_uid, st.st_gid) < 0)
				return -errno;
		}
	}
	res = op->has_user ? fchown(fd, op->user.uid, op->user.gid) : 0;
	if (res < 0 || fchmod(fd, mode) < 0) /* the mode last: a change of owner clears bits */
		return -errno;
	return 0;
}

static int op_put(
	const struct fileop *op, int data, int control, struct proto_out *reply, struct fail *f)
{
	const char *path = op->request->path;
	char name[NAME_MAX + 1], temp[64], byte = 0;
	int dir = parent_open(op, path, name, op->request->parents), fd = -1, res;
	uint64_t bytes = 0;
	uint32_t random[2];

	if (dir < 0)
		return op_fail(f, -dir, "write", path);
	agent_random(random, sizeof(random));
	/* whoever watches the directory knows by it what the rename means */
	snprintf(temp, sizeof(temp), "%s%08x%08x",
		faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ? FILEOP_TEMP_NEW
								    : FILEOP_TEMP_OVER,
		random[0], random[1]);
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		res = op_fail(f, errno, "write", path);
		close(dir);
		return res;
	}
	res = put_attributes(op, dir, name, fd);
	if (res == 0)
		res = entry_mark(fd, op->request->metadata, op->request->nmetadata);
	if (res == 0)
		res = copy_in(data, fd, &bytes);
	if (res == 0 && (recv(control, &byte, 1, 0) != 1 || byte != WORKER_COMMIT))
		res = -ECANCELED;
	if (res == 0 && renameat(dir, temp, dir, name) < 0)
		res = -errno;
	if (res < 0)
		unlinkat(dir, temp, 0);
	close(fd);
	close(dir);
	if (res < 0)
		return op_fail(f, -res, res == -EOPNOTSUPP ? "keep metadata of" : "write", path);
	proto_put_u64(reply, PROTO_T_BYTES, bytes);
	return 0;
}

/* ---- GET, STAT, LIST ------------------------------------------------------------------ */

static int write_all(int fd, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* Was @fd, which ended before its size, cut since @before? A file of /proc or /sys says any size. */
static bool was_cut(int fd, const struct stat *before)
{
	struct stat now;

	return fstat(fd, &now) < 0 || now.st_size != before->st_size ||
		now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
		now.st_ctim.tv_nsec != before->st_ctim.tv_nsec;
}

static int get_copy(int fd, int data, uint64_t left, uint64_t *ret_bytes)
{
	char *buf = agent_alloc(COPY_CHUNK);
	int res = 0;

	*ret_bytes = 0;
	while (res == 0 && left > 0) {
		ssize_t n = read(fd, buf, left < COPY_CHUNK ? left : COPY_CHUNK);

		if (n == 0)
			break;
		if (n < 0) {
			res = errno == EINTR ? 0 : -errno;
			continue;
		}
		res = write_all(data, buf, (size_t)n);
		left -= (uint64_t)n;
		*ret_bytes += (uint64_t)n;
	}
	free(buf);
	return res;
}

/* What the file has when it is opened: what is appended later is not sent, what is cut off meanwhile is missed. */
static int op_get(const struct fileop *op, int data, struct proto_out *reply, struct fail *f)
{
	const struct request *r = op->request;
	uint64_t left = r->length, bytes = 0;
	int fd = root_open_file(r->path), res = 0;
	struct stat st;

	if (fd == -EINVAL)
		return fail_set(f, EINVAL, "cannot read '%.300s': not a regular file", r->path);
	if (fd < 0)
		return op_fail(f, -fd, "read", r->path);
	if (fstat(fd, &st) < 0)
		res = -errno;
	else if (r->offset && (r->offset > INT64_MAX || lseek(fd, (off_t)r->offset, SEEK_SET) < 0))
		res = -EINVAL;
	if (res == 0 && st.st_size > 0) {
		uint64_t size = (uint64_t)st.st_size,
			 rest = size > r->offset ? size - r->offset : 0;

		left = left < rest ? left : rest;
		res = get_copy(fd, data, left, &bytes);
		if (res == 0 && bytes < left && was_cut(fd, &st)) {
			close(fd);
			return fail_set(f, EIO,
				"cannot read '%.300s': it became shorter while it was read, and "
				"%llu "
				"of its %llu bytes are gone",
				r->path, (unsigned long long)(left - bytes),
				(unsigned long long)size);
		}
	} else if (res == 0) {
		res = get_copy(fd, data, left, &bytes);
	}
	close(fd);
	if (res < 0)
		return op_fail(f, -res, "read", r->path);
	proto_put_u64(reply, PROTO_T_BYTES, bytes);
	return 0;
}

static int op_stat(const struct fileop *op, struct proto_out *reply, struct fail *f)
{
	const char *path = op->request->path;
	int fd = root_open(path, O_PATH | O_NOFOLLOW, 0);
	struct entry *e = agent_alloc(sizeof(*e));
	char self[64];
	struct stat st;

	if (fd < 0)
		return op_fail(f, -fd, "stat", path);
	if (fstat(fd, &st) < 0)
		return op_fail(f, errno, "stat", path);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	entry_fill(e, path, self, &st);
	proto_put(reply, PROTO_T_STAT, &e->stat, sizeof(e->stat));
	if (e->link_len)
		proto_put(reply, PROTO_T_LINK, e->link, e->link_len);
	else if (S_ISLNK(st.st_mode))
		proto_put_str(reply, PROTO_T_LINK, path);
	for (uint32_t at = 0; at < e->stat.metadata_len; at += strlen(e->metadata + at) + 1)
		proto_put_str(reply, PROTO_T_METADATA, e->metadata + at);
	free(e);
	close(fd);
	return 0;
}

/* One entry of the directory @dir, which is @fd. */
static int list_put(FILE *out, const char *dir, int fd, const char *name, const struct stat *st,
	struct entry *e)
{
	char path[PROTO_PATH_MAX + NAME_MAX + 2], self[NAME_MAX + 64];
	uint16_t len[2];

	snprintf(path, sizeof(path), "%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
	snprintf(self, sizeof(self), "/proc/self/fd/%d/%s", fd, name);
	entry_fill(e, path, self, st);
	len[0] = (uint16_t)strlen(name);
	len[1] = e->link_len;
	return fwrite(&e->stat, sizeof(e->stat), 1, out) == 1 &&
			fwrite(len, sizeof(len), 1, out) == 1 &&
			fwrite(name, len[0], 1, out) == 1 &&
			(!len[1] || fwrite(e->link, len[1], 1, out) == 1) &&
			(!e->stat.metadata_len ||
				fwrite(e->metadata, e->stat.metadata_len, 1, out) == 1)
		? 0
		: -EPIPE;
}

static int op_list(const struct fileop *op, int data, struct fail *f)
{
	const char *path = op->request->path;
	int fd = root_open(path, O_RDONLY | O_DIRECTORY, 0), res = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	FILE *out = fdopen(data, "w"); /* gathers small entries */
	struct entry *entry = agent_alloc(sizeof(*entry));
	struct dirent *e;
	unsigned count = 0;

	if (!d || !out)
		return op_fail(f, fd < 0 ? -fd : errno, "list", path);
	while (res == 0 && (errno = 0, e = readdir(d)) != NULL) {
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (++count > AGENT_LIST_MAX)
			res = -E2BIG;
		else if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			res = errno == ENOENT ? 0 : -errno; /* it has just been removed */
		else
			res = list_put(out, path, fd, e->d_name, &st, entry);
	}
	if (res == 0 && errno)
		res = -errno;
	if (fflush(out) != 0 && res == 0)
		res = -errno;
	closedir(d);
	free(entry);
	return res < 0 ? op_fail(f, -res, "list", path) : 0;
}

/* ---- MKDIR, REMOVE, RENAME ------------------------------------------------------------ */

static int op_mkdir(const struct fileop *op, struct fail *f)
{
	const struct request *r = op->request;
	char name[NAME_MAX + 1];
	int dir = parent_open(op, r->path, name, r->parents), res = 0;
	struct stat st;

	if (dir < 0)
		return op_fail(f, -dir, "make the directory", r->path);
	if (mkdirat(dir, name, 0755) < 0) {
		res = -errno;
		if (res == -EEXIST && r->parents && fstatat(dir, name, &st, 0) == 0 &&
			S_ISDIR(st.st_mode)) {
			close(dir);
			return 0;
		}
	}
	if (res == 0)
		res = op_chown(op, dir, name);
	if (res == 0 && r->has_mode && fchmodat(dir, name, r->mode & 07777, 0) < 0)
		res = -errno;
	close(dir);
	return res < 0 ? op_fail(f, -res, "make the directory", r->path) : 0;
}

/* Remove what is in the directory @fd (taken), on its own file system alone. */
static int remove_inside(int fd, dev_t dev, unsigned depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int res = 0;

	if (!d) {
		close(fd);
		return -errno;
	}
	while (res == 0 && (errno = 0, e = readdir(d)) != NULL) {
		struct stat st;
		int sub;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR) {
			res = -errno;
			break;
		}
		sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0 || fstat(sub, &st) < 0)
			res = -errno;
		else if (st.st_dev != dev)
			res = -EBUSY; /* something is mounted there */
		else if (depth >= AGENT_DEPTH_MAX)
			res = -ELOOP;
		if (res < 0) {
			close_fd(&sub);
			break;
		}
		res = remove_inside(sub, dev, depth + 1);
		if (res == 0 && unlinkat(fd, e->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			res = -errno;
	}
	if (res == 0 && errno && errno != ENOENT)
		res = -errno;
	closedir(d);
	return res;
}

static int op_remove(const struct fileop *op, struct fail *f)
{
	const struct request *r = op->request;
	char name[NAME_MAX + 1];
	int dir = parent_open(op, r->path, name, false), fd, res;
	struct stat st = {0}, above = {0};

	if (dir < 0)
		return op_fail(f, -dir, "remove", r->path);
	res = unlinkat(dir, name, 0) < 0 ? -errno : 0;
	if (res == -EISDIR) {
		res = 0;
		if (r->recursive) {
			fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (fd < 0 || fstat(fd, &st) < 0 || fstat(dir, &above) < 0)
				res = -errno;
			else if (st.st_dev != above.st_dev)
				res = -EBUSY;
			if (res == 0)
				res = remove_inside(fd, st.st_dev, 0);
			else
				close_fd(&fd);
		}
		if (res == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
			res = -errno;
	}
	close(dir);
	return res < 0 ? op_fail(f, -res, "remove", r->path) : 0;
}

static int op_rename(const struct fileop *op, struct fail *f)
{
	const struct request *r = op->request;
	char from[NAME_MAX + 1], to[NAME_MAX + 1];
	int dir = parent_open(op, r->path, from, false), dir2, res = 0;

	if (dir < 0)
		return op_fail(f, -dir, "rename", r->path);
	dir2 = parent_open(op, r->path2, to, r->parents);
	if (dir2 < 0)
		res = op_fail(f, -dir2, "rename to", r->path2);
	else if (renameat(dir, from, dir2, to) < 0)
		res = op_fail(f, errno, "rename", r->path);
	close_fd(&dir);
	close_fd(&dir2);
	return res;
}

int fileop_run(const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	const struct fileop *op = arg;

	umask(0); /* modes are meant as they are asked for */
	switch (op->type) {
	case PROTO_FILE_PUT:
		return op_put(op, data, control, reply, f);
	case PROTO_FILE_GET:
		return op_get(op, data, reply, f);
	case PROTO_FILE_STAT:
		return op_stat(op, reply, f);
	case PROTO_FILE_LIST:
		return op_list(op, data, f);
	case PROTO_FILE_MKDIR:
		return op_mkdir(op, f);
	case PROTO_FILE_REMOVE:
		return op_remove(op, f);
	case PROTO_FILE_RENAME:
		return op_rename(op, f);
	}
	return fail_set(f, ENOSYS, "not a file request");
}
