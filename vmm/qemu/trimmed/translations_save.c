/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Part of the trimmed QEMU, in accel/tcg/: an image of translations is written (translations.c says
 * what it is). The machine is paused, so nothing is being translated and no block is locked. What
 * must not be kept is invalidated first, as a write to its page would do it; what is left is
 * written as it lies in the buffer, and behind it the tables that it is found by.
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-misc.h"
#include "cpu.h"
#include "exec/exec-all.h"
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

#define PAGE TRANSLATIONS_PAGE

/* Addresses of code that later machines need at once. */
static struct translations_range hot[TRANSLATIONS_HOT_MAX];

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
	if (w->page_at != page) {
		w->page_at = UINT64_MAX; /* half of a page is none */
		if (pread(w->memory->fd, w->page, sizeof(w->page), (off_t)page) != sizeof(w->page))
			return false;
		w->page_at = page;
	}
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
	const struct translations_page *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

/* All that may be kept; the others are no more. */
static void choose_blocks(struct writer *w)
{
	g_autoptr(GPtrArray) all = w->blocks;

	for (uint32_t i = 0; i < translations_count(); i++)
		collect(NULL, translations_get(i), w);
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

static void make_index(
	struct writer *w, struct translations_header *h, struct translations_slot *index)
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
	struct translations_page p = {.index = (uint32_t)(addr >> TARGET_PAGE_BITS)};
	PageDesc *pd = page_find(p.index);

	if (!pd || !pd->first_tb)
		return;
	p.first = (uint32_t)(pd->first_tb - w->base);
	g_array_append_val(pages, p);
}

/* Each page with code once, in order. */
static GArray *make_pages(struct writer *w)
{
	GArray *pages = g_array_new(FALSE, FALSE, sizeof(struct translations_page));
	struct translations_page *p;
	guint n = 0;

	for (guint i = 0; i < w->blocks->len; i++) {
		const TranslationBlock *tb = w->blocks->pdata[i];

		add_page(w, pages, tb_page_addr0(tb));
		if (tb_page_addr1(tb) != -1)
			add_page(w, pages, tb_page_addr1(tb));
	}
	p = (struct translations_page *)pages->data;
	qsort(p, pages->len, sizeof(*p), compare_pages);
	for (guint i = 0; i < pages->len; i++)
		if (n == 0 || p[n - 1].index != p[i].index)
			p[n++] = p[i];
	g_array_set_size(pages, n);
	return pages;
}

static void make_leaves(
	const struct translations_header *h, const struct translations_page *pages, uint32_t *leaf)
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

/* The code, with holes where none was made; guard pages between regions cannot be read. */
static bool put_code(
	const struct writer *w, int fd, const struct translations_header *h, Error **errp)
{
	size_t stride = tcg_region_stride();

	for (size_t at = 0; at < h->code; at += PAGE) {
		const char *page = (const char *)w->base + at;

		if ((translations_processors() > 1 && (at + PAGE) % stride == 0) ||
			buffer_is_zero(page, PAGE))
			continue;
		if (!put(fd, page, PAGE, h->code_at + at, errp))
			return false;
	}
	return true;
}

static void write_image(struct writer *w, int fd, struct translations_header *h, Error **errp)
{
	g_autoptr(GArray) pages = make_pages(w);
	g_autofree char *made = NULL;
	struct translations_page *to;
	uint32_t *blocks;

	h->n_blocks = w->blocks->len;
	for (h->index_bits = 10; 1u << h->index_bits < 2 * h->n_blocks;)
		h->index_bits++;
	h->n_pages = pages->len;
	if (h->n_pages)
		h->n_leaves =
			(g_array_index(pages, struct translations_page, h->n_pages - 1).index >>
				10) +
			1;
	h->code_at = PAGE;
	h->tables_at = h->code_at + ROUND_UP(h->code, PAGE);
	h->file_bytes = h->tables_at + translations_tables_bytes(h);
	made = g_malloc0(translations_tables_bytes(h));
	blocks = (uint32_t *)made;
	for (guint i = 0; i < h->n_blocks; i++)
		blocks[i] = (uint32_t)((uintptr_t)w->blocks->pdata[i] - w->base);
	make_index(w, h, (struct translations_slot *)(blocks + h->n_blocks));
	to = (struct translations_page *)(made + h->n_blocks * sizeof(uint32_t) +
		(sizeof(struct translations_slot) << h->index_bits));
	memcpy(to, pages->data, h->n_pages * sizeof(*to));
	make_leaves(h, to, (uint32_t *)(to + h->n_pages));
	if (put(fd, h, sizeof(*h), 0, errp) && put_code(w, fd, h, errp))
		put(fd, made, translations_tables_bytes(h), h->tables_at, errp);
}

/* What each thread has made by now is what later machines need at once. */
static void mark_hot(void)
{
	unsigned n = MIN(qatomic_read(&tcg_cur_ctxs), TRANSLATIONS_HOT_MAX);

	for (unsigned i = 0; i < n; i++) {
		const TCGContext *s = qatomic_read(&tcg_ctxs[i]);

		hot[i] = (struct translations_range){
			.from = ROUND_DOWN((uintptr_t)s->code_gen_buffer, PAGE),
			.to = (uintptr_t)qatomic_read(&s->code_gen_ptr)};
	}
}

static void put_hot(struct translations_header *h)
{
	for (size_t i = 0, n = 0; i < TRANSLATIONS_HOT_MAX; i++)
		if (hot[i].from >= h->base && hot[i].to <= h->base + h->code)
			h->hot[n++] = (struct translations_range){
				.from = hot[i].from - h->base, .to = hot[i].to - h->base};
}

TranslationsInfo *qmp_x_query_translations(Error **errp)
{
	TranslationsInfo *info;

	if (!tcg_enabled()) {
		error_setg(errp, "nothing is translated");
		return NULL;
	}
	info = g_new0(TranslationsInfo, 1);
	info->bytes = tcg_code_size();
	info->blocks = tcg_nb_tbs();
	return info;
}

void qmp_x_save_translations(bool has_fdname, const char *fdname, Error **errp)
{
	struct writer w = {.memory = translations_memory_block(), .page_at = UINT64_MAX};
	struct translations_header h;
	int fd;

	if (!has_fdname) {
		if (tcg_enabled())
			mark_hot();
		return;
	}
	fd = monitor_get_fd(monitor_cur(), fdname, errp);
	if (fd < 0)
		return;
	if (!tcg_enabled() || runstate_is_running() || !w.memory || w.memory->fd < 0) {
		error_setg(
			errp, "translations can be saved of a paused machine with a memory file");
		close(fd);
		return;
	}
	translations_describe(&h);
	w.base = h.base;
	h.code = tcg_region_span();
	put_hot(&h);
	h.memory_offset = w.memory->offset;
	h.memory_bytes = w.memory->used_length;
	w.blocks = g_ptr_array_new();
	choose_blocks(&w);
	if (!translations_can_keep(&h))
		error_setg(errp, "the translations are too many, or not where they can be kept");
	else
		write_image(&w, fd, &h, errp);
	g_ptr_array_free(w.blocks, TRUE);
	close(fd);
}
