/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing trees: both are walked into lists, the lists merged by path. Contents are read only
 * where type and size are the same.
 */
#include "prove/tree.h"

#include <string.h>
#include <sys/stat.h>

#include "common/limits.h"
#include "prove/limits.h"
#include "common/str.h"

#define LEVELS 3 /* of directories whose sizes are told */

struct entry {
	char *path;
	struct ext4_found f; /* path and name are not valid any more */
};

struct tree {
	struct ext4_image *img;
	struct entry *items;
	size_t n, room;
};

static int take(void *user, const struct ext4_found *f)
{
	struct tree *t = user;

	if (t->n == t->room) {
		t->room = t->room ? 2 * t->room : 4096;
		t->items = reallocarray(t->items, t->room, sizeof(*t->items));
		if (!t->items)
			abort();
	}
	t->items[t->n++] = (struct entry){str_dup(f->path), *f};
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

static int fill(struct tree *t, struct err *err)
{
	int r = ext4_image_walk(t->img, take, t, err);

	if (!r && t->n)
		qsort(t->items, t->n, sizeof(*t->items), by_path);
	return r;
}

static void tree_clear(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->items[i].path);
	free(t->items);
}

/* ---- what differs ------------------------------------------------------------------------ */

struct comparison {
	struct tree a, b;
	json_t *added, *removed, *changed; /* owned by the result */
	struct strings dirs; /* in which something differs */
	struct err *err;
};

static const char *type_name(mode_t mode)
{
	return S_ISREG(mode)                     ? "file"
		: S_ISDIR(mode)                  ? "directory"
		: S_ISLNK(mode)                  ? "link"
		: S_ISCHR(mode) || S_ISBLK(mode) ? "device"
		: S_ISFIFO(mode)                 ? "fifo"
						 : "socket";
}

/* Its directories, down to LEVELS, are among those that are told. */
static void note_dirs(struct comparison *c, const char *path)
{
	const char *p = path;

	for (int i = 0; i < LEVELS && (p = strchr(p + 1, '/')); i++) {
		cleanup_free char *dir = strndup(path, (size_t)(p - path));

		if (!dir)
			abort();
		/* paths come in order: a directory that was added lately is the same */
		for (size_t j = c->dirs.n; j > 0 && j + LEVELS > c->dirs.n; j--)
			if (!strcmp(c->dirs.items[j - 1], dir))
				goto known;
		strings_add(&c->dirs, dir);
known:;
	}
}

static void one_sided(struct comparison *c, json_t *list, const struct entry *e)
{
	cleanup_json json_t *path = json_lossy(e->path, strlen(e->path));

	json_array_append_new(list,
		json_pack("{s:O, s:s, s:I}", "path", path, "type", type_name(e->f.mode), "bytes",
			(json_int_t)e->f.bytes));
	note_dirs(c, e->path);
}

static char *small_text(struct ext4_image *img, const struct entry *e, size_t *ret_len)
{
	char *text = NULL;

	if (e->f.bytes > LIMIT_DIFF_TEXT ||
		ext4_image_read(img, e->f.ino, LIMIT_DIFF_TEXT, &text, ret_len, NULL))
		return NULL;
	if (memchr(text, '\0', *ret_len))
		free(steal_ptr(&text));
	return text;
}

static void add_lines(
	struct comparison *c, const struct entry *a, const struct entry *b, json_t *to)
{
	size_t a_len = 0, b_len = 0;
	cleanup_free char *one = small_text(c->a.img, a, &a_len);
	cleanup_free char *other = one ? small_text(c->b.img, b, &b_len) : NULL;
	json_t *lines = other ? tree_lines(one, a_len, other, b_len) : NULL;

	if (lines)
		json_object_set_new(to, "lines", lines);
}

static int same_content(
	struct comparison *c, const struct entry *a, const struct entry *b, bool *ret)
{
	*ret = a->f.bytes == b->f.bytes;
	if (!*ret || !a->f.bytes)
		return 0;
	return ext4_image_same(c->a.img, a->f.ino, c->b.img, b->f.ino, ret, c->err);
}

static int same_link(struct comparison *c, const struct entry *a, const struct entry *b, bool *ret)
{
	cleanup_free char *one = NULL, *other = NULL;
	size_t a_len, b_len;
	int r = ext4_image_read(c->a.img, a->f.ino, LIMIT_PATH, &one, &a_len, c->err);

	if (!r)
		r = ext4_image_read(c->b.img, b->f.ino, LIMIT_PATH, &other, &b_len, c->err);
	if (!r)
		*ret = a_len == b_len && !memcmp(one, other, a_len);
	return r;
}

static int same_xattrs(
	struct comparison *c, const struct entry *a, const struct entry *b, bool *ret)
{
	cleanup_free char *one = NULL, *other = NULL;
	int r = ext4_image_xattrs(c->a.img, a->f.ino, &one, c->err);

