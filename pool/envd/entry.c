/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A symbolic link is described as E2B does it: with the type, the permission bits and the path of its target. A link
 * that leads nowhere has no type.
 */
#include "pool/envd/entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/rfc3339.h"

static const char *type_name(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "FILE_TYPE_FILE";
	case S_IFDIR:
		return "FILE_TYPE_DIRECTORY";
	case S_IFLNK:
		return "FILE_TYPE_SYMLINK";
	default:
		return "FILE_TYPE_UNSPECIFIED";
	}
}

static void permissions(uint32_t mode, char ret[11])
{
	static const char letters[] = "rwxrwxrwx";

	ret[0] = S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : S_ISREG(mode) ? '-' : '?';
	for (int i = 0; i < 9; i++)
		ret[1 + i] = mode >> (8 - i) & 1 ? letters[i] : '-';
	if (mode & S_ISUID)
		ret[3] = mode & S_IXUSR ? 's' : 'S';
	if (mode & S_ISGID)
		ret[6] = mode & S_IXGRP ? 's' : 'S';
	if (mode & S_ISVTX)
		ret[9] = mode & S_IXOTH ? 't' : 'T';
	ret[10] = '\0';
}

static json_t *number_text(uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return json_string(text);
}

static json_t *text_json(const char *text)
{
	return json_lossy(text, strlen(text));
}

/* 64-bit numbers are strings in this protocol's JSON. */
static json_t *name_json(const char *name)
{
	return json_lossy(name, strnlen(name, PROTO_ID_NAME));
}

/* A key that is not UTF-8 is left out. */
static void set_metadata(json_t *object, const char *pair, const char *equals)
{
	cleanup_free char *key = strndup(pair, (size_t)(equals - pair));

	if (!key)
		abort();
	json_object_set_new(object, key, text_json(equals + 1));
}

json_t *envd_metadata(const char *bytes, size_t len)
{
	json_t *object = NULL;

	for (size_t at = 0, n; at < len; at += n + 1) {
		const char *equals = memchr(bytes + at, '=', len - at);

		n = strnlen(bytes + at, len - at);
		if (at + n == len || !equals || equals >= bytes + at + n)
			break;
		if (!object)
			object = json_object();
		set_metadata(object, bytes + at, equals);
	}
	return object;
}

json_t *envd_entry(
	const char *path, const struct proto_stat *st, const char *link, json_t *metadata)
{
	/* of a link: what it leads to */
	uint32_t shown = S_ISLNK(st->mode) ? st->target_mode : st->mode;
	const char *slash = strrchr(path, '/');
	const char *name = slash && slash[1] ? slash + 1 : path;
	char mode[11], when[RFC3339_SIZE];
	json_t *e;

	permissions(st->mode, mode);
	rfc3339_text(st->mtime_ns, 9, when);
	e = json_pack("{s:o,s:s,s:o,s:o,s:i,s:s,s:o,s:o,s:s}", "name", text_json(name), "type",
		type_name(shown), "path", text_json(path), "size", number_text(st->size), "mode",
		(int)(shown & 07777), "permissions", mode, "owner", name_json(st->owner), "group",
		name_json(st->group), "modifiedTime", when);
	if (!e ||
		(S_ISLNK(st->mode) &&
			(json_object_set_new(
				 e, "symlinkTarget", text_json(link && *link ? link : path)) < 0 ||
				json_object_set_new(e, "isSymlink", json_true()) < 0)) ||
		(metadata && json_object_set_new(e, "metadata", metadata) < 0))
		abort();
	return e;
}
