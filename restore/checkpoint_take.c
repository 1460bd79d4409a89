/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a checkpoint of a sandbox that runs.
 *
 * The machine stands still only while what would change is copied: the device state, the machine's
 * own pages of memory (raw, into a file without a name) and the overlay. Compressing and checking
 * come after the machine runs again, where it is to run on. Whatever fails, the machine goes on,
 * and the directory is removed.
 *
 *     pause ─► state, memory, disk ─► resume ─► compress, check, sync ─► capture.json
 *       └──────── stopped_ns ────────────┘
 *
 * Nothing here speaks to the guest, since another process may have its channel. In a machine
 * restored from the checkpoint, a frame that was on its way is lost, and so are the bytes in the
 * host's end of the channel. SYNC, the first message to such a machine, makes both ends begin anew.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/file.h"
#include "restore/checkpoint_private.h"

#define LEVEL 1 /* of zstd: written once, read once */
#define RESUME_MS 10000

struct taking {
	struct sandbox *sb;
	const char *dir;
	int64_t deadline;
	int dirfd;
	int scratch; /* the memory delta, raw */
	int disk, state;
	bool paused;
	struct checkpoint_record record;
};

static int point(const char *name, const char *what, struct err *err)
{
	int r = fault_point(name);

	return r < 0 ? err_sys(err, -r, "%s", what) : 0;
}

/* ---- while it stands still ---------------------------------------------------------------------- */

static int in_time(void *user)
{
	const struct taking *t = user;

	return clock_left_ms(t->deadline) == 0 ? -ETIMEDOUT : 0;
}

static int take_disk(struct taking *t, struct err *err)
{
	struct stat st;
	int r = fault_point("restore.capture.disk");

	if (r == 0)
		r = fstat(t->sb->overlay_fd, &st) < 0 || ftruncate(t->disk, st.st_size) < 0
			? -errno
			: file_copy_sparse(
				  t->sb->overlay_fd, t->disk, (uint64_t)st.st_size, in_time, t);
	return r < 0 ? err_sys(err, -r, "copy the disk") : 0;
}

static int take_memory(struct taking *t, struct image *image, struct err *err)
{
	const struct pager_client *pager = template_pager(t->sb->t);
	struct checkpoint_memory m = {.machine = t->sb->machine,
		.file = &t->sb->memory,
		.bytes = template_config(t->sb->t)->memory_bytes,
		.image = image,
		.template_fd = pager ? pager_client_memory_fd(pager) : -1,
		.own = &t->sb->own,
		.max_ranges = LIMIT_CAPTURE_RANGES,
		.deadline = t->deadline};
	int r = point("restore.capture.memory", "write the memory delta", err);

	return r < 0 ? r : checkpoint_memory_take(&m, t->scratch, &t->record.ranges, err);
}

static int take_state(struct taking *t, struct err *err)
{
	int r = point("restore.capture.state", "write the device state", err);

	return r < 0 ? r : machine_capture(t->sb->machine, t->state, t->deadline, err);
}

static int resume(struct taking *t, int64_t deadline, struct err *err)
{
	int r = machine_resume(t->sb->machine, deadline, err);

	t->paused = r < 0;
	return r;
}

static int take(struct taking *t, bool go_on, struct err *err)
{
	cleanup_image struct image *image = NULL;
	int64_t begin;
	int r = image_open(template_image_fd(t->sb->t), &image, err);

	/* while it runs, as that may take a while */
	if (r == 0)
		r = sandbox_wait_memory(t->sb, t->deadline, err);
	if (r < 0)
		return r;
	begin = clock_now_ns();
	r = machine_pause(t->sb->machine, t->deadline, err);
	if (r < 0)
		return r;
	t->paused = true;
	if ((r = take_state(t, err)) < 0 || (r = take_memory(t, image, err)) < 0 ||
		(r = take_disk(t, err)) < 0)
		return r;
	if (go_on)
		r = resume(t, t->deadline, err);
	t->record.stopped_ns = clock_now_ns() - begin;
	return r;
}

/* ---- after that ---------------------------------------------------------------------------------- */

/* What was written to @fd is all of the file. */
static int settle(int fd, const char *name, struct checkpoint_file *ret, struct err *err)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0 || fsync(fd) < 0)
		return err_sys(err, errno, "write %s", name);
	ret->bytes = (uint64_t)st.st_size;
	if (ret->digest[0])
		return 0;
	r = digest_fd(fd, ret->digest, err);
	if (r < 0)
		err_prefix(err, "%s", name);
	return r;
}

