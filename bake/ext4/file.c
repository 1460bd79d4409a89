/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file's data, as a stream. Up to 1 MiB of adjacent data is collected. Then blocks are taken for
 * it, and it is written in as few calls as the runs of blocks allow. A gap of a whole block or more
 * stays a hole of the file. The inode is written once, at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"

/*
 * Logical block numbers are 32 bits wide, and the last one is not used (the kernel's
 * EXT_MAX_BLOCKS).
 */
#define FILE_MAX (((uint64_t)UINT32_MAX - 1) * EXT4_BLOCK)

static int open_check(const struct ext4 *fs, struct err *err)
{
	return fs->open.path ? 0 : err_set(err, EINVAL, "no file is being written");
}

static void open_done(struct ext4_open *open)
{
	free(open->path);
	open->path = NULL;
	open->runs.n = 0;
	open->at = open->end = 0;
	open->len = 0;
}

/* Give what is gathered its blocks. */
static int flush(struct ext4 *fs, struct err *err)
{
	struct ext4_open *open = &fs->open;
	size_t n_blocks = (open->len + EXT4_BLOCK - 1) / EXT4_BLOCK, done = 0;

	memset(open->buf + open->len, 0, n_blocks * EXT4_BLOCK - open->len);
	while (done < n_blocks) {
		uint64_t first, count;

		ext4_blocks_take(fs, n_blocks - done, &first, &count);
		if (!ext4_full(fs)) {
			int r = ext4_io_write_data(
				fs->fd, first, open->buf + done * EXT4_BLOCK, count);

			if (r < 0)
				return err_sys(err, -r, "%s: writing the image", open->path);
			ext4_runs_add(&open->runs, open->at / EXT4_BLOCK + done, first, count);
		}
		done += count;
	}
	open->at += (uint64_t)n_blocks * EXT4_BLOCK;
	open->len = 0;
	return 0;
}

int ext4_file_write(struct ext4 *fs, uint64_t offset, const void *data, size_t len, struct err *err)
{
	struct ext4_open *open = &fs->open;
	const char *p = data;
	int r = open_check(fs, err);

	if (r < 0)
		return r;
	if (len == 0)
		return 0;
	if (offset < open->end)
		return err_set(err, EINVAL, "%s: data at %llu after data up to %llu", open->path,
			(unsigned long long)offset, (unsigned long long)open->end);
	if (len > FILE_MAX || offset > FILE_MAX - len)
		return err_set(
			err, EFBIG, "%s: more than the 16 TiB that a file can have", open->path);
	if (ext4_full(fs) && fs->short_blocks > EXT4_COUNT_BYTES / EXT4_BLOCK)
		return err_set(err, ENOSPC,
			"%s: the image of %llu bytes is full, and what is still to come is "
			"more than %llu bytes",
			open->path, (unsigned long long)fs->bytes,
			(unsigned long long)EXT4_COUNT_BYTES);
	open->end = offset + len;
	if (offset > open->at + open->len &&
		offset / EXT4_BLOCK != (open->at + open->len) / EXT4_BLOCK) {
		r = flush(fs, err);
		if (r < 0)
			return r;
		open->at = offset - offset % EXT4_BLOCK;
	}
	/* what is left of a gap lies within one block */
	memset(open->buf + open->len, 0, offset - open->at - open->len);
	open->len = offset - open->at;
	while (len) {
		size_t part = EXT4_RUN_BYTES - open->len;

		part = part < len ? part : len;
		memcpy(open->buf + open->len, p, part);
		open->len += part;
		p += part;
		len -= part;
		if (open->len == EXT4_RUN_BYTES) {
			r = flush(fs, err);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int ext4_file_end(struct ext4 *fs, uint64_t size, struct err *err)
{
	struct ext4_open *open = &fs->open;
	int r = open_check(fs, err);

	if (r < 0)
		return r;
	if (size < open->end)
		return err_set(err, EINVAL, "%s: %llu bytes of data in a file of %llu", open->path,
			(unsigned long long)open->end, (unsigned long long)size);
	if (size > FILE_MAX)
		return err_set(err, EFBIG,
			"%s: %llu bytes are more than the 16 TiB that a file can have", open->path,
			(unsigned long long)size);
	r = flush(fs, err);
	if (r < 0)
		return r;
	r = ext4_runs_store(fs, &open->runs, open->ino, open->inode, open->path, err);
	if (r < 0)
		return r;
	open->inode->i_size = (uint32_t)size;
	open->inode->i_size_high = size >> 32;
	r = ext4_inode_write(fs, open->ino, open->inode, open->path, err);
	open_done(open);
	return r;
}
