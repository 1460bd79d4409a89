/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#ifndef PARBAKE_TRANSLATIONS_IMAGE_H
#define PARBAKE_TRANSLATIONS_IMAGE_H

/*
 * Part of the trimmed QEMU, in accel/tcg/: what an image of translations is made of, for
 * translations.c, which uses one, and translations_save.c, which writes one.
 */
#include "translations.h"

#define TRANSLATIONS_MEMORY_ID "mem" /* the memory backend's */
#define TRANSLATIONS_PAGE ((size_t)4096)
#define TRANSLATIONS_HOT_MAX 64

struct translations_slot {
	uint32_t hash, block; /* 0: empty */
};

/* Offsets from the buffer's start. */
struct translations_range {
	uint64_t from, to;
};

struct translations_page {
	uint32_t index, first; /* of its list of blocks, tagged */
};

/* Offsets are in the file; what follows the code lies in the order of the members. */
struct translations_header {
	char magic[16];
	char version[112];
	uint32_t cpu[12];
	uint64_t program[3];
	uint64_t base, size; /* of the buffer */
	uint64_t prologue, code; /* bytes from the base on */
	struct translations_range
		hot[TRANSLATIONS_HOT_MAX]; /* mapped at start; one for each processor's thread */
	uint64_t memory_offset, memory_bytes;
	uint64_t code_at, tables_at, file_bytes;
	uint32_t n_blocks, index_bits, n_pages, n_leaves, processors;
};

/* What the header says of this program, processor and buffer; all else of *@ret is 0. */
void translations_describe(struct translations_header *ret);
/* Can the buffer lie where this one lies, and hold @code bytes of an image? */
bool translations_can_keep(const struct translations_header *h);
/* Code for one processor is not code for several that run at once: how many make code here. */
uint32_t translations_processors(void);
size_t translations_tables_bytes(const struct translations_header *h);
RAMBlock *translations_memory_block(void);
/* The blocks of the image in use, whether they are still valid or not: 0 up to the count. */
uint32_t translations_count(void);
TranslationBlock *translations_get(uint32_t i);

#endif
