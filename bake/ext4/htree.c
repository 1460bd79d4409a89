/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a large directory: its entries sorted by hash (half MD4 with the file system's
 * seed), packed into leaves that keep a fifth free for names to come, and over them one or two
 * levels of (hash, block) pairs. The index blocks look like directory entries that are not in
 * use, so that a kernel that knows nothing of indexes reads the directory all the same. Where
 * names of one hash go on in the next leaf, that leaf's hash has its lowest bit set.
 *
 *     block 0          root: "." and "..", a header, up to 507 pairs
 *     blocks 1 … n     index nodes (only where one level is not enough), up to 510 pairs each
 *     then             the leaves, in order of hash
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"

#define TAIL sizeof(struct ext2_dir_entry_tail)
#define LEAF_FILL ((EXT4_BLOCK - TAIL) * 4 / 5)
#define ROOT_AT 32 /* of the first pair in the root, and in a node: */
#define NODE_AT 8
#define PAIR sizeof(struct ext2_dx_entry)
#define ROOT_LIMIT ((EXT4_BLOCK - ROOT_AT - 8) / PAIR) /* 8: the checksum's tail */
#define NODE_LIMIT ((EXT4_BLOCK - NODE_AT - 8) / PAIR)
/* The largest hash is how the kernel's readdir says "end": no name may have it. */
#define HASH_END 0xfffffffeU

struct hashed {
	uint32_t hash, minor;
	const struct ext4_entry *entry;
};

/* A pair of the index: names from @hash on are in @block. */
struct pair {
	uint32_t hash, block;
};

static int by_hash(const void *a, const void *b)
{
	const struct hashed *x = a, *y = b;
	int r;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	if (x->minor != y->minor)
		return x->minor < y->minor ? -1 : 1;
	r = memcmp(x->entry->name, y->entry->name,
		x->entry->len < y->entry->len ? x->entry->len : y->entry->len);
	return r ? r : (int)x->entry->len - (int)y->entry->len;
}

static struct hashed *hash_all(struct ext4 *fs, const struct ext4_dir *dir)
{
	struct hashed *all = calloc(dir->n_entries, sizeof(*all));
	const struct ext4_entry *entry;
	size_t n = 0;

	if (!all)
		abort();
	TAILQ_FOREACH(entry, &dir->entries, link) {
		struct hashed *h = &all[n++];

		if (ext2fs_dirhash2(fs->lib->super->s_def_hash_version, entry->name, entry->len,
			    NULL, 0, fs->lib->super->s_hash_seed, &h->hash, &h->minor))
			abort(); /* only an unknown hash version fails */
		if (h->hash == HASH_END)
			h->hash -= 2;
		h->entry = entry;
	}
	qsort(all, n, sizeof(*all), by_hash);
	return all;
}

/* Cut the sorted names into leaves: the pairs' blocks are counted from 0. Returns how many. */
static size_t leaves_plan(const struct hashed *all, size_t n, struct pair *ret, size_t *ret_first)
{
	size_t n_leaves = 0, used = 0;

	for (size_t i = 0; i < n; i++) {
		size_t size = ext4_dirent_size(all[i].entry->len);

		if (n_leaves == 0 || used + size > LEAF_FILL) {
			bool goes_on = i > 0 && all[i].hash == all[i - 1].hash;

			ret[n_leaves] = (struct pair){all[i].hash | goes_on, n_leaves};
			ret_first[n_leaves++] = i;
			used = 0;
		}
		used += size;
	}
	return n_leaves;
}

static void leaf_put(char *block, const struct hashed *from, size_t n)
{
	size_t at = 0, last = 0;

	for (size_t i = 0; i < n; i++) {
		const struct ext4_entry *e = from[i].entry;

		last = at;
		at = ext4_dirent_put(block, at, e->ino, e->type, e->name, e->len);
	}
	ext4_dirent_close(block, last);
}