static int new_file(struct taking *t, const char *name, int *ret, struct err *err)
{
	int fd = openat(t->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(err, errno, "make %s", name);
	*ret = fd;
	return 0;
}

static int compress(struct taking *t, struct err *err)
{
	struct image_options opt = {.level = LEVEL, .no_raw_digest = true};
	struct image_stats stats;
	cleanup_fd int fd = -1;
	struct stat st;
	int r = point("restore.capture.compress", "compress the memory delta", err);

	if (r < 0)
		return r;
	if (fstat(t->scratch, &st) < 0)
		return err_sys(err, errno, "the memory delta");
	t->record.memory_raw = (uint64_t)st.st_size;
	if (!st.st_size)
		return 0;
	r = new_file(t, CHECKPOINT_MEMORY, &fd, err);
	if (r == 0)
		r = image_write(t->scratch, (uint64_t)st.st_size, &opt, fd, NULL, &stats, err);
	if (r < 0) {
		err_prefix(err, "compress the memory delta");
		return r;
	}
	memcpy(t->record.memory.digest, stats.digest, DIGEST_TEXT_SIZE);
	return settle(fd, CHECKPOINT_MEMORY, &t->record.memory, err);
}

static int add_run(void *user, uint64_t offset, uint64_t len, bool zero, uint64_t file_offset)
{
	uint64_t *bytes = user;

	(void)offset;
	(void)zero;
	(void)file_offset;
	*bytes += len;
	return 0;
}

static int finish(struct taking *t, struct store *s, struct err *err)
{
	cleanup_free char *text = NULL;
	int r = compress(t, err);

	if (r < 0 || (r = settle(t->disk, CHECKPOINT_DISK, &t->record.disk, err)) < 0 ||
		(r = settle(t->state, CHECKPOINT_STATE, &t->record.state, err)) < 0 ||
		(r = machine_overlay_walk(
			 t->disk, t->record.disk_bytes, add_run, &t->record.disk_raw, err)) < 0 ||
		(r = point("restore.capture.before-publish", "publish it", err)) < 0)
		return r;
	t->record.created = time(NULL);
	text = checkpoint_record_text(&t->record);
	if (strlen(text) > LIMIT_JSON_BYTES)
		return err_set(err, EFBIG, STORE_CAPTURE_FILE " would be too long");
	return store_capture_publish(s, t->dir, t->record.manifest, text, strlen(text), err);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void describe(struct taking *t)
{
	const struct snapshot_config *c = template_config(t->sb->t);
	struct checkpoint_record *r = &t->record;

	snprintf(r->manifest, sizeof(r->manifest), "%s", template_manifest(t->sb->t));
	template_get_name(t->sb->t, r->name, r->tag);
	r->memory_bytes = c->memory_bytes;
	r->disk_bytes = c->disk_bytes;
	memcpy(r->machine_id, t->sb->machine_id, sizeof(r->machine_id));
	memcpy(r->hostname, t->sb->hostname, sizeof(r->hostname));
}

static int begin(struct taking *t, struct store **ret, struct err *err)
{
	struct sandbox *sb = t->sb;
	int r;

	if (sb->stage != SANDBOX_ACTIVE || machine_get_state(sb->machine) != MACHINE_RUNNING)
		return err_set(err, EINVAL, "it is not a sandbox that runs");
	r = store_open(template_store(sb->t), false, ret, err);
	if (r == 0) /* once more at the end; but then it has stood still for nothing */
		r = store_manifest_whole(*ret, template_manifest(sb->t), err);
	if (r < 0)
		return r;
	if (mkdir(t->dir, 0700) < 0)
		return err_sys(err, errno, "make the directory");
	return 0;
}

static int make_files(struct taking *t, struct err *err)
{
	int r = 0;

	t->dirfd = open(t->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (t->dirfd < 0)
		return err_sys(err, errno, "open the directory");
	t->scratch = file_scratch(t->dir, err);
	if (t->scratch < 0)
		return t->scratch;
	r = new_file(t, CHECKPOINT_DISK, &t->disk, err);
	return r < 0 ? r : new_file(t, CHECKPOINT_STATE, &t->state, err);
}

/* It was not to be: the machine goes on, and nothing is left. */
static void undo(struct taking *t, struct err *err)
{
	struct err why;

	if (t->paused && resume(t, clock_deadline(RESUME_MS), &why) < 0) {
		t->sb->stage = SANDBOX_FAILED;
		err_append(err, "\nand it could not be resumed: %s", why.text);
	}
	if (file_remove_tree(AT_FDCWD, t->dir, &why) < 0)
		err_append(err, "\nand what there was of it is left: %s", why.text);
}

/* The directory's own name is to last. */
static void sync_parent(const struct taking *t)
{
	cleanup_fd int fd = openat(t->dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		fsync(fd);
}

int sandbox_capture(struct sandbox *sb, const char *dir, bool go_on, int64_t deadline,
	struct checkpoint_info *ret, struct err *err)
{
	struct taking t = {.sb = sb,
		.dir = dir,
		.deadline = deadline,
		.dirfd = -1,
		.scratch = -1,
		.disk = -1,
		.state = -1};
	cleanup_store struct store *s = NULL;
	int r = begin(&t, &s, err);

	if (r == 0) {
		describe(&t);
		if ((r = make_files(&t, err)) < 0 || (r = take(&t, go_on, err)) < 0 ||
			(r = finish(&t, s, err)) < 0)
			undo(&t, err);
	}
	if (r == 0) {
		sync_parent(&t);
		*ret = (struct checkpoint_info){.memory_bytes = t.record.memory_raw,
			.disk_bytes = t.record.disk_raw,
			.stopped_ns = t.record.stopped_ns};
		memcpy(ret->manifest, t.record.manifest, sizeof(ret->manifest));
	} else {
		err_prefix(err, "capture a sandbox of %s into %s", template_label(sb->t), dir);
	}
	close_fd(&t.scratch);
	close_fd(&t.disk);
	close_fd(&t.state);
	close_fd(&t.dirfd);
	checkpoint_record_clear(&t.record);
	return r;
}
