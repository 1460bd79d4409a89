/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Part of the trimmed QEMU, in accel/tcg/: translated code that outlives its process.
 *
 * Most of what a restored machine does up to its first answer is to translate code that every one
 * of its siblings has translated before. So the translations of one are written into an image
 * (x-save-translations), which later machines restored from the same snapshot map, privately, at
 * the very address they were made at: the program is not relocatable, the buffer's address is the
 * image's, so whatever translated code points to (helpers, blocks, itself) is where it was.
 *
 * What always holds:
 * - A block is in an image only if the guest's bytes that it was made from are those of the
 *   snapshot: they are compared with the memory file when the image is written; any other block is
 *   invalidated first, which takes it out of all chains. From then on QEMU's own rules hold: the
 *   pages are marked as having code, and a write to them invalidates.
 * - An image is used by the same program, on a processor with the same features, with a buffer of
 *   the same address and size, for a memory block of the same place and size; else it is not used.
 *   Whoever passes the image to the program makes sure that it belongs to the snapshot and is whole.
 * - Nothing is written at attach: blocks are found through a hash table in the image, and a page's
 *   list of blocks is taken from it when that part of the page table is first looked at. So the image's
 *   pages are shared by all machines, until a chain is changed.
 *
 * With more than one virtual processor code is made for parallel execution, by each processor's
 * thread in regions of the buffer that are its own. An image then has all regions that were in use,
 * with holes where nothing was made, and a machine that starts with it makes code in the regions
 * behind them. The image's blocks are locked, chained and invalidated as any others; its index is
 * only read.
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/units.h"
#include "qemu-version.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-misc.h"
#include "cpu.h"
#include "exec/exec-all.h"
#include "exec/helper-proto.h"
#include "exec/ram_addr.h"
#include "exec/ramblock.h"
#include "monitor/monitor.h"
#include "sysemu/runstate.h"
#include "sysemu/tcg.h"
#include "tcg/tcg.h"
#include "tcg/tcg-internal.h"
#include "tb-hash.h"
#include "tb-context.h"
#include "internal.h"
#include "translations_image.h"

#include <cpuid.h>
#include <sys/random.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define MAGIC "parbake-tb 2"
#define PAGE TRANSLATIONS_PAGE
#define TABLE_MAX (1u << 24)
/* calls of helpers reach from here, and a heap has a gigabyte before it */
#define LOWEST ((uintptr_t)0x50000000)
#define LOWEST_SPREAD 256
#define LOWEST_STEP ((uintptr_t)0x200000)

extern char etext[], end[]; /* the linker's */

struct translations translations;
uint32_t translations_fd;

static struct translations_header head;
static const char *tables;
static bool attached;
static uintptr_t buffer;
static size_t buffer_bytes, prologue_bytes;

/* ---- an image's parts ----------------------------------------------------------------- */

static void cpu_features(uint32_t ret[12])
{
	uint32_t max = __get_cpuid_max(0, NULL), low = 0, high = 0;

	memset(ret, 0, 12 * sizeof(*ret));
	__cpuid(1, ret[0], ret[1], ret[2], ret[3]);
	ret[1] = 0; /* which processor of the host it is */
	if (ret[2] & bit_OSXSAVE)
		asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if (max >= 7)
		__cpuid_count(7, 0, ret[4], ret[5], ret[6], ret[7]);
	if (__get_cpuid_max(0x80000000, NULL) >= 0x80000001)
		__cpuid(0x80000001, ret[8], ret[9], ret[10], ret[11]);
	ret[9] = 0; /* likewise */
	ret[4] = low ^ high;
}

/* Places in this program: another build of the same version has others. */
static void program_places(uint64_t ret[3])
{
	ret[0] = (uintptr_t)etext;
	ret[1] = (uintptr_t)end;
	ret[2] = (uintptr_t)helper_lookup_tb_ptr;
}

/* Code for one processor is not code for several that run at once. */
uint32_t translations_processors(void)
{
	return qemu_tcg_mttcg_enabled() ? tcg_max_ctxs : 1;
}

static const uint32_t *table_blocks(void)
{
	return (const uint32_t *)tables;
}

static const struct translations_page *table_pages(const struct translations_header *h)
{
	return (const struct translations_page *)(tables + h->n_blocks * sizeof(uint32_t) +
		(sizeof(struct translations_slot) << h->index_bits));
}