/* @n pairs at @at of @block; the first one's hash gives way to limit and count. */
static void pairs_put(char *block, size_t at, size_t limit, const struct pair *pairs, size_t n,
	uint32_t block_add)
{
	struct ext2_dx_entry *to = (struct ext2_dx_entry *)(block + at);
	struct ext2_dx_countlimit *head = (struct ext2_dx_countlimit *)to;

	for (size_t i = 0; i < n; i++) {
		to[i].hash = htole32(pairs[i].hash);
		to[i].block = htole32(pairs[i].block + block_add);
	}
	head->limit = htole16(limit);
	head->count = htole16(n);
}

static void root_put(struct ext4 *fs, const struct ext4_dir *dir, char *block, unsigned levels)
{
	struct ext2_dx_root_info *info = (struct ext2_dx_root_info *)(block + 24);
	struct ext2_dir_entry_2 *dotdot;

	ext4_dirent_put(block, 0, dir->ino, EXT2_FT_DIR, ".", 1);
	ext4_dirent_put(block, 12, dir->parent->ino, EXT2_FT_DIR, "..", 2);
	dotdot = (struct ext2_dir_entry_2 *)(block + 12);
	dotdot->rec_len = htole16(EXT4_BLOCK - 12);
	info->hash_version = fs->lib->super->s_def_hash_version;
	info->info_length = sizeof(*info);
	info->indirect_levels = levels;
}

static void index_put(struct ext4 *fs, const struct ext4_dir *dir, char *buf,
	const struct pair *leaves, size_t n_leaves, size_t n_nodes)
{
	struct pair above[ROOT_LIMIT];

	root_put(fs, dir, buf, n_nodes ? 1 : 0);
	if (!n_nodes) {
		pairs_put(buf, ROOT_AT, ROOT_LIMIT, leaves, n_leaves, 1);
		return;
	}
	for (size_t i = 0; i < n_nodes; i++) {
		const struct pair *from = leaves + i * NODE_LIMIT;
		size_t here = n_leaves - i * NODE_LIMIT;
		char *block = buf + (1 + i) * EXT4_BLOCK;

		/* an entry that is not in use, as long as the block */
		((struct ext2_dir_entry_2 *)block)->rec_len = htole16(EXT4_BLOCK);
		pairs_put(block, NODE_AT, NODE_LIMIT, from, here < NODE_LIMIT ? here : NODE_LIMIT,
			1 + n_nodes);
		above[i] = (struct pair){from->hash, i};
	}
	pairs_put(buf, ROOT_AT, ROOT_LIMIT, above, n_nodes, 1);
}

int ext4_htree_build(struct ext4 *fs, const struct ext4_dir *dir, char **ret, size_t *ret_blocks,
	struct err *err)
{
	cleanup_free struct hashed *all = hash_all(fs, dir);
	cleanup_free struct pair *leaves = calloc(dir->n_entries, sizeof(*leaves));
	cleanup_free size_t *first = calloc(dir->n_entries + 1, sizeof(*first));
	size_t n_leaves, n_nodes, n_blocks;
	char *buf;

	if (!leaves || !first)
		abort();
	n_leaves = leaves_plan(all, dir->n_entries, leaves, first);
	first[n_leaves] = dir->n_entries;
	n_nodes = n_leaves <= ROOT_LIMIT ? 0 : (n_leaves + NODE_LIMIT - 1) / NODE_LIMIT;
	if (n_nodes > ROOT_LIMIT)
		return err_set(err, EFBIG, "%zu names are more than a directory's index holds",
			dir->n_entries);
	n_blocks = 1 + n_nodes + n_leaves;
	buf = calloc(n_blocks, EXT4_BLOCK);
	if (!buf)
		return err_sys(err, ENOMEM, "the directory's blocks");
	index_put(fs, dir, buf, leaves, n_leaves, n_nodes);
	for (size_t i = 0; i < n_leaves; i++)
		leaf_put(buf + (1 + n_nodes + i) * EXT4_BLOCK, all + first[i],
			first[i + 1] - first[i]);
	*ret = buf;
	*ret_blocks = n_blocks;
	return 0;
}
