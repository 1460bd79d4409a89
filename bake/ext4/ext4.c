/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system as a whole: made at the beginning, counted and written at the end.
 *
 * Its features are mke2fs's for ext4 (extents, 64bit, flex_bg, metadata_csum, dir_index, inodes of
 * 256 bytes …) with two left out on purpose:
 *
 * - has_journal. An image is booted, captured together with the memory that has it mounted, and
 *   its clones are thrown away. Pausing and resuming stops memory and disk at one instant, so
 *   there is no crash for a journal to recover from; it would cost each clone every metadata
 *   block twice, a kernel thread and up to 64 MiB.
 * - resize_inode. A kernel can grow such a file system on-line all the same (meta_bg), and the
 *   reserved descriptor blocks would be dead weight in every backup group.
 *
 * Inode tables are not written: they are holes, which read as the zeros they should hold, and the
 * groups say so (INODE_ZEROED), so no guest starts a lazyinit thread that would dirty them. Nothing
 * is reserved for root. Names stay in memory until ext4_finish() (dir.c says why). What would
 * differ from run to run (UUID, hash seed, times, the superblock's counters) comes from the
 * options. Whether names hash as signed characters is fixed too: mke2fs takes that from the host.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/ext4/ext4_private.h"
#include "common/limits.h"
#include "common/progress.h"

#define BYTES_PER_INODE 16384
#define LOST_FOUND_BLOCKS 4

static void errors_init(void)
{
	initialize_ext2_error_table();
}

int ext4_lib_error(struct err *err, errcode_t rc, const char *fmt, ...)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char what[1024];
	va_list args;

	pthread_once(&once, errors_init);
	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	/* the io manager's own errors are errnos */
	if (rc > 0 && rc < 256)
		return err_sys(err, rc, "%s", what);
	return err_set(err, rc == EXT2_ET_BLOCK_ALLOC_FAIL ? ENOSPC : EIO, "%s: %s", what,
		error_message(rc));
}

static void features_set(struct ext2_super_block *param)
{
	ext2fs_set_feature_xattr(param);
	ext2fs_set_feature_dir_index(param);
	ext2fs_set_feature_filetype(param);
	ext2fs_set_feature_extents(param);
	ext2fs_set_feature_64bit(param);
	ext2fs_set_feature_flex_bg(param);
	ext2fs_set_feature_sparse_super(param);
	ext2fs_set_feature_large_file(param);
	ext2fs_set_feature_huge_file(param);
	ext2fs_set_feature_dir_nlink(param);
	ext2fs_set_feature_extra_isize(param);
	ext2fs_set_feature_metadata_csum(param);
}

static int options_check(const struct ext4_options *opt, struct err *err)
{
	if (opt->bytes % EXT4_BLOCK || opt->bytes < 1 * MIB || opt->bytes > LIMIT_DISK_MAX)
		return err_set(err, EINVAL,
			"an image of %llu bytes: it must be a multiple of 4096 from "
			"1 MiB to %llu",
			(unsigned long long)opt->bytes, (unsigned long long)LIMIT_DISK_MAX);
	if (opt->label && strlen(opt->label) > EXT2_LABEL_LEN)
		return err_set(
			err, EINVAL, "label %s: longer than %d bytes", opt->label, EXT2_LABEL_LEN);
	if (opt->inodes > UINT32_MAX || opt->inodes > opt->bytes / EXT4_INODE)
		return err_set(err, ENOSPC, "%llu inodes do not fit into an image of %llu bytes",
			(unsigned long long)opt->inodes, (unsigned long long)opt->bytes);
	return 0;
}