size_t translations_tables_bytes(const struct translations_header *h)
{
	return h->n_blocks * sizeof(uint32_t) +
		(sizeof(struct translations_slot) << h->index_bits) +
		h->n_pages * sizeof(struct translations_page) +
		(h->n_leaves + 1) * sizeof(uint32_t);
}

static TranslationBlock *block_at(uint32_t offset)
{
	return (TranslationBlock *)(translations.base + offset);
}

/* The rest of a buffer is for what a machine translates itself. */
static size_t most_code(size_t buffer_size)
{
	return buffer_size / 4 * 3;
}

static bool place_good(uint64_t base, uint64_t code, size_t size)
{
	return base % PAGE == 0 && base >= LOWEST && base < LOWEST + LOWEST_SPREAD * LOWEST_STEP &&
		code <= most_code(size);
}

static bool hot_good(const struct translations_header *h)
{
	for (size_t i = 0; i < TRANSLATIONS_HOT_MAX; i++)
		if (h->hot[i].from % PAGE || h->hot[i].from > h->hot[i].to ||
			h->hot[i].to > h->code)
			return false;
	return true;
}

static bool head_good(const struct translations_header *h, size_t size)
{
	uint64_t program[3];
	uint32_t cpu[12];
	struct stat st;

	cpu_features(cpu);
	program_places(program);
	return !memcmp(h->magic, MAGIC, sizeof(MAGIC)) &&
		!strncmp(h->version, QEMU_FULL_VERSION, sizeof(h->version)) &&
		!memcmp(h->cpu, cpu, sizeof(cpu)) &&
		!memcmp(h->program, program, sizeof(program)) && h->size == size &&
		place_good(h->base, h->code, size) && h->prologue <= h->code && hot_good(h) &&
		h->processors == translations_processors() && h->code_at % PAGE == 0 &&
		h->tables_at % PAGE == 0 && h->code_at + h->code <= h->tables_at &&
		h->n_blocks <= TABLE_MAX && h->index_bits <= 24 && h->n_pages <= TABLE_MAX &&
		h->n_leaves <= TABLE_MAX && h->tables_at < h->file_bytes &&
		translations_tables_bytes(h) <= h->file_bytes - h->tables_at &&
		fstat((int)translations_fd, &st) == 0 && (uint64_t)st.st_size == h->file_bytes;
}

void translations_describe(struct translations_header *ret)
{
	*ret = (struct translations_header){.magic = MAGIC,
		.version = QEMU_FULL_VERSION,
		.base = buffer,
		.size = buffer_bytes,
		.prologue = prologue_bytes,
		.processors = translations_processors()};
	cpu_features(ret->cpu);
	program_places(ret->program);
}

bool translations_can_keep(const struct translations_header *h)
{
	return place_good(h->base, h->code, h->size);
}

uint32_t translations_count(void)
{
	return translations_used() ? head.n_blocks : 0;
}

TranslationBlock *translations_get(uint32_t i)
{
	return block_at(table_blocks()[i]);
}

/* ---- start ---------------------------------------------------------------------------- */

static void *map_at(uintptr_t at, size_t size, int prot, int flags)
{
	void *map = mmap((void *)at, size, prot, flags | MAP_FIXED_NOREPLACE, -1, 0);

	if (map != MAP_FAILED && map != (void *)at) { /* a kernel that takes it for a hint */
		munmap(map, size);
		map = MAP_FAILED;
	}
	return map;
}

void *translations_map_buffer(size_t size, int prot, int flags)
{
	unsigned char at = 0;
	void *map = MAP_FAILED;

	if (translations_fd &&
		(pread((int)translations_fd, &head, sizeof(head), 0) != sizeof(head) ||
			!head_good(&head, size)))
		translations_fd = 0;
	if (translations_fd)
		map = map_at((uintptr_t)head.base, size, prot, flags);
	if (map == MAP_FAILED) {
		translations_fd = 0;
		if (getrandom(&at, sizeof(at), GRND_NONBLOCK) != sizeof(at))
			at = 0;
		map = map_at(LOWEST + at * LOWEST_STEP, size, prot, flags);
	}
	if (map == MAP_FAILED)
		map = mmap(NULL, size, prot, flags, -1, 0);
	buffer = (uintptr_t)map;
	buffer_bytes = size;
	return map;
}

