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
 * One virtual processor alone: with more, code is made for parallel execution in several regions.
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
#include "translations.h"

#include <cpuid.h>
#include <sys/random.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define MAGIC "parbake-tb 1"
#define MEMORY_ID "mem" /* the memory backend's */
#define PAGE ((size_t)4096)
#define TABLE_MAX (1u << 24)
/* calls of helpers reach from here, and a heap has a gigabyte before it */
#define LOWEST ((uintptr_t)0x50000000)
#define LOWEST_SPREAD 256
#define LOWEST_STEP ((uintptr_t)0x200000)

struct translations_slot {
	uint32_t hash, block; /* 0: empty */
};

struct page {
	uint32_t index, first; /* of its list of blocks, tagged */
};

/* Offsets are in the file; what follows the code lies in the order of the members. */
struct header {
	char magic[16];
	char version[112];
	uint32_t cpu[12];
	uint64_t program[3];
	uint64_t base, size; /* of the buffer */
	uint64_t prologue, hot, code; /* bytes from the base on; hot: mapped at start, for all is */
	uint64_t memory_offset, memory_bytes;
	uint64_t code_at, tables_at, file_bytes;
	uint32_t n_blocks, index_bits, n_pages, n_leaves;
};

extern char etext[], end[]; /* the linker's */

struct translations translations;
uint32_t translations_fd;

static struct header head;
static const char *tables;
static bool attached;
static uintptr_t buffer;
static size_t buffer_bytes, prologue_bytes, hot_bytes;

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

static const uint32_t *table_blocks(void)
{
	return (const uint32_t *)tables;
}

static const struct page *table_pages(const struct header *h)
{
	return (const struct page *)(tables + h->n_blocks * sizeof(uint32_t) +
		(sizeof(struct translations_slot) << h->index_bits));
}

static size_t tables_bytes(const struct header *h)
{
	return h->n_blocks * sizeof(uint32_t) +
		(sizeof(struct translations_slot) << h->index_bits) +
		h->n_pages * sizeof(struct page) + (h->n_leaves + 1) * sizeof(uint32_t);
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

static bool head_good(const struct header *h, size_t size)
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
		h->base % PAGE == 0 && h->base >= LOWEST &&
		h->base < LOWEST + LOWEST_SPREAD * LOWEST_STEP && h->prologue <= h->hot &&
		h->hot <= h->code && h->code <= most_code(size) && h->code_at % PAGE == 0 &&
		h->tables_at % PAGE == 0 && h->code_at + h->code <= h->tables_at &&
		h->n_blocks <= TABLE_MAX && h->index_bits <= 24 && h->n_pages <= TABLE_MAX &&
		h->n_leaves <= TABLE_MAX && h->tables_at < h->file_bytes &&
		tables_bytes(h) <= h->file_bytes - h->tables_at &&
		fstat((int)translations_fd, &st) == 0 && (uint64_t)st.st_size == h->file_bytes;
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
	map = mmap(NULL, tables_bytes(&head), PROT_READ, MAP_PRIVATE, (int)translations_fd,
		(off_t)head.tables_at);
	if (map == MAP_FAILED)
		return;
	if (mmap(start, ROUND_UP(head.code, PAGE), PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_FIXED, (int)translations_fd,
		    (off_t)head.code_at) == MAP_FAILED) {
		/* a file system without execution: then the buffer is as it was */
		munmap(map, tables_bytes(&head));
		return;
	}
	(void)madvise(start, ROUND_UP(head.hot, PAGE), MADV_POPULATE_READ);
	(void)madvise(map, tables_bytes(&head), MADV_POPULATE_READ);
	tables = map;
	s->code_gen_ptr = (void *)(buffer + head.code);
	attached = true;
}

static RAMBlock *memory_block(void)
{
	return qemu_ram_block_by_name(MEMORY_ID);
}

/* A page with code is one that is not marked as changed since. */
static void mark_pages(const struct page *pages, uint32_t n)
{
	RCU_READ_LOCK_GUARD();
	DirtyMemoryBlocks *dirty = qatomic_rcu_read(&ram_list.dirty_memory[DIRTY_MEMORY_CODE]);

	for (uint32_t i = 0; i < n; i++)
		clear_bit(pages[i].index % DIRTY_MEMORY_BLOCK_SIZE,
			dirty->blocks[pages[i].index / DIRTY_MEMORY_BLOCK_SIZE]);
}