	if (!r)
		r = ext4_image_xattrs(c->b.img, b->f.ino, &other, c->err);
	if (!r)
		*ret = !strcmp(one, other);
	return r;
}

static int compare_entries(struct comparison *c, const struct entry *a, const struct entry *b)
{
	cleanup_json json_t *what = json_array(), *change = NULL;
	bool typed = (a->f.mode & S_IFMT) == (b->f.mode & S_IFMT), same = true, attributes = true;
	int r = 0;

	if (!typed)
		json_array_append_new(what, json_string("type"));
	else if (S_ISREG(a->f.mode))
		r = same_content(c, a, b, &same);
	else if (S_ISLNK(a->f.mode))
		r = same_link(c, a, b, &same);
	else
		same = a->f.dev_major == b->f.dev_major && a->f.dev_minor == b->f.dev_minor;
	if (!r)
		r = same_xattrs(c, a, b, &attributes);
	if (r) {
		err_prefix(c->err, "%s", a->path);
		return r;
	}
	if (!same)
		json_array_append_new(what, json_string(S_ISLNK(a->f.mode) ? "link" : "content"));
	if ((a->f.mode & 07777) != (b->f.mode & 07777))
		json_array_append_new(what, json_string("mode"));
	if (a->f.uid != b->f.uid || a->f.gid != b->f.gid)
		json_array_append_new(what, json_string("owner"));
	if (!attributes)
		json_array_append_new(what, json_string("xattrs"));
	if (!json_array_size(what))
		return 0;
	change = json_pack("{s:o, s:O, s:I, s:I}", "path", json_lossy(a->path, strlen(a->path)),
		"what", what, "a_bytes", (json_int_t)a->f.bytes, "b_bytes", (json_int_t)b->f.bytes);
	if (typed && !same && S_ISREG(a->f.mode))
		add_lines(c, a, b, change);
	json_array_append(c->changed, change);
	note_dirs(c, a->path);
	return 0;
}

static int merge(struct comparison *c)
{
	size_t i = 0, j = 0;
	int r = 0;

	while (!r && (i < c->a.n || j < c->b.n)) {
		const struct entry *a = i < c->a.n ? &c->a.items[i] : NULL;
		const struct entry *b = j < c->b.n ? &c->b.items[j] : NULL;
		int order = !a ? 1 : !b ? -1 : strcmp(a->path, b->path);

		if (order < 0)
			one_sided(c, c->removed, a);
		else if (order > 0)
			one_sided(c, c->added, b);
		else
			r = compare_entries(c, a, b);
		i += order <= 0;
		j += order >= 0;
	}
	return r;
}

/* ---- sizes ------------------------------------------------------------------------------- */

/* The bytes of the files below @dir. Those below it stand together but for names like "dir-x" between. */
static uint64_t bytes_below(const struct tree *t, const char *dir)
{
	size_t len = strlen(dir), low = 0, high = t->n;
	uint64_t bytes = 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(t->items[mid].path, dir) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < t->n && !strncmp(t->items[low].path, dir, len); low++)
		if (t->items[low].path[len] == '/' && S_ISREG(t->items[low].f.mode))
			bytes += t->items[low].f.bytes;
	return bytes;
}

static json_t *sizes(struct comparison *c)
{
	json_t *list = json_array();

	strings_sort(&c->dirs);
	for (size_t i = 0; i < c->dirs.n; i++) {
		const char *dir = c->dirs.items[i];
		uint64_t a, b;

		if (i && !strcmp(dir, c->dirs.items[i - 1]))
			continue;
		a = bytes_below(&c->a, dir);
		b = bytes_below(&c->b, dir);
		if (a != b)
			json_array_append_new(list,
				json_pack("{s:o, s:I, s:I}", "path", json_lossy(dir, strlen(dir)),
					"a", (json_int_t)a, "b", (json_int_t)b));
	}
	return list;
}

int tree_compare(struct ext4_image *a, struct ext4_image *b, json_t **ret, struct err *err)
{
	struct comparison c = {.a = {.img = a}, .b = {.img = b}, .err = err};
	json_t *all;
	int r = fill(&c.a, err);

	if (!r)
		r = fill(&c.b, err);
	c.added = json_array();
	c.removed = json_array();
	c.changed = json_array();
	if (!r)
		r = merge(&c);
	all = json_pack("{s:o, s:o, s:o, s:o}", "added", c.added, "removed", c.removed, "changed",
		c.changed, "directories", sizes(&c));
	if (!all)
		abort();
	if (r)
		json_decref(all);
	else
		*ret = all;
	strings_clear(&c.dirs);
	tree_clear(&c.a);
	tree_clear(&c.b);
	return r;
}
