/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_IMAGE_FORMAT_H
#define PARBAKE_STORE_IMAGE_FORMAT_H

/*
 * What the writer and the reader of images share: numbers of the format (docs/format.md) and
 * XXH64. Private to store/image_*.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "store/image.h"

#define IMAGE_ZSTD_MAGIC 0xFD2FB528u
#define IMAGE_ZSTD_HEAD 5 /* magic and frame header descriptor */
#define IMAGE_ZSTD_HAS_CHECKSUM 0x04 /* in the frame header descriptor */

#define IMAGE_TABLE_MAGIC 0x184D2A5Eu /* skippable frame of the seek table */
#define IMAGE_SEEKABLE_MAGIC 0x8F92EAB1u
#define IMAGE_TABLE_CHECKSUMS 0x80 /* descriptor: entries have checksums; nothing else set */
#define IMAGE_TABLE_HEAD 8
#define IMAGE_TABLE_ENTRY 12
#define IMAGE_TABLE_FOOT 9

#define IMAGE_MAP_MAGIC 0x184D2A57u /* skippable frame of the page map */
#define IMAGE_MAP_INNER "PBKPAGES"
#define IMAGE_MAP_VERSION 1
#define IMAGE_MAP_HEAD 52 /* skippable header and fixed fields */

#define IMAGE_HOLE_MAX (1 * GIB) /* raw bytes of a frame that holds nothing */
#define IMAGE_EMPTY_CHECK 0x51D8E999u /* low half of the XXH64 of nothing */

/* Offsets of the page map's fields, from the beginning of its skippable frame. */
enum image_map_field {
	IMAGE_MAP_AT_SIZE = 4,
	IMAGE_MAP_AT_INNER = 8,
	IMAGE_MAP_AT_VERSION = 16,
	IMAGE_MAP_AT_PAGE = 20,
	IMAGE_MAP_AT_RAW = 24,
	IMAGE_MAP_AT_DATA = 32, /* pages that hold data */
	IMAGE_MAP_AT_TABLE = 40, /* check of the seek table's entries before the map's own */
	IMAGE_MAP_AT_BITS = 44, /* check of the compressed bitmap as stored */
	IMAGE_MAP_AT_CHECK = 48, /* check of bytes 8 … 47 */
};

struct image_entry {
	uint32_t stored, raw, check;
};

static inline void image_put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline void image_put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t image_get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t image_get64(const uint8_t *p)
{
	return image_get32(p) | (uint64_t)image_get32(p + 4) << 32;
}

static inline uint64_t image_pages(uint64_t raw_bytes)
{
	return (raw_bytes + IMAGE_PAGE - 1) / IMAGE_PAGE;
}

static inline bool image_bit(const uint8_t *map, uint64_t page)
{
	return map[page / 8] >> (page % 8) & 1;
}

/* The low 32 bits of XXH64 with seed 0, as zstd's content checksums and seek tables use it. */
uint32_t image_check(const void *data, size_t len);
/* The same of @len zero bytes. */
uint32_t image_check_zeros(uint64_t len);
/* Is all of it zero? */
bool image_is_zero(const void *data, size_t len);

#endif