void translations_ready(void)
{
	RAMBlock *memory = memory_block();

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
	const struct page *pages = table_pages(&head);

	QEMU_BUILD_BUG_ON(V_L2_BITS != 10);
	if (!translations_has_leaf(first))
		return;
	for (uint32_t i = translations.leaf[first >> 10]; i < translations.leaf[(first >> 10) + 1];
		i++)
		leaf[pages[i].index - first].first_tb = translations.base + pages[i].first;
}

/* ---- writing -------------------------------------------------------------------------- */

struct writer {
	GPtrArray *blocks;
	RAMBlock *memory;
	uint8_t page[4096]; /* of the memory file … */
	uint64_t page_at; /* … at this offset */
	uintptr_t base;
};

static gboolean collect(gpointer key, gpointer value, gpointer user)
{
	struct writer *w = user;

	if (!(tb_cflags(value) & CF_INVALID))
		g_ptr_array_add(w->blocks, value);
	return FALSE;
}

/* Are @len bytes of guest memory what the snapshot has there? Within a page. */
static bool same_bytes(struct writer *w, tb_page_addr_t addr, size_t len)
{
	uint64_t at = addr - w->memory->offset, page = at & ~(uint64_t)4095;

	if (addr < w->memory->offset || at + len > w->memory->used_length)
		return false;
	if (w->page_at != page &&
		pread(w->memory->fd, w->page, sizeof(w->page), (off_t)page) != sizeof(w->page))
		return false;
	w->page_at = page;
	return !memcmp(w->memory->host + at, w->page + (at - page), len);
}

static bool block_good(struct writer *w, const TranslationBlock *tb)
{
	tb_page_addr_t first = tb_page_addr0(tb), second = tb_page_addr1(tb);
	size_t room = 4096 - (first & 4095), len = MIN(tb->size, room);

	return same_bytes(w, first, len) &&
		(tb->size == len || (second != -1 && same_bytes(w, second, tb->size - len)));
}

static int compare_blocks(const void *a, const void *b)
{
	uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

	return x < y ? -1 : x > y;
}

static int compare_pages(const void *a, const void *b)
{
	const struct page *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

/* All that may be kept; the others are no more. */
static void choose_blocks(struct writer *w)
{
	g_autoptr(GPtrArray) all = w->blocks;

	if (translations_used())
		for (uint32_t i = 0; i < head.n_blocks; i++)
			collect(NULL, block_at(table_blocks()[i]), w);
	tcg_tb_foreach(collect, w);
	w->blocks = g_ptr_array_new();
	for (guint i = 0; i < all->len; i++) {
		if (block_good(w, all->pdata[i]))
			g_ptr_array_add(w->blocks, all->pdata[i]);
		else
			tb_phys_invalidate(all->pdata[i], -1);
	}
	qsort(w->blocks->pdata, w->blocks->len, sizeof(gpointer), compare_blocks);
}

static void make_index(struct writer *w, struct header *h, struct translations_slot *index)
{
	for (guint i = 0; i < w->blocks->len; i++) {
		TranslationBlock *tb = w->blocks->pdata[i];
		uint32_t hash = tb_hash_func(tb_page_addr0(tb), tb_pc(tb), tb->flags, tb_cflags(tb),
			tb->trace_vcpu_dstate);
		uint32_t at = hash, mask = (1u << h->index_bits) - 1;

		while (index[at & mask].block)
			at++;
		index[at & mask] = (struct translations_slot){
			.hash = hash, .block = (uint32_t)((uintptr_t)tb - w->base)};
	}
}

static void add_page(struct writer *w, GArray *pages, tb_page_addr_t addr)
{
	struct page p = {.index = (uint32_t)(addr >> TARGET_PAGE_BITS)};
	PageDesc *pd = page_find(p.index);

	if (!pd || !pd->first_tb)
		return;
	p.first = (uint32_t)(pd->first_tb - w->base);
	g_array_append_val(pages, p);
}

/* Each page with code once, in order. */
static GArray *make_pages(struct writer *w)
{
	GArray *pages = g_array_new(FALSE, FALSE, sizeof(struct page));
	struct page *p;
	guint n = 0;

	for (guint i = 0; i < w->blocks->len; i++) {
		const TranslationBlock *tb = w->blocks->pdata[i];

		add_page(w, pages, tb_page_addr0(tb));
		if (tb_page_addr1(tb) != -1)
			add_page(w, pages, tb_page_addr1(tb));
	}
	p = (struct page *)pages->data;
	qsort(p, pages->len, sizeof(*p), compare_pages);
	for (guint i = 0; i < pages->len; i++)
		if (n == 0 || p[n - 1].index != p[i].index)
			p[n++] = p[i];
	g_array_set_size(pages, n);
	return pages;
}

static void make_leaves(const struct header *h, const struct page *pages, uint32_t *leaf)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i <= h->n_leaves; i++) {
		while (at < h->n_pages && pages[at].index >> 10 < i)
			at++;
		leaf[i] = at;
	}
}