void translations_attach(TCGContext *s)
{
	void *start = (void *)buffer, *map;
	char was[PAGE];

	prologue_bytes = (uintptr_t)s->code_gen_ptr - buffer;
	if (!translations_fd)
		return;
	if (prologue_bytes != head.prologue || prologue_bytes > sizeof(was) ||
		pread((int)translations_fd, was, prologue_bytes, (off_t)head.code_at) !=
			(ssize_t)prologue_bytes ||
		memcmp(was, start, prologue_bytes))
		return;
	map = mmap(NULL, translations_tables_bytes(&head), PROT_READ, MAP_PRIVATE,
		(int)translations_fd, (off_t)head.tables_at);
	if (map == MAP_FAILED)
		return;
	if (mmap(start, ROUND_UP(head.code, PAGE), PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_FIXED, (int)translations_fd,
		    (off_t)head.code_at) == MAP_FAILED) {
		/* a file system without execution: then the buffer is as it was */
		munmap(map, translations_tables_bytes(&head));
		return;
	}
	for (size_t i = 0; i < TRANSLATIONS_HOT_MAX && head.hot[i].to; i++)
		(void)madvise((char *)start + head.hot[i].from,
			ROUND_UP(head.hot[i].to, PAGE) - head.hot[i].from, MADV_POPULATE_READ);
	(void)madvise(map, translations_tables_bytes(&head), MADV_POPULATE_READ);
	tables = map;
	s->code_gen_ptr = (void *)(buffer + head.code);
	attached = true;
}

RAMBlock *translations_memory_block(void)
{
	return qemu_ram_block_by_name(TRANSLATIONS_MEMORY_ID);
}

/* A page with code is one that is not marked as changed since. */
static void mark_pages(const struct translations_page *pages, uint32_t n)
{
	RCU_READ_LOCK_GUARD();
	DirtyMemoryBlocks *dirty = qatomic_rcu_read(&ram_list.dirty_memory[DIRTY_MEMORY_CODE]);

	for (uint32_t i = 0; i < n; i++)
		clear_bit(pages[i].index % DIRTY_MEMORY_BLOCK_SIZE,
			dirty->blocks[pages[i].index / DIRTY_MEMORY_BLOCK_SIZE]);
}

void translations_ready(void)
{
	RAMBlock *memory = translations_memory_block();

	if (!attached || !memory || memory->offset != head.memory_offset ||
		memory->used_length != head.memory_bytes)
		return;
	translations.index = (const struct translations_slot *)(table_blocks() + head.n_blocks);
	translations.index_mask = (1u << head.index_bits) - 1;
	translations.leaf = (const uint32_t *)(table_pages(&head) + head.n_pages);
	translations.n_leaves = head.n_leaves;
	translations.base = head.base;
	translations.code_end = head.base + head.code;
	mark_pages(table_pages(&head), head.n_pages);
}

bool translations_used(void)
{
	return translations.code_end != 0;
}

void translations_drop(void)
{
	translations = (struct translations){0};
}

/* ---- use ------------------------------------------------------------------------------ */

TranslationBlock *translations_find(
	uint32_t hash, const void *desc, bool (*same)(const void *tb, const void *desc))
{
	if (!translations_used())
		return NULL;
	for (uint32_t i = hash;; i++) {
		const struct translations_slot *slot =
			&translations.index[i & translations.index_mask];

		if (!slot->block)
			return NULL;
		if (slot->hash == hash && same(block_at(slot->block), desc))
			return block_at(slot->block);
	}
}

/* The block whose code holds @pc. */
TranslationBlock *translations_find_code(uintptr_t pc)
{
	const uint32_t *blocks = table_blocks();
	size_t from = 0, to = head.n_blocks;
	TranslationBlock *tb;

	while (to - from > 1) {
		size_t middle = (from + to) / 2;

		if (translations.base + blocks[middle] <= pc)
			from = middle;
		else
			to = middle;
	}
	if (from == to)
		return NULL;
	tb = block_at(blocks[from]);
	return pc - (uintptr_t)tb->tc.ptr < tb->tc.size ? tb : NULL;
}

/* @leaf: 2^10 pages from @first on, empty. */
void translations_fill_leaf(PageDesc *leaf, tb_page_addr_t first)
{
	const struct translations_page *pages = table_pages(&head);

	QEMU_BUILD_BUG_ON(V_L2_BITS != 10);
	if (!translations_has_leaf(first))
		return;
	for (uint32_t i = translations.leaf[first >> 10]; i < translations.leaf[(first >> 10) + 1];
		i++)
		leaf[pages[i].index - first].first_tb = translations.base + pages[i].first;
}
