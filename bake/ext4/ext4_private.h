/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_EXT4_EXT4_PRIVATE_H
#define PARBAKE_BAKE_EXT4_EXT4_PRIVATE_H

/*
 * What the files of the ext4 family share; nobody else includes this. The family is the one place
 * that knows libext2fs.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <ext2fs/ext2_fs.h>
#include <ext2fs/ext2fs.h>
#include <ext2fs/ext3_extents.h>

#include "bake/ext4/ext4.h"
#include "common/err.h"

#define EXT4_BLOCK 4096U
#define EXT4_INODE 256U
#define EXT4_NAME 255U
#define EXT4_LINKS 65000U
#define EXT4_EXTENT_BLOCKS 32768U /* of one initialised extent */
#define EXT4_COUNT_BYTES (64ULL << 30) /* of data still counted once the image is full */
#define EXT4_RUN_BYTES (1U << 20) /* file data gathered before blocks are taken for it */

/* One name in a directory. */
struct ext4_entry {
	TAILQ_ENTRY(ext4_entry) link; /* in order of arrival */
	struct ext4_dir *dir; /* where it is a directory: owned */
	uint32_t ino; /* 0: the image is full, this entry is only counted */
	uint8_t type; /* EXT2_FT_… */
	uint8_t len;
	char name[];
};

/* A directory, in memory until ext4_finish() writes its blocks. */
struct ext4_dir {
	struct ext4_dir *parent; /* the root's is itself */
	struct ext4_entry *self; /* the root has none */
	TAILQ_HEAD(ext4_entries, ext4_entry) entries;
	void *index; /* tsearch(3) tree of the entries by name */
	size_t n_entries;
	size_t n_subdirs;
	uint32_t ino;
	uint32_t min_blocks; /* lost+found keeps room */
};

/* A run of blocks of one file. */
struct ext4_run {
	uint64_t physical;
	uint32_t logical;
	uint32_t count;
};

struct ext4_runs {
	struct ext4_run *items;
	size_t n, room;
};

/* The file between ext4_file_begin() and ext4_file_end(). */
struct ext4_open {
	char *path; /* NULL: none open */
	uint32_t ino;
	struct ext2_inode_large *inode; /* EXT4_INODE bytes */
	uint64_t at; /* offset of buf[0], a multiple of the block size */
	size_t len; /* bytes in buf */
	uint64_t end; /* of all data so far */
	char *buf; /* EXT4_RUN_BYTES */
	struct ext4_runs runs;
};

struct ext4 {
	ext2_filsys lib;
	int fd;
	uint64_t bytes;
	int64_t time;
	struct ext4_dir *root;
	struct ext4_open open;
	uint64_t block_cursor; /* where the search for free blocks goes on */
	uint32_t inode_cursor;
	uint64_t short_blocks; /* asked for when there were none left */
	uint64_t short_inodes;
};

/* Is the image full, so that from now on entries are only counted? */
static inline bool ext4_full(const struct ext4 *fs)
{
	return fs->short_blocks || fs->short_inodes;
}

/* io.c: an io manager over a descriptor, whose number is the name it is opened by. */
extern struct struct_io_manager ext4_io_manager;
/* Write whole blocks; blocks of zeros are left holes (a free block always is one). 0/-errno. */
int ext4_io_write_data(int fd, uint64_t block, const void *data, size_t n_blocks);
/* Make holes of the blocks. */
void ext4_io_discard(int fd, uint64_t block, uint64_t n_blocks);

/* ext4.c */
/* Set "fmt: what libext2fs says" and return a negative errno for @rc (not 0). */
int ext4_lib_error(struct err *err, errcode_t rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* tree.c: names in memory. */
struct ext4_dir *ext4_dir_new(uint32_t ino, struct ext4_dir *parent);
void ext4_dir_free(struct ext4_dir *dir); /* with all beneath it */
struct ext4_entry *ext4_dir_find(struct ext4_dir *dir, const char *name, size_t len);
/* The name must not be there. Takes @sub, which may be NULL. */
struct ext4_entry *ext4_dir_insert(struct ext4_dir *dir, const char *name, size_t len, uint32_t ino,
	uint8_t type, struct ext4_dir *sub);
void ext4_dir_delete(
	struct ext4_dir *dir, struct ext4_entry *entry); /* frees @entry and its tree */
/* "/a/b" of a directory; caller frees. */
char *ext4_dir_path(const struct ext4_dir *dir);
/*
 * Find the directory that holds @path's last component (@ret_len 0: @path is the root). Missing
 * parents are made where @make, else -ENOENT. -EINVAL, -ENAMETOOLONG, -ENOTDIR as in ext4.h.
 */
int ext4_walk(struct ext4 *fs, const char *path, bool make, struct ext4_dir **ret_dir,
	const char **ret_name, size_t *ret_len, struct err *err);

/* inode.c */
int ext4_inode_alloc(struct ext4 *fs, bool is_dir, uint32_t *ret);
/* Drop one name of a non-directory, or a directory: the last frees inode, xattrs and blocks. */
int ext4_inode_drop(struct ext4 *fs, uint32_t ino, bool is_dir, struct err *err);
void ext4_inode_fill(struct ext4 *fs, struct ext2_inode_large *inode, const struct ext4_meta *meta);
int ext4_inode_write(struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode,
	const char *path, struct err *err);
int ext4_inode_read(struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode, const char *path,
	struct err *err);
/* The inode is on disk already; sets @meta's xattrs there. */
int ext4_inode_xattrs(struct ext4 *fs, uint32_t ino, const struct ext4_meta *meta, const char *path,
	struct err *err);
int ext4_inode_drop_xattrs(struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode,
	const char *path, struct err *err);

/* xattr.c: are these names and values such that ext4 can hold them? */
int ext4_xattrs_check(const struct ext4_meta *meta, const char *path, struct err *err);

/* extent.c: blocks. */
/*
 * Take up to @want free blocks in one run: *@ret_count ≥ 1 of them at *@ret_first. Where none is
 * left, *@ret_first is 0, *@ret_count @want and the image is full (ext4_full()).
 */
void ext4_blocks_take(struct ext4 *fs, uint64_t want, uint64_t *ret_first, uint64_t *ret_count);
void ext4_blocks_release(struct ext4 *fs, uint64_t first, uint64_t count);
/* Blocks @logical … of a file lie at @physical …; in rising order. */
void ext4_runs_add(struct ext4_runs *runs, uint64_t logical, uint64_t physical, uint64_t count);
/* Build the extent tree into @inode (not written) and count the blocks in it. */
int ext4_runs_store(struct ext4 *fs, const struct ext4_runs *runs, uint32_t ino,
	struct ext2_inode_large *inode, const char *path, struct err *err);

/* dir.c, htree.c: directories on disk. */
int ext4_dirs_write(struct ext4 *fs, struct err *err);
size_t ext4_dirent_size(size_t name_len);
/* Append an entry at @at of a block; returns where the next goes. */
size_t ext4_dirent_put(
	char *block, size_t at, uint32_t ino, uint8_t type, const char *name, size_t len);
/* Stretch the entry at @last to the end of the block and write the tail behind it. */
void ext4_dirent_close(char *block, size_t last);
/* The blocks of an indexed directory in fresh memory; caller frees. */
int ext4_htree_build(struct ext4 *fs, const struct ext4_dir *dir, char **ret, size_t *ret_blocks,
	struct err *err);

#endif
