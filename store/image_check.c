/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of image data: XXH64 with seed 0, after its specification (github.com/Cyan4973/xxHash,
 * doc/xxhash_spec.md), and the test for zeros. libzstd has XXH64 inside and does not export it;
 * data frames bring their own sum along (zstd's content checksum), so this one is needed for the
 * tables and for holes, where the input is zeros and no memory is read.
 */
#include <string.h>

#include "store/image_format.h"

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotl(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

static uint64_t mix(uint64_t acc, uint64_t input)
{
	return rotl(acc + input * P2, 31) * P1;
}

static uint64_t merge(const uint64_t acc[4])
{
	uint64_t h = rotl(acc[0], 1) + rotl(acc[1], 7) + rotl(acc[2], 12) + rotl(acc[3], 18);

	for (int i = 0; i < 4; i++)
		h = (h ^ mix(0, acc[i])) * P1 + P4;
	return h;
}

/* The last @len (< 32) bytes and the avalanche. */
static uint64_t finish(uint64_t h, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8)
		h = rotl(h ^ mix(0, image_get64(p)), 27) * P1 + P4;
	if (len >= 4) {
		h = rotl(h ^ image_get32(p) * P1, 23) * P2 + P3;
		p += 4;
		len -= 4;
	}
	for (; len; p++, len--)
		h = rotl(h ^ *p * P5, 11) * P1;
	h = (h ^ h >> 33) * P2;
	h = (h ^ h >> 29) * P3;
	return h ^ h >> 32;
}

static const uint64_t acc_init[4] = {P1 + P2, P2, 0, -P1};

uint32_t image_check(const void *data, size_t len)
{
	uint64_t acc[4], h = P5;
	const uint8_t *p = data;
	size_t left = len;

	memcpy(acc, acc_init, sizeof(acc));
	for (; left >= 32; left -= 32)
		for (int i = 0; i < 4; i++, p += 8)
			acc[i] = mix(acc[i], image_get64(p));
	if (len >= 32)
		h = merge(acc);
	return (uint32_t)finish(h + len, p, left);
}

uint32_t image_check_zeros(uint64_t len)
{
	static const uint8_t zeros[32];
	uint64_t acc[4], h = P5;

	memcpy(acc, acc_init, sizeof(acc));
	for (uint64_t i = 0; i < len / 32; i++)
		for (int j = 0; j < 4; j++)
			acc[j] = mix(acc[j], 0);
	if (len >= 32)
		h = merge(acc);
	return (uint32_t)finish(h + len, zeros, len % 32);
}

bool image_is_zero(const void *data, size_t len)
{
	typedef uint64_t vec __attribute__((vector_size(16), aligned(1), may_alias));
	const uint8_t *p = data;

	/* most pages that are not zero show it in their first bytes */
	for (; len >= 128; p += 128, len -= 128) {
		const vec *v = (const vec *)p;
		vec any = v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];

		if (any[0] | any[1])
			return false;
	}
	for (; len; p++, len--)
		if (*p)
			return false;
	return true;
}
