/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading images. A directory's names are gathered and sorted before its entries are visited, so that a walk is
 * in the same order whatever made the image. A directory that holds itself ends at the bounds of depth and number.
 */
#include "bake/ext4/read.h"

#include <string.h>
#include <sys/stat.h>

#include "bake/ext4/ext4_private.h"
#include "common/limits.h"
#include "common/str.h"

#define READ_BYTES (256 * KIB)

struct ext4_image {
	ext2_filsys lib;
	uint64_t bytes;
};

int ext4_image_open(int fd, struct ext4_image **ret, struct err *err)
{
	struct ext4_image *img = calloc(1, sizeof(*img));
	char name[16];
	errcode_t rc;

	if (!img)
		abort();
	snprintf(name, sizeof(name), "%d", fd);
	rc = ext2fs_open(name, EXT2_FLAG_64BITS, 0, 0, &ext4_io_manager, &img->lib);
	if (rc) {
		free(img);
		ext4_lib_error(err, rc, "open an image");
		return -EBADMSG;
	}
	img->bytes = ext2fs_blocks_count(img->lib->super) * img->lib->blocksize;
	*ret = img;
	return 0;
}

void ext4_image_free(struct ext4_image *img)
{
	if (img)
		ext2fs_close(img->lib);
	free(img);
}

/* ---- files ------------------------------------------------------------------------------- */

static int bad(struct err *err, errcode_t rc, const char *what, uint32_t ino)
{
	ext4_lib_error(err, rc, "%s inode %u", what, ino);
	return -EBADMSG;
}

static int inode_of(struct ext4_image *img, uint32_t ino, struct ext2_inode *ret, struct err *err)
{
	errcode_t rc = ext2fs_read_inode(img->lib, ino, ret);

	return rc ? bad(err, rc, "read", ino) : 0;
}

/* Call @take with the file's content, piece by piece. */
static int each_piece(struct ext4_image *img, uint32_t ino,
	void (*take)(void *user, const char *bytes, size_t len), void *user, struct err *err)
{
	cleanup_free char *buf = malloc(READ_BYTES);
	ext2_file_t file;
	unsigned got = 1;
	errcode_t rc = ext2fs_file_open(img->lib, ino, 0, &file);

	if (!buf)
		abort();
	if (rc)
		return bad(err, rc, "read", ino);
	while (!rc && got) {
		rc = ext2fs_file_read(file, buf, READ_BYTES, &got);
		if (!rc && got)
			take(user, buf, got);
	}
	ext2fs_file_close(file);
	return rc ? bad(err, rc, "read", ino) : 0;
}

static void take_text(void *user, const char *bytes, size_t len)
{
	fwrite(bytes, 1, len, user);
}

static void take_sum(void *user, const char *bytes, size_t len)
{
	digest_update(user, bytes, len);
}

int ext4_image_read(struct ext4_image *img, uint32_t ino, size_t max, char **ret, size_t *ret_len,
	struct err *err)
{
	cleanup_free char *text = NULL;
	struct ext2_inode inode;
	size_t len = 0;
	FILE *f;
	int r = inode_of(img, ino, &inode, err);

	if (r)
		return r;
	if (EXT2_I_SIZE(&inode) > max)
		return err_set(err, EFBIG, "inode %u has more than %zu bytes", ino, max);
	if (LINUX_S_ISLNK(inode.i_mode) && ext2fs_is_fast_symlink(&inode)) {
		*ret_len = strnlen((const char *)inode.i_block, sizeof(inode.i_block));
		*ret = strndup((const char *)inode.i_block, *ret_len);
		if (!*ret)
			abort();
		return 0;
	}
	f = open_memstream(&text, &len);
	if (!f)
		abort();
	r = each_piece(img, ino, take_text, f, err);
	if (fclose(f))
		abort();
	if (r)
		return r;
	*ret = steal_ptr(&text);
	*ret_len = len;
	return 0;
}

int ext4_image_digest(
	struct ext4_image *img, uint32_t ino, char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	cleanup_digest struct digest *d = digest_new();
	struct ext2_inode inode;
	int r = inode_of(img, ino, &inode, err);

	if (r)
		return r;
	if (EXT2_I_SIZE(&inode) > img->bytes)
		return err_set(err, EFBIG, "inode %u is larger than its image", ino);
	r = each_piece(img, ino, take_sum, d, err);
	if (!r)
		digest_final(d, ret);
	return r;
}

int ext4_image_same(struct ext4_image *a, uint32_t a_ino, struct ext4_image *b, uint32_t b_ino,
	bool *ret, struct err *err)
{
	cleanup_free char *buf = malloc(2 * READ_BYTES);
	ext2_file_t one = NULL, other = NULL;
	struct ext2_inode inode;
	unsigned n = 1, m = 1;
	errcode_t rc;
	int r = inode_of(a, a_ino, &inode, err);

	if (!buf)
		abort();
	if (r)
		return r;
	if (EXT2_I_SIZE(&inode) > a->bytes)
		return err_set(err, EFBIG, "inode %u is larger than its image", a_ino);
	*ret = true;
	rc = ext2fs_file_open(a->lib, a_ino, 0, &one);
	if (!rc)
		rc = ext2fs_file_open(b->lib, b_ino, 0, &other);
	while (!rc && *ret && (n || m)) {
		rc = ext2fs_file_read(one, buf, READ_BYTES, &n);
		if (!rc)
			rc = ext2fs_file_read(other, buf + READ_BYTES, READ_BYTES, &m);
		*ret = n == m && !memcmp(buf, buf + READ_BYTES, n);
	}
	if (one)
		ext2fs_file_close(one);
	if (other)
		ext2fs_file_close(other);
	return rc ? bad(err, rc, "compare", a_ino) : 0;
}

