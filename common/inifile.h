/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_INIFILE_H
#define PARBAKE_COMMON_INIFILE_H

#include <stddef.h>

#include "common/cleanup.h"
#include "common/err.h"

/* INI files (recipes, configurations): read as sections, keys and values, whatever those mean. */
struct inifile_entry {
	char *section, *key;
	/* Lines of a continued value are joined by '\n', less the blanks that all of them begin
	 * with; blank ones, and those that begin with # or ; behind blanks, are lines as any
	 * other. Blank lines at the end of a value, and comments (# or ; in the first column),
	 * are not part of it. */
	char *value;
	unsigned line; /* of the key, from 1 */
};

struct inifile {
	char *path; /* as errors name it */
	struct inifile_entry *entries;
	size_t n;
	/* every [section] line, so that an unknown one is found where it is empty, too */
	struct inifile_entry *sections;
	size_t n_sections;
};

/*
 * Parse @len bytes of @text; @path is what errors call it (copied). Refused, with file and line:
 * more than LIMIT_RECIPE_BYTES, lines longer than LIMIT_RECIPE_LINE, control characters, what is
 * not UTF-8, a line that is neither section nor `key = value`, a key that the section has already,
 * a value whose lines end in CR LF where others of the file do not.
 * -EINVAL, -EFBIG. Caller calls inifile_clear(). One thread at a time: inih keeps its options in
 * globals.
 */
int inifile_parse(
	const char *path, const char *text, size_t len, struct inifile *ret, struct err *err);
/* The same of a file. */
int inifile_read(const char *path, struct inifile *ret, struct err *err);
void inifile_clear(struct inifile *ini);

/*
 * Say in @err what is wrong with an entry; each function returns -EINVAL. inifile_bad() is for a
 * value: "FILE:LINE: [SECTION] KEY = VALUE: " and the text, which says what to write instead.
 */
int inifile_bad(const struct inifile *ini, const struct inifile_entry *e, struct err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* A section, or a key, that is none of @names (which may repeat; of keys NULLs are passed over),
 * with the nearest of them, or all. @others: of keys that have no name ("are step numbers"), NULL:
 * there are none. */
int inifile_unknown_section(const struct inifile *ini, const struct inifile_entry *e,
	const char *const *names, size_t n, struct err *err);
int inifile_unknown_key(const struct inifile *ini, const struct inifile_entry *e,
	const char *const *names, size_t n, const char *others, struct err *err);
#define cleanup_inifile cleanup_with(inifile_clear)

#endif
