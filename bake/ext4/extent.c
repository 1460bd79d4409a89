/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks and extents. Blocks are taken in rising order from a cursor, so a file written in one go
 * is one run and the used part of the image stays together; only when the end is reached does the
 * search start over, and find the blocks that replaced entries gave back. When nothing is left the
 * image is "full": from then on nothing is written, requests are only counted, and ext4_finish()
 * can say how large the image should have been.
 *
 * Extent trees are built whole from the sorted runs of a file, bottom up: every block but the last
 * of a level is full. (The format: Documentation/filesystems/ext4/ifork.rst of the kernel.)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"

#define ROOT_ENTRIES 4
#define BLOCK_ENTRIES                                                                              \
	((EXT4_BLOCK - sizeof(struct ext3_extent_header)) / sizeof(struct ext3_extent))

static bool blocks_find(struct ext4 *fs, uint64_t from, uint64_t to, uint64_t want,
	uint64_t *ret_first, uint64_t *ret_count)
{
	blk64_t first, end, last;

	if (from > to || ext2fs_find_first_zero_block_bitmap2(fs->lib->block_map, from, to, &first))
		return false;
	last = want - 1 > to - first ? to : first + want - 1;
	if (ext2fs_find_first_set_block_bitmap2(fs->lib->block_map, first, last, &end))
		end = last + 1;
	*ret_first = first;
	*ret_count = end - first;
	return true;
}

void ext4_blocks_take(struct ext4 *fs, uint64_t want, uint64_t *ret_first, uint64_t *ret_count)
{
	uint64_t last = ext2fs_blocks_count(fs->lib->super) - 1;
	uint64_t low = fs->lib->super->s_first_data_block;

	if (want > UINT32_MAX)
		want = UINT32_MAX;
	if (ext4_full(fs) ||
		(!blocks_find(fs, fs->block_cursor, last, want, ret_first, ret_count) &&
			!blocks_find(fs, low, last, want, ret_first, ret_count))) {
		fs->short_blocks += want;
		*ret_first = 0;
		*ret_count = want;
		return;
	}
	ext2fs_block_alloc_stats_range(fs->lib, *ret_first, *ret_count, +1);
	fs->block_cursor = *ret_first + *ret_count;
}

void ext4_blocks_release(struct ext4 *fs, uint64_t first, uint64_t count)
{
	ext2fs_block_alloc_stats_range(fs->lib, first, count, -1);
	ext4_io_discard(fs->fd, first, count);
}

void ext4_runs_add(struct ext4_runs *runs, uint64_t logical, uint64_t physical, uint64_t count)
{
	struct ext4_run *last = runs->n ? &runs->items[runs->n - 1] : NULL;

	if (last && last->logical + last->count == logical &&
		last->physical + last->count == physical) {
		uint64_t more = EXT4_EXTENT_BLOCKS - last->count;

		more = more < count ? more : count;
		last->count += more;
		logical += more;
		physical += more;
		count -= more;
	}
	while (count) {
		uint32_t part = count < EXT4_EXTENT_BLOCKS ? count : EXT4_EXTENT_BLOCKS;

		if (runs->n == runs->room) {
			runs->room = runs->room ? runs->room * 2 : 16;
			runs->items = reallocarray(runs->items, runs->room, sizeof(*runs->items));
			if (!runs->items)
				abort();
		}
		/* items has room entries, and there is more room than n */
		runs->items[runs->n++] = /* NOLINT(clang-analyzer-core.NullDereference) */
			(struct ext4_run){.physical = physical, .logical = logical, .count = part};
		logical += part;
		physical += part;
		count -= part;
	}
}

/* One node: a header and @n entries made of @runs, which lie in the file (depth 0) or are the
 * blocks of the level below. */
static void node_put(
	void *node, unsigned max, unsigned depth, const struct ext4_run *runs, size_t n)
{
	struct ext3_extent_header *head = node;
	struct ext3_extent *leaf = (struct ext3_extent *)(head + 1);
	struct ext3_extent_idx *idx = (struct ext3_extent_idx *)(head + 1);

	head->eh_magic = htole16(EXT3_EXT_MAGIC);
	head->eh_entries = htole16(n);
	head->eh_max = htole16(max);
	head->eh_depth = htole16(depth);
	for (size_t i = 0; i < n; i++) {
		const struct ext4_run *run = &runs[i];

		if (depth == 0) {
			leaf[i].ee_block = htole32(run->logical);
			leaf[i].ee_len = htole16(run->count);
			leaf[i].ee_start = htole32((uint32_t)run->physical);
			leaf[i].ee_start_hi = htole16(run->physical >> 32);
		} else {
			idx[i].ei_block = htole32(run->logical);
			idx[i].ei_leaf = htole32((uint32_t)run->physical);
			idx[i].ei_leaf_hi = htole16(run->physical >> 32);
		}
	}
}

/* Write one level's nodes; *@level becomes the list of their blocks. */
static int level_store(struct ext4 *fs, struct ext4_run **level, size_t *n, unsigned depth,
	uint32_t ino, const char *path, struct err *err)
{
	size_t nodes = (*n + BLOCK_ENTRIES - 1) / BLOCK_ENTRIES;
	cleanup_free struct ext4_run *above = calloc(nodes, sizeof(*above));
	uint64_t buf[EXT4_BLOCK / sizeof(uint64_t)];

	if (!above)
		return err_sys(err, ENOMEM, "%s", path);
	for (size_t i = 0; i < nodes; i++) {
		const struct ext4_run *from = *level + i * BLOCK_ENTRIES;
		size_t here = *n - i * BLOCK_ENTRIES;
		uint64_t first, count;
		errcode_t rc;

		memset(buf, 0, sizeof(buf));
		node_put(buf, BLOCK_ENTRIES, depth, from,
			here < BLOCK_ENTRIES ? here : BLOCK_ENTRIES);
		ext4_blocks_take(fs, 1, &first, &count);
		above[i] =
			(struct ext4_run){.physical = first, .logical = from->logical, .count = 1};
		if (ext4_full(fs))
			continue;
		rc = ext2fs_extent_block_csum_set(fs->lib, ino, (struct ext3_extent_header *)buf);
		if (!rc)
			rc = io_channel_write_blk64(fs->lib->io, first, 1, buf);
		if (rc)
			return ext4_lib_error(err, rc, "%s: writing its extents", path);
	}
	free(*level);
	*level = steal_ptr(&above);
	*n = nodes;
	return 0;
}

int ext4_runs_store(struct ext4 *fs, const struct ext4_runs *runs, uint32_t ino,
	struct ext2_inode_large *inode, const char *path, struct err *err)
{
	cleanup_free struct ext4_run *level = NULL;
	uint64_t blocks = 0;
	unsigned depth = 0;
	size_t n = runs->n;

	for (size_t i = 0; i < n; i++)
		blocks += runs->items[i].count;
	level = calloc(n ? n : 1, sizeof(*level));
	if (!level)
		return err_sys(err, ENOMEM, "%s", path);
	if (n)
		memcpy(level, runs->items, n * sizeof(*level));
	while (n > ROOT_ENTRIES) {
		int r = level_store(fs, &level, &n, depth, ino, path, err);

		if (r < 0)
			return r;
		blocks += n;
		depth++;
	}
	memset(inode->i_block, 0, sizeof(inode->i_block));
	node_put(inode->i_block, ROOT_ENTRIES, depth, level, n);
	inode->i_flags |= EXT4_EXTENTS_FL;
	ext2fs_iblk_add_blocks(fs->lib, (struct ext2_inode *)inode, blocks);
	return 0;
}
