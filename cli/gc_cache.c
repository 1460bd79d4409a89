/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each bake leaves results in the cache, and each snapshot that was run its expanded disk, under names that
 * hold a key of 64 hexadecimal digits. What the store's templates name is kept, and what was used lately:
 * whoever opens such a file marks it, or its record, with the time. Who has it open keeps it, whatever becomes of the
 * name. Files whose names hold no key (locks) are not touched.
 */
#include "cli/gc_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/str.h"
#include "restore/disk.h"
#include "restore/translations.h"

#define HEX_LEN (DIGEST_HEX_SIZE - 1)

struct keys {
	char (*hex)[DIGEST_HEX_SIZE];
	size_t n;
};

static void add_key(struct keys *k, const char *hex)
{
	k->hex = reallocarray(k->hex, k->n + 1, sizeof(*k->hex));
	if (!k->hex)
		abort();
	snprintf(k->hex[k->n++], sizeof(*k->hex), "%s", hex);
}

static void add_stage(struct keys *k, const json_t *extra, const char *field)
{
	const char *text;

	if (json_get_string(extra, field, &text, NULL) == 0 && digest_valid(text))
		add_key(k, text + strlen("sha256:"));
}

static void add_translations(
	struct keys *k, const struct store_manifest *m, const struct snapshot_config *c)
{
	const struct store_layer *memory = store_layer(m, STORE_MEDIA_MEMORY);
	char name[DIGEST_HEX_SIZE];

	if (!memory)
		return;
	translations_name(memory->digest, c->monitor_version, name);
	add_key(k, name);
}

/* What the store's templates need: their expanded disks, the stages they were made from. */
static int needed(struct store *s, struct keys *ret, struct err *err)
{
	struct store_manifest *list = NULL;
	size_t n = 0;
	int r = store_list(s, &list, &n, err);

	for (size_t i = 0; i < n; i++) {
		cleanup_snapshot_config struct snapshot_config c = {0};
		char disk[DIGEST_HEX_SIZE];

		if (snapshot_config_from_json(list[i].config, &c, NULL) == 0) {
			disk_name(&c, disk);
			add_key(ret, disk);
			add_stage(ret, c.extra, "source_key");
			add_stage(ret, c.extra, "root_key");
			add_translations(ret, &list[i], &c);
		}
		store_manifest_clear(&list[i]);
	}
	free(list);
	return r;
}

/* The key in a file's name; NULL: there is none. */
static const char *key_of(const char *name)
{
	for (; *name; name++) {
		size_t len = strspn(name, "0123456789abcdef");

		if (len == HEX_LEN)
			return name;
		name += len;
		if (!*name)
			break;
	}
	return NULL;
}

static bool is_needed(const struct keys *k, const char *name)
{
	const char *key = key_of(name);

	for (size_t i = 0; key && i < k->n; i++) {
		if (!strncmp(k->hex[i], key, HEX_LEN))
			return true;
	}
	return !key;
}

/* When a file was used last: its own time, or that of its record (common/artifact.h). */
static int64_t used_at(const char *cache, const char *sub, const char *name, const struct stat *st)
{
	cleanup_free char *record = str_printf("%s/verified/%s-%s", cache, sub, name);
	struct stat its;

	if (lstat(record, &its) < 0 || its.st_mtime < st->st_mtime)
		return st->st_mtime;
	return its.st_mtime;
}

static int sweep(const char *cache, const char *sub, const struct keys *keep, int64_t before,
	bool dry_run, unsigned *files, uint64_t *bytes, struct err *err)
{
	cleanup_free char *path = str_printf("%s/%s", cache, sub);
	cleanup_dir DIR *d = opendir(path);

	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, errno, "%s", path);
	for (struct dirent *e; (e = readdir(d));) {
		struct stat st;

		if (is_needed(keep, e->d_name) ||
			fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			!S_ISREG(st.st_mode) || used_at(cache, sub, e->d_name, &st) > before)
			continue;
		if (!dry_run && unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT)
			return err_sys(err, errno, "remove %s/%s", path, e->d_name);
		++*files;
		*bytes += (uint64_t)st.st_blocks * 512;
	}
	return 0;
}

int gc_cache(struct store *s, int64_t keep_s, bool dry_run, unsigned *ret_files,
	uint64_t *ret_bytes, struct err *err)
{
	static const char *const places[] = {"disks", "translations", "stages", "downloads/sha256",
		"downloads/partial", "verified"};
	struct keys keep = {0};
	const char *cache;
	int r = paths_get(PATHS_CACHE, &cache, err);

	if (r == 0)
		r = needed(s, &keep, err);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places) && r == 0; i++)
		r = sweep(cache, places[i], &keep, (int64_t)time(NULL) - keep_s, dry_run, ret_files,
			ret_bytes, err);
	free(keep.hex);
	return r;
}