static bool put(int fd, const void *bytes, size_t len, uint64_t at, Error **errp)
{
	const char *from = bytes;

	while (len > 0) {
		ssize_t n = pwrite(fd, from, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			error_setg_errno(errp, n < 0 ? errno : EIO, "write translations");
			return false;
		}
		from += n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return true;
}

static void write_image(struct writer *w, int fd, struct header *h, Error **errp)
{
	g_autoptr(GArray) pages = make_pages(w);
	g_autofree char *made = NULL;
	struct page *to;
	uint32_t *blocks;

	h->n_blocks = w->blocks->len;
	for (h->index_bits = 10; 1u << h->index_bits < 2 * h->n_blocks;)
		h->index_bits++;
	h->n_pages = pages->len;
	if (h->n_pages)
		h->n_leaves = (g_array_index(pages, struct page, h->n_pages - 1).index >> 10) + 1;
	h->code_at = PAGE;
	h->tables_at = h->code_at + ROUND_UP(h->code, PAGE);
	h->file_bytes = h->tables_at + tables_bytes(h);
	made = g_malloc0(tables_bytes(h));
	blocks = (uint32_t *)made;
	for (guint i = 0; i < h->n_blocks; i++)
		blocks[i] = (uint32_t)((uintptr_t)w->blocks->pdata[i] - w->base);
	make_index(w, h, (struct translations_slot *)(blocks + h->n_blocks));
	to = (struct page *)(made + h->n_blocks * sizeof(uint32_t) +
		(sizeof(struct translations_slot) << h->index_bits));
	memcpy(to, pages->data, h->n_pages * sizeof(*to));
	make_leaves(h, to, (uint32_t *)(to + h->n_pages));
	if (put(fd, h, sizeof(*h), 0, errp) && put(fd, (void *)w->base, h->code, h->code_at, errp))
		put(fd, made, tables_bytes(h), h->tables_at, errp);
}

static size_t code_bytes(void)
{
	return (uintptr_t)qatomic_read(&tcg_ctxs[0]->code_gen_ptr) - buffer;
}

void qmp_x_save_translations(bool has_fdname, const char *fdname, Error **errp)
{
	struct writer w = {.memory = memory_block(), .page_at = UINT64_MAX};
	struct header h = {.magic = MAGIC, .version = QEMU_FULL_VERSION};
	int fd;

	if (!has_fdname) {
		if (tcg_enabled() && tcg_max_ctxs == 1)
			hot_bytes = code_bytes();
		return;
	}
	fd = monitor_get_fd(monitor_cur(), fdname, errp);
	if (fd < 0)
		return;
	if (!tcg_enabled() || tcg_max_ctxs != 1 || runstate_is_running() || !w.memory ||
		w.memory->fd < 0) {
		error_setg(errp,
			"translations can be saved of a paused machine with one processor and a "
			"memory file");
		close(fd);
		return;
	}
	h.base = w.base = buffer;
	h.size = buffer_bytes;
	h.prologue = prologue_bytes;
	h.code = code_bytes();
	h.hot = MIN(MAX(hot_bytes, h.prologue), h.code);
	h.memory_offset = w.memory->offset;
	h.memory_bytes = w.memory->used_length;
	cpu_features(h.cpu);
	program_places(h.program);
	w.blocks = g_ptr_array_new();
	choose_blocks(&w);
	if (h.base < LOWEST || h.base >= LOWEST + LOWEST_SPREAD * LOWEST_STEP ||
		h.code > most_code(h.size))
		error_setg(errp, "the translations are too many, or not where they can be kept");
	else
		write_image(&w, fd, &h, errp);
	g_ptr_array_free(w.blocks, TRUE);
	close(fd);
}