static void super_fill(ext2_filsys lib, const struct ext4_options *opt)
{
	struct ext2_super_block *super = lib->super;
	/* 0 means "now" to libext2fs */
	int64_t stamp = opt->time > 0 ? opt->time : 1;

	lib->now = stamp;
	super->s_mkfs_time = super->s_lastcheck = super->s_wtime = (uint32_t)stamp;
	super->s_mkfs_time_hi = super->s_lastcheck_hi = super->s_wtime_hi = stamp >> 32;
	memcpy(super->s_uuid, opt->uuid, sizeof(super->s_uuid));
	memcpy(super->s_hash_seed, opt->hash_seed, sizeof(super->s_hash_seed));
	if (opt->label)
		memcpy(super->s_volume_name, opt->label, strlen(opt->label));
	super->s_def_hash_version = EXT2_HASH_HALF_MD4;
	super->s_flags |= EXT2_FLAGS_SIGNED_HASH;
	super->s_default_mount_opts = EXT2_DEFM_XATTR_USER | EXT2_DEFM_ACL;
	super->s_min_extra_isize = super->s_want_extra_isize =
		sizeof(struct ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;
	super->s_checksum_type = EXT2_CRC32C_CHKSUM;
	super->s_max_mnt_count = -1;
	super->s_kbytes_written = 0;
	ext2fs_init_csum_seed(lib);
}

/* The tables and the inodes below the first free one. */
static errcode_t tables_make(ext2_filsys lib)
{
	errcode_t rc = ext2fs_allocate_tables(lib);

	if (rc)
		return rc;
	for (ext2_ino_t i = 1; i < EXT2_FIRST_INODE(lib->super); i++)
		ext2fs_inode_alloc_stats2(lib, i, +1, i == EXT2_ROOT_INO);
	for (dgrp_t i = 0; i < lib->group_desc_count; i++) {
		ext2fs_bg_flags_set(lib, i, EXT2_BG_INODE_ZEROED);
		ext2fs_group_desc_csum_set(lib, i);
	}
	return 0;
}

static int library_open(int fd, const struct ext4_options *opt, ext2_filsys *ret, struct err *err)
{
	struct ext2_super_block param = {.s_rev_level = EXT2_DYNAMIC_REV};
	uint64_t inodes = opt->inodes ? opt->inodes : opt->bytes / BYTES_PER_INODE;
	char name[16];
	errcode_t rc;

	features_set(&param);
	param.s_log_block_size = 2;
	param.s_log_cluster_size = 2;
	param.s_inode_size = EXT4_INODE;
	param.s_log_groups_per_flex = 4;
	/* room for the reserved ones and lost+found */
	param.s_inodes_count = inodes < 64 ? 64 : inodes;
	ext2fs_blocks_count_set(&param, opt->bytes / EXT4_BLOCK);
	snprintf(name, sizeof(name), "%d", fd);
	rc = ext2fs_initialize(name, EXT2_FLAG_64BITS, &param, &ext4_io_manager, ret);
	if (rc)
		return ext4_lib_error(err, rc,
			"making an ext4 image of %llu bytes with %llu inodes",
			(unsigned long long)opt->bytes, (unsigned long long)inodes);
	super_fill(*ret, opt);
	rc = tables_make(*ret);
	return rc ? ext4_lib_error(err, rc, "making an ext4 image of %llu bytes",
			    (unsigned long long)opt->bytes)
		  : 0;
}

static int root_make(struct ext4 *fs, struct err *err)
{
	struct ext4_meta meta = {.mode = S_IFDIR | 0755, .mtime_s = fs->time};
	uint64_t raw[EXT4_INODE / sizeof(uint64_t)];
	struct ext2_inode_large *inode = (struct ext2_inode_large *)raw;
	struct ext4_entry *entry;
	int r;

	fs->root = ext4_dir_new(EXT2_ROOT_INO, NULL);
	ext4_inode_fill(fs, inode, &meta);
	r = ext4_inode_write(fs, EXT2_ROOT_INO, inode, "/", err);
	if (r < 0)
		return r;
	meta.mode = S_IFDIR | 0700;
	r = ext4_add_dir(fs, "/lost+found", &meta, err);
	if (r < 0)
		return r;
	entry = ext4_dir_find(fs->root, "lost+found", strlen("lost+found"));
	entry->dir->min_blocks = LOST_FOUND_BLOCKS;
	return 0;
}

int ext4_create(int fd, const struct ext4_options *opt, struct ext4 **ret, struct err *err)
{
	struct ext4 *fs;
	int r = options_check(opt, err);

	if (r < 0)
		return r;
	if (ftruncate(fd, 0) < 0 || ftruncate(fd, opt->bytes) < 0)
		return err_sys(err, errno, "making an image of %llu bytes",
			(unsigned long long)opt->bytes);
	fs = calloc(1, sizeof(*fs));
	if (!fs)
		return err_sys(err, ENOMEM, "making an image");
	fs->fd = fd;
	fs->bytes = opt->bytes;
	fs->time = opt->time;
	fs->open.buf = malloc(EXT4_RUN_BYTES);
	fs->open.inode = calloc(1, EXT4_INODE);
	r = fs->open.buf && fs->open.inode ? library_open(fd, opt, &fs->lib, err)
					   : err_sys(err, ENOMEM, "making an image");
	if (r == 0) {
		fs->inode_cursor = EXT2_FIRST_INODE(fs->lib->super);
		fs->block_cursor = fs->lib->super->s_first_data_block;
		r = root_make(fs, err);
	}
	if (r < 0) {
		ext4_abort(fs);
		return r;
	}
	*ret = fs;
	return 0;
}

/*
 * How large the image, and how many its inodes, should have been. (Entries that came once it was
 * full and were replaced later are counted twice, so it may be a little much, not too little.)
 */
static int full_error(struct ext4 *fs, struct err *err)
{
	struct ext2_super_block *super = fs->lib->super;
	uint64_t blocks_free = ext2fs_free_blocks_count(super);
	uint64_t missing = fs->short_blocks > blocks_free ? fs->short_blocks - blocks_free : 0;
	uint64_t inodes = super->s_inodes_count - super->s_free_inodes_count + fs->short_inodes;
	/* what is left of each group once it has its tables */
	uint64_t tables = super->s_inodes_per_group / (EXT4_BLOCK / EXT4_INODE) + 16;
	uint64_t group = super->s_blocks_per_group;
	uint64_t need =
		fs->bytes / EXT4_BLOCK + missing + missing * tables / (group - tables) + tables;
	char have[16];

	progress_bytes(fs->bytes, have);
	err_set(err, ENOSPC, "the image of %s is full: it needs at least", have);
	if (missing)
		err_append(err, " %llu MiB", (unsigned long long)(need * EXT4_BLOCK / MIB + 1));
	if (inodes > super->s_inodes_count)
		err_append(err, "%s %llu inodes (it has %u)", missing ? " and" : "",
			(unsigned long long)inodes, super->s_inodes_count);
	return -ENOSPC;
}

static void count_entries(const struct ext4_dir *dir, uint64_t *n)
{
	const struct ext4_entry *entry;

	*n += dir->n_entries;
	TAILQ_FOREACH(entry, &dir->entries, link)
		if (entry->dir)
			count_entries(entry->dir, n);
}

static int finish(struct ext4 *fs, struct ext4_stats *ret, struct err *err)
{
	struct ext2_super_block *super = fs->lib->super;
	struct ext4_stats stats = {0};
	errcode_t rc;
	int r;

	if (fs->open.path)
		return err_set(err, EBUSY, "%s is still being written", fs->open.path);
	r = ext4_dirs_write(fs, err);
	if (r < 0)
		return r;
	if (ext4_full(fs))
		return full_error(fs, err);
	count_entries(fs->root, &stats.entries);
	stats.blocks_free_bytes = ext2fs_free_blocks_count(super) * EXT4_BLOCK;
	stats.blocks_used_bytes = ext2fs_blocks_count(super) * EXT4_BLOCK - stats.blocks_free_bytes;
	stats.inodes_free = super->s_free_inodes_count;
	stats.inodes_used = super->s_inodes_count - stats.inodes_free;
	rc = ext2fs_set_gdt_csum(fs->lib);
	if (!rc)
		rc = ext2fs_close_free(&fs->lib);
	if (rc)
		return ext4_lib_error(err, rc, "writing the image's tables");
	if (fsync(fs->fd) < 0)
		return err_sys(err, errno, "writing the image");
	if (ret)
		*ret = stats;
	return 0;
}

int ext4_finish(struct ext4 *fs, struct ext4_stats *ret, struct err *err)
{
	int r = finish(fs, ret, err);

	ext4_abort(fs);
	return r;
}

void ext4_abort(struct ext4 *fs)
{
	if (!fs)
		return;
	if (fs->lib)
		ext2fs_free(fs->lib);
	ext4_dir_free(fs->root);
	free(fs->open.path);
	free(fs->open.buf);
	free(fs->open.inode);
	free(fs->open.runs.items);
	free(fs);
}
