/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How libext2fs reads and writes the image: pread and pwrite on the caller's descriptor, no cache
 * of our own (the page cache is one) and no path, so that it works on an unnamed file. What
 * always holds: a block that is free, or that was never written, is a hole and reads as zeros; so
 * blocks of zeros need not be written, and inode tables need no initialising.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"
#include "common/file.h"

static bool all_zero(const char *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

void ext4_io_discard(int fd, uint64_t block, uint64_t n_blocks)
{
	static const char zeros[EXT4_BLOCK];

	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block * EXT4_BLOCK,
		    n_blocks * EXT4_BLOCK) == 0)
		return;
	/* a file system without holes: zeros do as well, and a write that fails here fails again
	 * when the block is next used */
	for (uint64_t i = 0; i < n_blocks; i++)
		(void)file_pwrite_full(fd, zeros, sizeof(zeros), (block + i) * EXT4_BLOCK);
}

int ext4_io_write_data(int fd, uint64_t block, const void *data, size_t n_blocks)
{
	const char *p = data;
	size_t i = 0;

	while (i < n_blocks) {
		size_t from;
		int r;

		if (all_zero(p + i * EXT4_BLOCK, EXT4_BLOCK)) {
			i++;
			continue;
		}
		from = i++;
		while (i < n_blocks && !all_zero(p + i * EXT4_BLOCK, EXT4_BLOCK))
			i++;
		r = file_pwrite_full(fd, p + from * EXT4_BLOCK, (i - from) * EXT4_BLOCK,
			(block + from) * EXT4_BLOCK);
		if (r < 0)
			return r;
	}
	return 0;
}

static int io_fd(io_channel channel)
{
	return (int)(intptr_t)channel->private_data;
}

static errcode_t io_open(const char *name, int flags, io_channel *ret)
{
	io_channel channel = calloc(1, sizeof(*channel));

	(void)flags;
	if (!channel)
		return ENOMEM;
	channel->name = strdup(name);
	if (!channel->name) {
		free(channel);
		return ENOMEM;
	}
	channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	channel->manager = &ext4_io_manager;
	channel->block_size = 1024;
	channel->refcount = 1;
	channel->private_data = (void *)(intptr_t)atoi(name);
	*ret = channel;
	return 0;
}

static errcode_t io_close(io_channel channel)
{
	if (--channel->refcount > 0)
		return 0;
	free(channel->name);
	free(channel);
	return 0;
}

static errcode_t io_set_blksize(io_channel channel, int size)
{
	channel->block_size = size;
	return 0;
}

/* A negative count is one of bytes: libext2fs's convention for the superblock. */
static size_t io_bytes(io_channel channel, int count)
{
	return count < 0 ? (size_t)-count : (size_t)count * channel->block_size;
}

static errcode_t io_read64(io_channel channel, unsigned long long block, int count, void *data)
{
	int r = file_pread_full(
		io_fd(channel), data, io_bytes(channel, count), block * channel->block_size);

	return r < 0 ? (r == -ENODATA ? EXT2_ET_SHORT_READ : -r) : 0;
}

static errcode_t io_write64(
	io_channel channel, unsigned long long block, int count, const void *data)
{
	size_t len = io_bytes(channel, count);
	int r;

	if (channel->block_size == EXT4_BLOCK && len % EXT4_BLOCK == 0 && all_zero(data, len)) {
		ext4_io_discard(io_fd(channel), block, len / EXT4_BLOCK);
		return 0;
	}
	r = file_pwrite_full(io_fd(channel), data, len, block * channel->block_size);
	return r < 0 ? -r : 0;
}

static errcode_t io_read(io_channel channel, unsigned long block, int count, void *data)
{
	return io_read64(channel, block, count, data);
}

static errcode_t io_write(io_channel channel, unsigned long block, int count, const void *data)
{
	return io_write64(channel, block, count, data);
}

static errcode_t io_flush(io_channel channel)
{
	(void)channel;
	return 0;
}

static errcode_t io_discard(io_channel channel, unsigned long long block, unsigned long long count)
{
	if (channel->block_size != EXT4_BLOCK)
		return EXT2_ET_UNIMPLEMENTED;
	ext4_io_discard(io_fd(channel), block, count);
	return 0;
}

struct struct_io_manager ext4_io_manager = {
	.magic = EXT2_ET_MAGIC_IO_MANAGER,
	.name = "parbake descriptor",
	.open = io_open,
	.close = io_close,
	.set_blksize = io_set_blksize,
	.read_blk = io_read,
	.write_blk = io_write,
	.flush = io_flush,
	.read_blk64 = io_read64,
	.write_blk64 = io_write64,
	.discard = io_discard,
	.zeroout = io_discard,
};
