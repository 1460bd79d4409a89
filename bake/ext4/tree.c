/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of the image, in memory while it is being made: each directory is a list in order of
 * arrival (the order they are written in, so the same calls give the same bytes) and a balanced
 * tree by name, so that no choice of names by a hostile archive makes a lookup slow. A path is
 * walked here, never on the host, and never through a symbolic link: only directories of this tree
 * are walked through.
 */
#include <errno.h>
#include <search.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/ext4/ext4_private.h"
#include "common/limits.h"
#include "common/str.h"

static void *alloc_or_abort(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		abort();
	return p;
}

static int by_name(const void *a, const void *b)
{
	const struct ext4_entry *x = a, *y = b;
	int r = memcmp(x->name, y->name, x->len < y->len ? x->len : y->len);

	return r ? r : (int)x->len - (int)y->len;
}

struct ext4_dir *ext4_dir_new(uint32_t ino, struct ext4_dir *parent)
{
	struct ext4_dir *dir = alloc_or_abort(sizeof(*dir));

	dir->ino = ino;
	dir->parent = parent ? parent : dir;
	TAILQ_INIT(&dir->entries);
	return dir;
}

static void keep(void *entry)
{
	(void)entry; /* the list owns it */
}

/* Recursion is bounded by LIMIT_PATH_DEPTH: ext4_walk() makes nothing deeper. */
void ext4_dir_free(struct ext4_dir *dir)
{
	struct ext4_entry *entry;

	if (!dir)
		return;
	tdestroy(dir->index, keep);
	while ((entry = TAILQ_FIRST(&dir->entries))) {
		TAILQ_REMOVE(&dir->entries, entry, link);
		ext4_dir_free(entry->dir);
		free(entry);
	}
	free(dir);
}

struct ext4_entry *ext4_dir_find(struct ext4_dir *dir, const char *name, size_t len)
{
	union {
		struct ext4_entry entry;
		char room[sizeof(struct ext4_entry) + EXT4_NAME];
	} key;
	struct ext4_entry **found;

	if (len > EXT4_NAME)
		return NULL;
	key.entry.len = len;
	memcpy(key.room + offsetof(struct ext4_entry, name), name, len);
	found = tfind(&key.entry, &dir->index, by_name);
	return found ? *found : NULL;
}

struct ext4_entry *ext4_dir_insert(struct ext4_dir *dir, const char *name, size_t len, uint32_t ino,
	uint8_t type, struct ext4_dir *sub)
{
	struct ext4_entry *entry = alloc_or_abort(sizeof(*entry) + len);
	struct ext4_entry **slot;

	entry->ino = ino;
	entry->type = type;
	entry->len = len;
	entry->dir = sub;
	memcpy(entry->name, name, len);
	slot = tsearch(entry, &dir->index, by_name);
	if (!slot || *slot != entry)
		abort(); /* out of memory, or a name twice: our own fault */
	TAILQ_INSERT_TAIL(&dir->entries, entry, link);
	dir->n_entries++;
	if (sub) {
		sub->self = entry;
		dir->n_subdirs++;
	}
	return entry;
}

void ext4_dir_delete(struct ext4_dir *dir, struct ext4_entry *entry)
{
	tdelete(entry, &dir->index, by_name);
	TAILQ_REMOVE(&dir->entries, entry, link);
	dir->n_entries--;
	if (entry->dir)
		dir->n_subdirs--;
	ext4_dir_free(entry->dir);
	free(entry);
}

char *ext4_dir_path(const struct ext4_dir *dir)
{
	char *path = str_dup("");

	if (dir->parent == dir) {
		free(path);
		return str_dup("/");
	}
	for (; dir->parent != dir; dir = dir->parent) {
		char *longer = str_printf("/%.*s%s", dir->self->len, dir->self->name, path);

		free(path);
		path = longer;
	}
	return path;
}

static int make_parent(struct ext4 *fs, struct ext4_dir *dir, const char *path, size_t path_len,
	const char *name, size_t len, struct ext4_dir **ret, struct err *err)
{
	cleanup_free char *made = str_printf("%.*s", (int)path_len, path);
	const struct ext4_meta meta = {.mode = S_IFDIR | 0755, .mtime_s = fs->time};
	struct ext4_entry *entry;
	int r = ext4_add_dir(fs, made, &meta, err);

	if (r < 0)
		return r;
	entry = ext4_dir_find(dir, name, len);
	*ret = entry->dir;
	return 0;
}

static int name_check(const char *path, const char *name, size_t len, struct err *err)
{
	if (len > EXT4_NAME)
		return err_set(err, ENAMETOOLONG, "%s: a name of %zu bytes; ext4 holds %u", path,
			len, EXT4_NAME);
	if ((len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0))
		return err_set(err, EINVAL, "%s: '.' or '..' in a path", path);
	return 0;
}

int ext4_walk(struct ext4 *fs, const char *path, bool make, struct ext4_dir **ret_dir,
	const char **ret_name, size_t *ret_len, struct err *err)
{
	struct ext4_dir *dir = fs->root;
	const char *p = path + strspn(path, "/");
	unsigned depth = 0;

	if (path[0] != '/')
		return err_set(err, EINVAL, "%s: not an absolute path", path);
	if (strlen(path) >= LIMIT_PATH)
		return err_set(err, ENAMETOOLONG, "%.64s…: a path of more than %d bytes", path,
			LIMIT_PATH - 1);
	for (;;) {
		size_t len = strcspn(p, "/");
		const char *next = p + len + strspn(p + len, "/");
		struct ext4_entry *entry;
		int r = name_check(path, p, len, err);

		if (r < 0)
			return r;
		if (++depth > LIMIT_PATH_DEPTH)
			return err_set(err, ENAMETOOLONG, "%s: more than %d directories deep", path,
				LIMIT_PATH_DEPTH);
		if (!*next) {
			*ret_dir = dir;
			*ret_name = p;
			*ret_len = len;
			return 0;
		}
		entry = ext4_dir_find(dir, p, len);
		if (entry && !entry->dir)
			return err_set(err, ENOTDIR, "%s: %.*s is not a directory%s", path,
				(int)(p + len - path), path,
				entry->type == EXT2_FT_SYMLINK ? " but a symbolic link" : "");
		if (entry) {
			dir = entry->dir;
		} else if (!make) {
			return err_set(err, ENOENT, "%s: there is no %.*s", path,
				(int)(p + len - path), path);
		} else {
			r = make_parent(fs, dir, path, p + len - path, p, len, &dir, err);
			if (r < 0)
				return r;
		}
		p = next;
	}
}
