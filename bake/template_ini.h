/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_TEMPLATE_INI_H
#define PARBAKE_BAKE_TEMPLATE_INI_H

#include <stddef.h>

#include "common/cleanup.h"
#include "common/err.h"

/* One recipe file as sections, keys and values, before any of them means something. */
struct template_entry {
	char *section, *key;
	char *value; /* lines of a continued value joined by '\n', their common indent removed */
	unsigned line; /* of the key, from 1 */
};

struct template_ini {
	char *path; /* as errors name it */
	struct template_entry *entries;
	size_t n;
	/* every [section] line, so that an unknown one is found where it is empty, too */
	struct template_entry *sections;
	size_t n_sections;
};

/*
 * Parse @len bytes of @text; @path is what errors call it (copied). Refused, with file and
 * line: more than LIMIT_RECIPE_BYTES, lines longer than LIMIT_RECIPE_LINE, control characters,
 * what is not UTF-8, a line that is neither section nor `key = value`, a key that the section has
 * already. -EINVAL, -EFBIG. Caller calls template_ini_clear(). One thread at a time: inih keeps
 * its options in globals.
 */
int template_ini_parse(
	const char *path, const char *text, size_t len, struct template_ini *ret, struct err *err);
/* The same of a file. */
int template_ini_read(const char *path, struct template_ini *ret, struct err *err);
void template_ini_clear(struct template_ini *ini);
#define cleanup_template_ini cleanup_with(template_ini_clear)

#endif
