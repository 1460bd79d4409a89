/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns a block: every inode's blocks are walked until one has it, then the directories for a
 * name of that inode. An image holds no map the other way round.
 */
#include "bake/ext4/owner.h"

#include <stdio.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"
#include "common/str.h"

struct find_block {
	blk64_t block;
	bool found;
};

static int look_at_block(ext2_filsys lib, blk64_t *block, e2_blkcnt_t count, blk64_t reference,
	int offset, void *user)
{
	struct find_block *f = user;

	(void)lib;
	(void)count;
	(void)reference;
	(void)offset;
	if (*block != f->block)
		return 0;
	f->found = true;
	return BLOCK_ABORT;
}

/* The inode that has @block among its blocks; 0: none has. */
static errcode_t find_inode(ext2_filsys lib, blk64_t block, ext2_ino_t *ret)
{
	struct ext2_inode inode;
	ext2_inode_scan scan;
	ext2_ino_t ino = 0;
	errcode_t rc = ext2fs_open_inode_scan(lib, 0, &scan);

	*ret = 0;
	if (rc)
		return rc;
	while (!*ret && !(rc = ext2fs_get_next_inode(scan, &ino, &inode)) && ino) {
		struct find_block f = {.block = block};

		if (ino == EXT2_BAD_INO ||
			(!inode.i_links_count && ino >= EXT2_FIRST_INODE(lib->super)))
			continue;
		if (block && ext2fs_file_acl_block(lib, &inode) == block)
			f.found = true;
		else if (ext2fs_inode_has_valid_blocks2(lib, &inode))
			ext2fs_block_iterate3(
				lib, ino, BLOCK_FLAG_READ_ONLY, NULL, look_at_block, &f);
		if (f.found)
			*ret = ino;
	}
	ext2fs_close_inode_scan(scan);
	return rc;
}

struct find_name {
	ext2_ino_t ino, dir;
	char name[EXT4_NAME + 1];
};

static int look_at_entry(ext2_ino_t dir, int entry, struct ext2_dir_entry *dirent, int offset,
	int block_bytes, char *buf, void *user)
{
	struct find_name *f = user;
	int len = ext2fs_dirent_name_len(dirent);

	(void)offset;
	(void)block_bytes;
	(void)buf;
	if (dirent->inode != f->ino || entry != DIRENT_OTHER_FILE)
		return 0;
	f->dir = dir;
	snprintf(f->name, sizeof(f->name), "%.*s", len, dirent->name);
	return DIRENT_ABORT;
}

/* A path of @ino. Caller frees. */
static char *find_path(ext2_filsys lib, ext2_ino_t ino)
{
	struct find_name f = {.ino = ino};
	struct ext2_inode inode;
	ext2_inode_scan scan;
	ext2_ino_t at = 0;
	char *path = NULL, *out;

	if (ext2fs_open_inode_scan(lib, 0, &scan))
		return str_printf("inode %u", ino);
	while (!f.dir && !ext2fs_get_next_inode(scan, &at, &inode) && at)
		if (LINUX_S_ISDIR(inode.i_mode) && inode.i_links_count)
			ext2fs_dir_iterate2(lib, at, 0, NULL, look_at_entry, &f);
	ext2fs_close_inode_scan(scan);
	if (!f.dir || ext2fs_get_pathname(lib, f.dir, 0, &path))
		return str_printf("inode %u, which has no name", ino);
	out = str_printf("%s/%s", strcmp(path, "/") ? path : "", f.name);
	ext2fs_free_mem(&path);
	return out;
}

static char *describe(ext2_filsys lib, blk64_t block, ext2_ino_t ino)
{
	if (ino == EXT2_JOURNAL_INO)
		return str_dup("the file system's journal");
	if (ino == EXT2_ROOT_INO)
		return str_dup("/");
	if (ino >= EXT2_FIRST_INODE(lib->super))
		return find_path(lib, ino);
	return str_dup(ino || ext2fs_test_block_bitmap2(lib->block_map, block)
			? "the file system's own tables"
			: "a free block, of a file that was removed");
}

int ext4_owner(int fd, uint64_t offset, char **ret, struct err *err)
{
	char name[16];
	ext2_filsys lib = NULL;
	ext2_ino_t ino = 0;
	errcode_t rc;
	blk64_t block;

	snprintf(name, sizeof(name), "%d", fd);
	rc = ext2fs_open(name, EXT2_FLAG_64BITS | EXT2_FLAG_IGNORE_CSUM_ERRORS, 0, 0,
		&ext4_io_manager, &lib);
	if (rc) {
		ext4_lib_error(err, rc, "open an image");
		return -EBADMSG;
	}
	block = offset / lib->blocksize;
	rc = block < ext2fs_blocks_count(lib->super) ? ext2fs_read_block_bitmap(lib)
						     : EXT2_ET_BAD_BLOCK_NUM;
	if (!rc)
		rc = find_inode(lib, block, &ino);
	if (rc)
		ext4_lib_error(
			err, rc, "look for the owner of block %llu", (unsigned long long)block);
	else
		*ret = describe(lib, block, ino);
	ext2fs_close(lib);
	return rc ? -EBADMSG : 0;
}
