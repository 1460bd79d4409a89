/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a state record; save.c has its content. */
#include "vmm/kvm/program/record.h"

#include <string.h>

static size_t padded(uint64_t bytes)
{
	return (size_t)((bytes + 7) & ~7ull);
}

/* Words are mixed in one after the other, so that a bit anywhere changes half of the result. Not against forgery. */
static uint64_t digest(const uint8_t *buf, size_t len)
{
	uint64_t h = 0x9ddfea08eb382d69ull ^ len, word;

	for (size_t at = 0; at + sizeof(word) <= len; at += sizeof(word)) {
		memcpy(&word, buf + at, sizeof(word));
		if (at == offsetof(struct record_head, digest))
			word = 0;
		h = (h ^ word) * 0xc2b2ae3d27d4eb4full;
		h ^= h >> 29;
	}
	return h * 0x9e3779b185ebca87ull ^ h >> 32;
}

void record_begin(struct record *r, uint8_t *buf)
{
	*r = (struct record){.buf = buf, .len = sizeof(struct record_head)};
	memset(buf, 0, sizeof(struct record_head));
}

static struct record_head *head_of(const struct record *r)
{
	return (struct record_head *)(void *)r->buf;
}

void *record_add(struct record *r, enum record_type type, uint32_t index, size_t bytes)
{
	struct record_section *s = (struct record_section *)(void *)(r->buf + r->len);
	size_t room = sizeof(*s) + padded(bytes);

	if (room > RECORD_MAX - r->len || head_of(r)->sections == RECORD_SECTIONS_MAX) {
		r->full = true;
		r->len = sizeof(struct record_head);
		s = (struct record_section *)(void *)(r->buf + r->len);
	}
	memset(s, 0, room);
	*s = (struct record_section){.type = type, .index = index, .bytes = bytes};
	r->len += room;
	head_of(r)->sections++;
	return s + 1;
}

void record_cut(struct record *r, size_t bytes)
{
	struct record_section *s = NULL;
	size_t at = sizeof(struct record_head);

	while (at < r->len) {
		s = (struct record_section *)(void *)(r->buf + at);
		at += sizeof(*s) + padded(s->bytes);
	}
	if (!s || r->full || bytes >= s->bytes)
		return;
	r->len -= padded(s->bytes) - padded(bytes);
	s->bytes = bytes;
}

int record_end(
	struct record *r, uint64_t memory_bytes, uint32_t vcpus, uint32_t tsc_khz, struct err *err)
{
	struct record_head *h = head_of(r);

	if (r->full)
		return err_set(err, EFBIG, "the state record has no room for all of the state");
	memcpy(h->magic, RECORD_MAGIC, sizeof(h->magic));
	h->version = RECORD_VERSION;
	h->bytes = r->len;
	h->memory_bytes = memory_bytes;
	h->vcpus = vcpus;
	h->tsc_khz = tsc_khz;
	h->digest = digest(r->buf, r->len);
	return 0;
}

/* ---- reading ---------------------------------------------------------------------------- */

static int bad(struct err *err, const char *what)
{
	return err_set(err, EBADMSG, "the state record %s", what);
}

int record_open(struct record *r, uint8_t *buf, size_t len, struct err *err)
{
	const struct record_head *h = (const struct record_head *)(void *)buf;
	uint64_t at = sizeof(*h);

	if (len < sizeof(*h) || memcmp(h->magic, RECORD_MAGIC, sizeof(h->magic)) != 0)
		return bad(err, "is none of parbake-vmm's");
	if (h->version != RECORD_VERSION)
		return err_set(err, EBADMSG, "the state record has version %u, not %u", h->version,
			RECORD_VERSION);
	if (h->bytes != len || len % 8 || len > RECORD_MAX || h->sections > RECORD_SECTIONS_MAX)
		return bad(err, "has another length than it says");
	if (h->digest != digest(buf, len))
		return bad(err, "is damaged");
	for (uint32_t i = 0; i < h->sections; i++) {
		const struct record_section *s = (const struct record_section *)(void *)(buf + at);

		if (len - at < sizeof(*s))
			return bad(err, "ends within a section");
		at += sizeof(*s);
		if (s->bytes > len - at || padded(s->bytes) > len - at)
			return bad(err, "has a section longer than itself");
		at += padded(s->bytes);
	}
	if (at != len)
		return bad(err, "has bytes behind its last section");
	*r = (struct record){.buf = buf, .len = len};
	return 0;
}

const struct record_head *record_head(const struct record *r)
{
	return head_of(r);
}

const void *record_find(const struct record *r, enum record_type type, uint32_t index, size_t bytes,
	size_t *ret_bytes)
{
	size_t at = sizeof(struct record_head);

	while (at < r->len) {
		const struct record_section *s =
			(const struct record_section *)(void *)(r->buf + at);

		if (s->type == type && s->index == index) {
			if (bytes && s->bytes != bytes)
				return NULL;
			if (ret_bytes)
				*ret_bytes = s->bytes;
			return s + 1;
		}
		at += sizeof(*s) + padded(s->bytes);
	}
	return NULL;
}
