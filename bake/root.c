/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root disk: an archive and [files] become an ext4 image, without extracting anything onto the
 * host. UUID and hash seed come from the stage's key, times from SOURCE_DATE_EPOCH: the same inputs
 * give the same bytes wherever and whenever they are made.
 *
 * Directories that the guest mounts something over are left out of the archive and made here,
 * empty. So every root has its mount points, whatever it was made from.
 */
#include "bake/root.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/ext4/ext4.h"
#include "bake/source/source.h"
#include "bake/plan/stage.h"
#include "bake/source/unpack.h"
#include "common/file.h"
#include "common/limits.h"

#define COPY_BYTES (256 * KIB)

static const char *const mounted_over[] = {"/dev/", "/proc/", "/sys/", "/run/", NULL};

static const struct {
	const char *path;
	mode_t mode;
} mount_points[] = {
	{"/dev", 0755},
	{"/proc", 0555},
	{"/sys", 0555},
	{"/run", 0755},
	{"/tmp", 01777},
};

static void from_hex(const char *hex, uint8_t *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned v = 0;

		sscanf(hex + 2 * i, "%2x", &v);
		ret[i] = (uint8_t)v;
	}
}

static void set_options(
	const struct recipe *r, const char *key, int64_t epoch, struct ext4_options *opt)
{
	const char *hex = key + strlen("sha256:");

	*opt = (struct ext4_options){
		.bytes = r->disk_bytes, .time = epoch, .label = "parbake-root"};
	from_hex(hex, opt->uuid, 16);
	from_hex(hex + 32, opt->hash_seed, 16);
	/* RFC 9562: version 8, the variant of the standard */
	opt->uuid[6] = (uint8_t)((opt->uuid[6] & 0x0f) | 0x80);
	opt->uuid[8] = (uint8_t)((opt->uuid[8] & 0x3f) | 0x80);
}

static int add_mount_points(struct ext4 *fs, int64_t epoch, struct err *err)
{
	for (size_t i = 0; i < sizeof(mount_points) / sizeof(*mount_points); i++) {
		struct ext4_meta meta = {.mode = S_IFDIR | mount_points[i].mode, .mtime_s = epoch};
		int rc = ext4_add_dir(fs, mount_points[i].path, &meta, err);

		if (rc)
			return rc;
	}
	return 0;
}

/* @ret_sum: of what was read. */
static int add_file(struct ext4 *fs, const struct recipe_file *f, int64_t epoch,
	char ret_sum[static DIGEST_TEXT_SIZE], struct err *err)
{
	struct ext4_meta meta = {.mode = S_IFREG | f->mode, .mtime_s = epoch};
	cleanup_fd int fd = open(f->host, O_RDONLY | O_CLOEXEC);
	cleanup_free char *buf = malloc(COPY_BYTES);
	cleanup_digest struct digest *sum = digest_new();
	uint64_t offset = 0;
	ssize_t n;
	int rc;

	if (!buf)
		abort();
	if (fd < 0)
		return err_sys(err, errno, "%s", f->host);
	rc = ext4_file_begin(fs, f->guest, &meta, err);
	while (!rc) {
		n = read(fd, buf, COPY_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, errno, "%s", f->host);
		if (!n)
			break;
		digest_update(sum, buf, (size_t)n);
		rc = ext4_file_write(fs, offset, buf, (size_t)n, err);
		offset += (uint64_t)n;
	}
	digest_final(sum, ret_sum);
	return rc ? rc : ext4_file_end(fs, offset, err);
}

/* The key says what files and archive held when the plan was made: do they still? */
static int check_inputs(const struct recipe *r, const struct plan *plan, int64_t epoch, int source,
	const char (*sums)[DIGEST_TEXT_SIZE], struct err *err)
{
	char got[DIGEST_TEXT_SIZE];
	int rc;

	plan_root_key(r, epoch, plan, sums, got);
	if (strcmp(got, plan->key[PLAN_ROOT]))
		return err_set(err, ESTALE,
			"a file of [files] was changed while it was baked: bake again");
	if (r->source != RECIPE_TAR || !r->path)
		return 0;
	rc = digest_fd(source, got, err);
	if (!rc && strcmp(got, plan->source_digest))
		rc = err_set(err, ESTALE, "%s was changed while it was baked: bake again", r->path);
	return rc;
}

static int fill(struct ext4 *fs, const struct recipe *r, const struct plan *plan, int source,
	int64_t epoch, struct progress *progress, struct err *err)
{
	cleanup_free char(*sums)[DIGEST_TEXT_SIZE] = calloc(r->n_files + 1, sizeof(*sums));
	struct unpack_options opt = {
		.no_devices = false, .clamp_mtime_s = epoch, .skip = mounted_over};
	struct unpack_stats stats;
	int rc = unpack_archive(source, "the root's archive", fs, &opt, progress, &stats, err);

	if (!sums)
		abort();
	if (!rc)
		rc = add_mount_points(fs, epoch, err);
	for (size_t i = 0; i < r->n_files && !rc; i++) {
		rc = add_file(fs, &r->files[i], epoch, sums[i], err);
		if (rc)
			err_prefix(err, "[files] %s", r->files[i].guest);
	}
	return rc ? rc : check_inputs(r, plan, epoch, source, sums, err);
}

