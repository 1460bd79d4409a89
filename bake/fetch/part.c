/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a download. A part is locked by the file itself: on success that very file is
 * renamed into the cache, and on a hopeless failure it is unlinked, both while it is locked. So no
 * lock files are left. A process that gets the lock checks that the name still leads to the file
 * that it locked. The sum runs along with the bytes: at the end nothing needs to be read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bake/fetch/fetch_private.h"
#include "common/file.h"
#include "common/str.h"

#define FROM_MAX 8192

static char *part_name(const struct fetch_part *p)
{
	return str_printf("partial/%s", p->hex);
}

static char *from_name(const struct fetch_part *p)
{
	return str_printf("partial/%s.from", p->hex);
}

char *fetch_cached(const char *downloads, const char *hex)
{
	cleanup_free char *path = str_printf("%s/sha256/%s", downloads, hex);
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? steal_ptr(&path) : NULL;
}

/* Open and lock the part; -EAGAIN: it was renamed or unlinked in between. */
static int lock_once(struct fetch_part *p, const char *name, struct err *err)
{
	struct stat mine, there;

	p->fd = openat(p->dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (p->fd < 0)
		return err_sys(err, errno, "the download's part %s", name);
	if (flock(p->fd, LOCK_EX | LOCK_NB) < 0) {
		int r = errno == EWOULDBLOCK
			? -EWOULDBLOCK
			: err_sys(err, errno, "locking the download's part %s", name);

		close_fd(&p->fd);
		return r;
	}
	if (fstat(p->fd, &mine) < 0 || fstatat(p->dirfd, name, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
		mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
		close_fd(&p->fd);
		return -EAGAIN;
	}
	return 0;
}

/* Sum up what an earlier try left. */
static int sum_existing(struct fetch_part *p, struct err *err)
{
	cleanup_free char *buf = malloc(1 << 20);
	ssize_t n;

	if (!buf)
		return err_sys(err, ENOMEM, "a download's part");
	p->have = 0;
	while ((n = pread(p->fd, buf, 1 << 20, p->have)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, errno, "reading a download's part");
		digest_update(p->sum, buf, n);
		p->have += n;
	}
	return 0;
}

/* HEX.from: the URL, a newline, the validator, a newline. */
static void from_read(struct fetch_part *p, const char *url)
{
	cleanup_free char *name = from_name(p), *text = NULL;
	char *end, *validator;
	size_t len;

	if (file_read_all(p->dirfd, name, FROM_MAX, &text, &len, NULL) < 0)
		return;
	end = strchr(text, '\n');
	if (!end)
		return;
	*end = '\0';
	validator = end + 1;
	end = strchr(validator, '\n');
	if (!end || strcmp(text, url) || (size_t)(end - validator) >= sizeof(p->validator))
		return;
	memcpy(p->validator, validator, end - validator);
	p->validator[end - validator] = '\0';
}

int fetch_part_open(struct fetch_part *p, const char *downloads, const char *hex, const char *url,
	struct err *err)
{
	cleanup_free char *name = NULL;
	int r;

	*p = (struct fetch_part)FETCH_PART_INIT;
	p->hex = hex;
	p->dirfd = open(downloads, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dirfd < 0)
		return err_sys(err, errno, "%s", downloads);
	name = part_name(p);
	do {
		r = lock_once(p, name, err);
	} while (r == -EAGAIN);
	if (r == 0) {
		p->sum = digest_new();
		r = sum_existing(p, err);
	}
	if (r < 0) {
		fetch_part_close(p, false);
		return r;
	}
	if (p->have)
		from_read(p, url);
	return 0;
}

int fetch_part_write(struct fetch_part *p, const void *data, size_t len)
{
	int r = file_pwrite_full(p->fd, data, len, p->have);

	if (r < 0)
		return r;
	digest_update(p->sum, data, len);
	p->have += len;
	return 0;
}

int fetch_part_restart(struct fetch_part *p)
{
	char unused[DIGEST_TEXT_SIZE];

	digest_final(p->sum, unused);
	p->have = 0;
	p->validator[0] = '\0';
	return ftruncate(p->fd, 0) < 0 ? -errno : 0;
}

void fetch_part_note(struct fetch_part *p, const char *url, const char *validator)
{
	cleanup_free char *name = from_name(p), *text = str_printf("%s\n%s\n", url, validator);
	cleanup_fd int fd = -1;

	if (strcmp(p->validator, validator) == 0)
		return;
	snprintf(p->validator, sizeof(p->validator), "%s", validator);
	/* without it a resume still works: the digest decides */
	fd = openat(p->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)file_write_full(fd, text, strlen(text));
}

void fetch_part_digest(struct fetch_part *p, char ret[static DIGEST_TEXT_SIZE])
{
	digest_final(p->sum, ret);
}

int fetch_part_publish(struct fetch_part *p, struct err *err)
{
	cleanup_free char *from = part_name(p), *to = str_printf("sha256/%s", p->hex);
	cleanup_free char *side = from_name(p);
	cleanup_fd int dir = openat(p->dirfd, "sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || fchmod(p->fd, 0444) < 0 || fsync(p->fd) < 0 ||
		renameat(p->dirfd, from, p->dirfd, to) < 0 || fsync(dir) < 0)
		return err_sys(err, errno, "publishing the download %s", to);
	unlinkat(p->dirfd, side, 0);
	return 0;
}

void fetch_part_close(struct fetch_part *p, bool drop)
{
	if (p->fd >= 0 && (drop || p->have == 0)) {
		cleanup_free char *name = part_name(p), *side = from_name(p);

		unlinkat(p->dirfd, name, 0);
		unlinkat(p->dirfd, side, 0);
	}
	close_fd(&p->fd);
	close_fd(&p->dirfd);
	digest_free(p->sum);
	p->sum = NULL;
}
