/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#ifndef PARBAKE_TRANSLATIONS_H
#define PARBAKE_TRANSLATIONS_H

/* Part of the trimmed QEMU, in accel/tcg/: translations.c says how it works. */
#include "exec/exec-all.h"
#include "tcg/tcg.h"

struct PageDesc;

/* Where an image's code lies and its tables; code_end is 0 where there is none in use. */
extern struct translations {
	uintptr_t base, code_end;
	const struct translations_slot *index; /* by hash, open addressing */
	uint32_t index_mask;
	const uint32_t *leaf; /* n_leaves + 1 positions in the list of pages */
	uint32_t n_leaves;
} translations;

/* A property of the accelerator: the descriptor of an image to start with; 0: none. */
extern uint32_t translations_fd;

/* The buffer for translated code: where its image says, or else low. MAP_FAILED: no room. */
void *translations_map_buffer(size_t size, int prot, int flags);
/* The prologue, up to @s->code_gen_ptr, is made: what follows comes from the image. */
void translations_attach(TCGContext *s);
/* The machine and its memory are set up: use the image where it fits. */
void translations_ready(void);
/* QEMU throws all translations away: stop using the image. */
void translations_drop(void);
/* Is the image in use, because the machine's memory is the one that it was made from? */
bool translations_used(void);

TranslationBlock *translations_find(
	uint32_t hash, const void *desc, bool (*same)(const void *tb, const void *desc));
TranslationBlock *translations_find_code(uintptr_t pc);
void translations_fill_leaf(struct PageDesc *leaf, tb_page_addr_t first);

/* Does @at lie in the image's code? */
static inline bool translations_own(const void *at)
{
	return (uintptr_t)at - translations.base < translations.code_end - translations.base;
}

/* Has the image code in the 2^10 pages around page @index? */
static inline bool translations_has_leaf(tb_page_addr_t index)
{
	size_t i = index >> 10;

	return i < translations.n_leaves && translations.leaf[i] != translations.leaf[i + 1];
}

#endif