/* A guess at what the entries need, before minutes are spent on an image they do not fit. */
static int check_fits(const struct recipe *r, int source, const struct unpack_options *opt,
	uint64_t *ret_inodes, struct err *err)
{
	struct unpack_stats stats;
	uint64_t need;
	int rc = unpack_measure(source, "the root's archive", opt, &stats, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < r->n_files; i++) {
		struct stat st;

		if (!stat(r->files[i].host, &st))
			stats.bytes += (uint64_t)st.st_size;
	}
	need = stats.bytes + stats.entries * 1024;
	if (need > r->disk_bytes)
		return err_set(err, ENOSPC,
			"[machine] disk = %luM is too small: the root holds %lu MiB in %lu "
			"entries; write at "
			"least %luM, more for what steps and sandboxes will write",
			(unsigned long)(r->disk_bytes / MIB), (unsigned long)(stats.bytes / MIB),
			(unsigned long)stats.entries, (unsigned long)(need + need / 4) / MIB + 16);
	/* the guest needs inodes, too */
	*ret_inodes = stats.entries + stats.entries / 2 + 1024;
	return lseek(source, 0, SEEK_SET) < 0 ? err_sys(err, errno, "the root's archive") : 0;
}

static int make(const struct recipe *r, const struct plan *plan, int64_t epoch, int source,
	int out_fd, struct progress *progress, struct ext4_stats *ret, struct err *err)
{
	struct unpack_options look = {.clamp_mtime_s = epoch, .skip = mounted_over};
	struct ext4_options opt;
	struct ext4 *fs;
	uint64_t inodes = 0;
	int rc = check_fits(r, source, &look, &inodes, err);

	if (rc)
		return rc;
	set_options(r, plan->key[PLAN_ROOT], epoch, &opt);
	if (opt.bytes / 16384 < inodes)
		opt.inodes = inodes;
	rc = ext4_create(out_fd, &opt, &fs, err);
	if (rc)
		return rc;
	rc = fill(fs, r, plan, source, epoch, progress, err);
	if (rc) {
		ext4_abort(fs);
		return rc;
	}
	return ext4_finish(fs, ret, err);
}

static int cached(const char *key, struct root_disk *ret, struct err *err)
{
	cleanup_json json_t *facts = NULL;
	const char *digest;
	int rc = stage_facts(PLAN_ROOT, key, &facts, NULL);

	if (rc || json_get_string(facts, "raw_digest", &digest, NULL) || !digest_valid(digest))
		return -ENOENT;
	rc = stage_open(PLAN_ROOT, key, "ext4", &ret->fd, err);
	if (!rc)
		memcpy(ret->raw_digest, digest, DIGEST_TEXT_SIZE);
	return rc;
}

int root_get(const struct recipe *r, const struct plan *plan, int64_t epoch, bool source_anew,
	bool anew, struct progress *progress, struct root_disk *ret, struct err *err)
{
	const char *key = plan->key[PLAN_ROOT];
	cleanup_publish struct publish out = PUBLISH_INIT;
	cleanup_json json_t *facts = NULL;
	cleanup_fd int lock = stage_lock(PLAN_ROOT, key, progress, err), source = -1;
	struct root_disk root = {.fd = -1};
	struct ext4_stats stats = {0};
	char size[16];
	int rc;

	if (lock < 0)
		return lock;
	rc = anew ? -ENOENT : cached(key, ret, err);
	if (rc != -ENOENT) {
		if (!rc) {
			progress_stage(progress, "root", NULL, 0);
			progress_done(progress, "cached");
		}
		return rc;
	}
	rc = source_get(r, plan, epoch, source_anew, progress, &source, err);
	if (rc)
		return rc;
	progress_stage(progress, "root", "entries", 0);
	rc = stage_begin(&out, err);
	if (!rc)
		rc = make(r, plan, epoch, source, out.fd, progress, &stats, err);
	if (!rc)
		rc = digest_fd(out.fd, root.raw_digest, err);
	if (rc)
		return rc;
	facts = json_pack("{s:s}", "raw_digest", root.raw_digest);
	if (!facts)
		abort();
	rc = stage_commit(&out, PLAN_ROOT, key, "ext4", err);
	if (!rc)
		rc = stage_put_facts(PLAN_ROOT, key, facts, err);
	if (!rc)
		rc = stage_open(PLAN_ROOT, key, "ext4", &root.fd, err);
	if (rc)
		return rc;
	progress_done(progress, "%lu entries, %s used", (unsigned long)stats.entries,
		progress_bytes(stats.blocks_used_bytes, size));
	*ret = root;
	return 0;
}
