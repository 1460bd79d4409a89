/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An opened checkpoint. All of it is read and checked once, by digest, and then held by
 * descriptors: what happens to the directory afterwards does not matter to machines made from the
 * checkpoint. The overlay was written by a monitor that its guest may have taken over. So its
 * tables are walked as well, and what is handed to the next monitor has the one form that parbake's
 * overlays have.
 */
#include "restore/checkpoint.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/str.h"
#include "restore/checkpoint_private.h"

static int open_file(
	int dirfd, const char *name, const struct checkpoint_file *f, int *ret, struct err *err)
{
	cleanup_fd int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char digest[DIGEST_TEXT_SIZE];
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, errno == ENOENT ? EBADMSG : errno, "%s", name);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->bytes)
		return err_set(err, EBADMSG, "%s is damaged: it is not a file of %llu bytes", name,
			(unsigned long long)f->bytes);
	r = digest_fd(fd, digest, err);
	if (r < 0) {
		err_prefix(err, "%s", name);
		return r;
	}
	if (strcmp(digest, f->digest) != 0)
		return err_set(err, EBADMSG, "%s is damaged: its digest is another", name);
	*ret = steal_fd(&fd);
	return 0;
}

/* The walk itself is the check. */
static int look(void *user, uint64_t offset, uint64_t len, bool zero, uint64_t file_offset)
{
	(void)user;
	(void)offset;
	(void)len;
	(void)zero;
	(void)file_offset;
	return 0;
}

static int open_parts(struct checkpoint *c, int dirfd, struct err *err)
{
	struct checkpoint_record *rec = &c->record;
	cleanup_fd int fd =
		openat(dirfd, STORE_CAPTURE_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len;
	int r;

	if (fd < 0)
		return errno == ENOENT
			? err_set(err, ENOENT, "it is not complete: it has no " STORE_CAPTURE_FILE)
			: err_sys(err, errno, STORE_CAPTURE_FILE);
	r = file_read_rest(fd, STORE_CAPTURE_FILE, LIMIT_JSON_BYTES, &text, &len, err);
	if (r < 0)
		return r;
	r = checkpoint_record_parse(text, len, rec, err);
	if (r < 0) {
		err_prefix(err, STORE_CAPTURE_FILE);
		return r;
	}
	if ((rec->memory.bytes &&
		    (r = open_file(dirfd, CHECKPOINT_MEMORY, &rec->memory, &c->memory_fd, err)) <
			    0) ||
		(r = open_file(dirfd, CHECKPOINT_DISK, &rec->disk, &c->disk_fd, err)) < 0 ||
		(r = open_file(dirfd, CHECKPOINT_STATE, &rec->state, &c->state_fd, err)) < 0 ||
		(r = memory_delta_open(
			 c->memory_fd, &rec->ranges, rec->memory_bytes, &c->memory, err)) < 0)
		return r;
	return machine_overlay_walk(c->disk_fd, rec->disk_bytes, look, NULL, err);
}

int checkpoint_open(const char *dir, struct checkpoint **ret, struct err *err)
{
	cleanup_checkpoint struct checkpoint *c = calloc(1, sizeof(*c));
	cleanup_fd int dirfd = -1;
	int r;

	if (!c)
		return err_set(err, ENOMEM, "no memory for a capture");
	c->dir = str_dup(dir);
	c->memory_fd = c->disk_fd = c->state_fd = -1;
	dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = dirfd < 0 ? err_sys(err, errno, "open it") : open_parts(c, dirfd, err);
	if (r < 0) {
		err_prefix(err, "the capture %s", dir);
		return r;
	}
	*ret = steal_ptr(&c);
	return 0;
}

void checkpoint_free(struct checkpoint *c)
{
	if (!c)
		return;
	memory_delta_free(c->memory);
	close_fd(&c->memory_fd);
	close_fd(&c->disk_fd);
	close_fd(&c->state_fd);
	checkpoint_record_clear(&c->record);
	free(c->dir);
	free(c);
}

int checkpoint_fits(const struct checkpoint *c, const struct template *t, struct err *err)
{
	const struct snapshot_config *config = template_config(t);
	const struct checkpoint_record *r = &c->record;

	if (strcmp(r->manifest, template_manifest(t)) != 0)
		return err_set(err, EINVAL,
			"the capture %s is of the template version %s@%.19s…, not of %s@%.19s…",
			c->dir, r->name, r->manifest, template_label(t), template_manifest(t));
	if (r->memory_bytes != config->memory_bytes || r->disk_bytes != config->disk_bytes)
		return err_set(err, EBADMSG,
			"the capture %s is of a machine of another size than its template's",
			c->dir);
	return 0;
}

int checkpoint_lend(
	const struct checkpoint *c, struct template_own *ret, int *ret_state, struct err *err)
{
	int state = fcntl(c->state_fd, F_DUPFD_CLOEXEC, 3);

	if (state < 0)
		return err_sys(err, errno, "the capture's device state");
	*ret = (struct template_own){c->memory_fd, &c->record.ranges, c->memory};
	*ret_state = state;
	return 0;
}

void checkpoint_get_identity(
	const struct checkpoint *c, char ret_id[static 33], char ret_hostname[static 64])
{
	memcpy(ret_id, c->record.machine_id, sizeof(c->record.machine_id));
	memcpy(ret_hostname, c->record.hostname, sizeof(c->record.hostname));
}

int checkpoint_copy_overlay(const struct checkpoint *c, int fd, struct err *err)
{
	uint64_t bytes = c->record.disk.bytes;
	int r = ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;

	if (r == 0)
		r = file_copy_sparse(c->disk_fd, fd, bytes, NULL, NULL);
	return r < 0 ? err_sys(err, -r, "copy the disk of the capture %s", c->dir) : 0;
}