static int add_xattr(char *name, char *value, size_t len, void *user)
{
	cleanup_free char *line = NULL;
	size_t n;
	FILE *f = open_memstream(&line, &n);

	if (!f)
		abort();
	fprintf(f, "%s=", name);
	for (size_t i = 0; i < len; i++)
		fprintf(f, "%02x", (unsigned char)value[i]);
	if (fclose(f))
		abort();
	strings_add(user, line);
	return 0;
}

int ext4_image_xattrs(struct ext4_image *img, uint32_t ino, char **ret, struct err *err)
{
	struct ext2_xattr_handle *handle = NULL;
	struct strings lines = {0};
	errcode_t rc = ext2fs_xattrs_open(img->lib, ino, &handle);
	size_t len;
	FILE *f;

	if (!rc)
		rc = ext2fs_xattrs_read(handle);
	if (!rc)
		rc = ext2fs_xattrs_iterate(handle, add_xattr, &lines);
	if (handle)
		ext2fs_xattrs_close(&handle);
	if (rc) {
		strings_clear(&lines);
		return bad(err, rc, "read the extended attributes of", ino);
	}
	strings_sort(&lines);
	f = open_memstream(ret, &len);
	if (!f)
		abort();
	for (size_t i = 0; i < lines.n; i++)
		fprintf(f, "%s\n", lines.items[i]);
	if (fclose(f))
		abort();
	strings_clear(&lines);
	return 0;
}

int ext4_image_find(struct ext4_image *img, const char *path, uint32_t *ret)
{
	ext2_ino_t at = EXT2_ROOT_INO;

	for (const char *p = path + strspn(path, "/"); *p; p += strspn(p, "/")) {
		int n = (int)strcspn(p, "/");

		if (ext2fs_lookup(img->lib, at, p, n, NULL, &at))
			return -ENOENT;
		p += n;
	}
	*ret = at;
	return 0;
}

/* ---- the walk ---------------------------------------------------------------------------- */

struct names {
	struct name {
		char *text;
		uint32_t ino;
	} * items;
	size_t n, room;
};

struct walk {
	struct ext4_image *img;
	ext4_found_fn *fn;
	void *user;
	size_t entries;
	struct err *err;
};

static int add_name(
	struct ext2_dir_entry *dirent, int offset, int block_bytes, char *buf, void *user)
{
	struct names *names = user;
	int len = ext2fs_dirent_name_len(dirent);

	(void)offset;
	(void)block_bytes;
	(void)buf;
	if (!dirent->inode || (len == 1 && dirent->name[0] == '.') ||
		(len == 2 && !memcmp(dirent->name, "..", 2)))
		return 0;
	if (names->n == LIMIT_ENTRIES)
		return DIRENT_ABORT;
	if (names->n == names->room) {
		names->room = names->room ? 2 * names->room : 32;
		names->items = reallocarray(names->items, names->room, sizeof(*names->items));
		if (!names->items)
			abort();
	}
	names->items[names->n] = (struct name){strndup(dirent->name, (size_t)len), dirent->inode};
	if (!names->items[names->n++].text)
		abort();
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static void names_clear(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->items[i].text);
	free(names->items);
}

static void describe(
	struct ext4_found *f, const struct name *name, const char *path, const struct ext2_inode *i)
{
	*f = (struct ext4_found){.path = path,
		.name = name->text,
		.ino = name->ino,
		.mode = i->i_mode,
		.uid = inode_uid(*i),
		.gid = inode_gid(*i),
		.bytes = LINUX_S_ISDIR(i->i_mode) ? 0 : EXT2_I_SIZE(i)};
	if (!LINUX_S_ISCHR(i->i_mode) && !LINUX_S_ISBLK(i->i_mode))
		return;
	f->bytes = 0;
	/* the kernel's two ways of writing a device's number */
	if (i->i_block[0]) {
		f->dev_major = i->i_block[0] >> 8 & 0xff;
		f->dev_minor = i->i_block[0] & 0xff;
	} else {
		f->dev_major = i->i_block[1] >> 8 & 0xfff;
		f->dev_minor = (i->i_block[1] & 0xff) | (i->i_block[1] >> 12 & 0xfff00);
	}
}

static int walk_dir(struct walk *w, uint32_t dir, const char *path, unsigned depth)
{
	cleanup_with(names_clear) struct names names = {0};
	errcode_t rc = ext2fs_dir_iterate(w->img->lib, dir, 0, NULL, add_name, &names);
	int r = 0;

	if (rc)
		return bad(w->err, rc, "list directory", dir);
	if (depth > LIMIT_PATH_DEPTH || w->entries + names.n > LIMIT_ENTRIES)
		return err_set(
			w->err, E2BIG, "%s is too deep, or there are too many entries", path);
	w->entries += names.n;
	if (names.n)
		qsort(names.items, names.n, sizeof(*names.items), by_text);
	for (size_t i = 0; !r && i < names.n; i++) {
		cleanup_free char *child = str_printf("%s/%s", path, names.items[i].text);
		struct ext2_inode inode;
		struct ext4_found found;

		r = inode_of(w->img, names.items[i].ino, &inode, w->err);
		if (r)
			break;
		describe(&found, &names.items[i], child, &inode);
		r = w->fn(w->user, &found);
		if (!r && LINUX_S_ISDIR(inode.i_mode))
			r = walk_dir(w, names.items[i].ino, child, depth + 1);
	}
	return r;
}

int ext4_image_walk(struct ext4_image *img, ext4_found_fn *fn, void *user, struct err *err)
{
	struct walk w = {.img = img, .fn = fn, .user = user, .err = err};

	return walk_dir(&w, EXT2_ROOT_INO, "", 0);
}
