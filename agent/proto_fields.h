/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_PROTO_FIELDS_H
#define PARBAKE_AGENT_PROTO_FIELDS_H

/*
 * The fields of a body: written into a buffer of the caller's, read from one. Whoever needs it includes
 * agent/proto.h, which says what a field looks like. Pure functions; no memory of their own.
 */
#include <stdint.h>
#include <string.h>

#define PROTO_BODY_MAX (1u << 20)

/* ---- records that stand in fields and in DATA ---------------------------------------- */

#define PROTO_ID_NAME 32u /* of a user's or group's name, with its NUL */

struct proto_stat {
	uint64_t size;
	int64_t mtime_ns;
	uint32_t mode; /* as st_mode */
	uint32_t uid, gid;
	uint32_t nlink;
	uint32_t
		target_mode; /* st_mode of what a symbolic link leads to; 0: of no link, or it leads nowhere */
	uint32_t metadata_len; /* LIST and events: bytes of its metadata; else 0 */
	char owner[PROTO_ID_NAME],
		group[PROTO_ID_NAME]; /* names in the guest; numbers where there are none */
};
#define PROTO_STAT_LEN 104u

/* A kept command runs. */
struct proto_started {
	uint32_t pid;
	uint32_t flags; /* PROTO_STARTED_… */
	uint32_t tag_len; /* so many bytes follow: its tag; ≤ PROTO_TAG_MAX */
};
#define PROTO_STARTED_LEN 12u
#define PROTO_STARTED_PTY 1u /* it has a terminal */
#define PROTO_STARTED_STDIN 2u /* channel 0 is open */

#define PROTO_METADATA_MAX 4096u /* bytes of a file's metadata: "K=V", each with a NUL behind it */

/* One entry of FILE_LIST: proto_stat, u16 length of its name, u16 length of its link (as T_LINK; 0: none), the name,
 * the link, the metadata. Entries run on across DATA. */
#define PROTO_DIRENT_HEAD (PROTO_STAT_LEN + 4u)

/* What happened in a watched directory. PROTO_EVENT_LOST: more than could be told; what is not told is lost. */
enum proto_event_kind {
	PROTO_EVENT_STARTED = 0, /* the first: from here on nothing is missed. Of nothing else */
	PROTO_EVENT_CREATE = 1,
	PROTO_EVENT_WRITE = 2,
	PROTO_EVENT_REMOVE = 3,
	PROTO_EVENT_RENAME = 4, /* it has another name now, or is elsewhere */
	PROTO_EVENT_CHMOD = 5,
	PROTO_EVENT_LOST = 6,
};

/* One event: this, where `entry` is 1 a proto_stat, then the name (relative to the directory), the link, and
 * stat.metadata_len bytes of metadata. At most PROTO_EVENT_MAX in all. */
struct proto_event {
	uint16_t kind; /* enum proto_event_kind */
	uint16_t entry; /* 1: it is told what the file is now */
	uint16_t name_len, link_len;
};
#define PROTO_EVENT_HEAD 8u
#define PROTO_EVENT_MAX 4096u

/* ---- fields: writing ------------------------------------------------------------------ */

/* A body being written. `failed` is set once, where it would not fit; check it at the end. */
struct proto_out {
	uint8_t *buf;
	uint32_t len, max;
	int failed;
};

static inline void proto_put(struct proto_out *o, uint16_t tag, const void *data, uint32_t len)
{
	if (o->failed || len > o->max || o->max - len < 8 || o->len > o->max - len - 8) {
		o->failed = 1;
		return;
	}
	o->buf[o->len] = tag & 0xff;
	o->buf[o->len + 1] = tag >> 8;
	o->buf[o->len + 2] = o->buf[o->len + 3] = 0;
	memcpy(o->buf + o->len + 4, &len, 4);
	if (len)
		memcpy(o->buf + o->len + 8, data, len);
	o->len += 8 + len;
}

static inline void proto_put_str(struct proto_out *o, uint16_t tag, const char *s)
{
	size_t len = strlen(s);

	if (len > PROTO_BODY_MAX)
		o->failed = 1;
	else
		proto_put(o, tag, s, (uint32_t)len);
}

static inline void proto_put_u32(struct proto_out *o, uint16_t tag, uint32_t v)
{
	proto_put(o, tag, &v, sizeof(v));
}

static inline void proto_put_u64(struct proto_out *o, uint16_t tag, uint64_t v)
{
	proto_put(o, tag, &v, sizeof(v));
}

static inline void proto_put_bool(struct proto_out *o, uint16_t tag, int v)
{
	uint8_t b = v ? 1 : 0;

	proto_put(o, tag, &b, 1);
}

/* ---- fields: reading ------------------------------------------------------------------ */

struct proto_in {
	const uint8_t *buf;
	uint32_t len, pos;
};

struct proto_field {
	uint16_t tag;
	uint32_t len;
	const uint8_t *data; /* borrowed from the body, not terminated */
};

/* The next field: 1, or 0 at the end, or -1 where the body is broken. */
static inline int proto_next(struct proto_in *in, struct proto_field *f)
{
	uint32_t len;

	if (in->pos == in->len)
		return 0;
	if (in->len - in->pos < 8)
		return -1;
	memcpy(&f->tag, in->buf + in->pos, 2);
	memcpy(&len, in->buf + in->pos + 4, 4);
	if (len > in->len - in->pos - 8)
		return -1;
	f->len = len;
	f->data = in->buf + in->pos + 8;
	in->pos += 8 + len;
	return 1;
}

/* A field's value by type: 0, or -1 where its length is wrong. */
static inline int proto_u32(const struct proto_field *f, uint32_t *ret)
{
	if (f->len != 4)
		return -1;
	memcpy(ret, f->data, 4);
	return 0;
}

static inline int proto_u64(const struct proto_field *f, uint64_t *ret)
{
	if (f->len != 8)
		return -1;
	memcpy(ret, f->data, 8);
	return 0;
}

static inline int proto_bool(const struct proto_field *f, int *ret)
{
	if (f->len != 1 || f->data[0] > 1)
		return -1;
	*ret = f->data[0];
	return 0;
}

/* Is it a string (no NUL inside) of at most @max bytes? Then copied and terminated: 0, else -1.
 * @dst has room for @max + 1. */
static inline int proto_str(const struct proto_field *f, char *dst, uint32_t max)
{
	if (f->len > max || memchr(f->data, 0, f->len))
		return -1;
	memcpy(dst, f->data, f->len);
	dst[f->len] = '\0';
	return 0;
}

_Static_assert(sizeof(struct proto_started) == PROTO_STARTED_LEN, "started as on the wire");
_Static_assert(sizeof(struct proto_stat) == PROTO_STAT_LEN, "stat as on the wire");

#endif
