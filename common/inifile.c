/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The INI side of recipes and configurations, by inih.
 *
 * inih reads through a stream reader of ours, which knows what inih does not tell: the number of
 * the line and its text as written, so that a continued value (a shell loop, Python code) keeps its
 * inner indentation. Everything that inih would cut or misread without a word is refused before it
 * sees the text (long lines, NUL and control bytes) or switched off (comments inside a line: `a ;
 * b` is shell).
 */
#include "common/inifile.h"

#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/nearest.h"
#include "common/str.h"

#define INI_ENTRIES_MAX 8192
#define INIH_SECTION 49 /* bytes that inih keeps of a section's name */

struct reading {
	struct inifile *ini;
	const char *text, *end; /* what is still to be read */
	const char *line; /* the one inih works on, as written */
	size_t line_len;
	unsigned number;
	size_t indent; /* of the first continuation of the entry at hand */
	bool continued; /* the entry at hand has a continuation */
	bool failed;
	struct err *err;
};

static void add_entry(struct inifile_entry **list, size_t *n, const char *section, const char *key,
	const char *value, unsigned line)
{
	struct inifile_entry *grown = reallocarray(*list, *n + 1, sizeof(**list));

	if (!grown)
		abort();
	*list = grown;
	grown[(*n)++] = (struct inifile_entry){
		.section = str_dup(section),
		.key = str_dup(key),
		.value = str_dup(value),
		.line = line,
	};
}

/* inih's reader, as fgets(3). The lines are known to fit. */
static char *read_line(char *str, int num, void *stream)
{
	struct reading *r = stream;
	const char *stop;
	size_t len;

	if (r->text == r->end || num <= 0 || r->failed)
		return NULL;
	stop = memchr(r->text, '\n', (size_t)(r->end - r->text));
	len = stop ? (size_t)(stop - r->text) : (size_t)(r->end - r->text);
	if (len + 2 > (size_t)num) {
		err_set(r->err, EINVAL, "%s:%u: line is longer than %d bytes", r->ini->path,
			r->number + 1, num - 2);
		r->failed = true;
		return NULL;
	}
	r->line = r->text;
	r->line_len = len;
	r->number++;
	memcpy(str, r->text, len);
	str[len] = '\n';
	str[len + 1] = '\0';
	r->text += len + (stop ? 1 : 0);
	if (len && r->line[0] == '[') {
		const char *close = memchr(r->line, ']', len);

		if (close) {
			char *name = strndup(r->line + 1, (size_t)(close - r->line - 1));

			if (!name)
				abort();
			add_entry(&r->ini->sections, &r->ini->n_sections, name, NULL, NULL,
				r->number);
			free(name);
		}
	}
	return str;
}

static size_t blank_prefix(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && (s[n] == ' ' || s[n] == '\t'))
		n++;
	return n;
}

/* A line that begins with blanks carries on the value before it. */
static int append_line(struct reading *r)
{
	struct inifile_entry *e = &r->ini->entries[r->ini->n - 1];
	size_t blanks = blank_prefix(r->line, r->line_len), skip, len = r->line_len;
	char *joined;

	if (!r->continued)
		r->indent = blanks;
	r->continued = true;
	skip = blanks < r->indent ? blanks : r->indent;
	while (len > skip && strchr(" \t\r", r->line[len - 1]))
		len--;
	joined = str_printf("%s\n%.*s", e->value, (int)(len - skip), r->line + skip);
	free(e->value);
	e->value = joined;
	return 1;
}

/* inih cuts the name of a section; we have the whole. */
static const char *whole_section(const struct reading *r, const char *section)
{
	const struct inifile *ini = r->ini;
	const char *last = ini->n_sections ? ini->sections[ini->n_sections - 1].section : "";
	size_t len = strlen(section);

	return len >= INIH_SECTION && !strncmp(last, section, len) ? last : section;
}

static int handle(void *user, const char *section, const char *name, const char *value)
{
	struct reading *r = user;
	struct inifile *ini = r->ini;

	section = whole_section(r, section);
	if (r->line_len && strchr(" \t", r->line[0]) && ini->n && r->number > 1 &&
		!strcmp(ini->entries[ini->n - 1].section, section) &&
		ini->entries[ini->n - 1].line < r->number)
		return append_line(r);
	if (!*name) {
		err_set(r->err, EINVAL, "%s:%u: no key before the '='", ini->path, r->number);
		r->failed = true;
		return 0;
	}
	for (size_t i = 0; i < ini->n; i++) {
		if (strcmp(ini->entries[i].section, section) || strcmp(ini->entries[i].key, name))
			continue;
		err_set(r->err, EINVAL, "%s:%u: [%s] %s: given twice, first in line %u", ini->path,
			r->number, section, name, ini->entries[i].line);
		r->failed = true;
		return 0;
	}
	if (ini->n == INI_ENTRIES_MAX) {
		err_set(r->err, EINVAL, "%s:%u: more than %d keys", ini->path, r->number,
			INI_ENTRIES_MAX);
		r->failed = true;
		return 0;
	}
	add_entry(&ini->entries, &ini->n, section, name, value, r->number);
	r->continued = false;
	return 1;
}

/* What may not be in such a file at all, line by line. */
static int check_lines(const char *path, const char *text, size_t len, struct err *err)
{
	unsigned number = 1;

	for (const char *p = text, *end = text + len; p < end; number++) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		size_t n = stop ? (size_t)(stop - p) : (size_t)(end - p);
		cleanup_json json_t *utf8 = NULL;

		if (n > LIMIT_RECIPE_LINE)
			return err_set(err, EINVAL, "%s:%u: line is longer than %d bytes", path,
				number, LIMIT_RECIPE_LINE);
		for (size_t i = 0; i < n; i++) {
			unsigned char c = (unsigned char)p[i];

			if ((c < ' ' && c != '\t' && !(c == '\r' && i + 1 == n)) || c == 0x7f)
				return err_set(err, EINVAL,
					"%s:%u: control character 0x%02x in column %zu", path,
					number, c, i + 1);
		}
		/* the text goes into JSON, so jansson's judgement is the right one */
		utf8 = json_stringn(p, n);
		if (!utf8)
			return err_set(err, EINVAL, "%s:%u: not UTF-8", path, number);
		p += n + (stop ? 1 : 0);
	}
	return 0;
}

int inifile_parse(
	const char *path, const char *text, size_t len, struct inifile *ret, struct err *err)
{
	cleanup_inifile struct inifile ini = {.path = str_dup(path)};
	struct reading r = {.ini = &ini, .text = text, .end = text + len, .err = err};
	int rc;

	if (len > LIMIT_RECIPE_BYTES)
		return err_set(err, EFBIG, "%s: longer than %lu bytes", path, LIMIT_RECIPE_BYTES);
	rc = check_lines(path, text, len, err);
	if (rc)
		return rc;
	ini_allow_multiline = true;
	ini_allow_inline_comments = false;
	ini_allow_no_value = false;
	ini_stop_on_first_error = true;
	ini_use_stack = false;
	ini_allow_realloc = false;
	ini_max_line = LIMIT_RECIPE_LINE + 4;
	ini_initial_alloc = LIMIT_RECIPE_LINE + 4;
	rc = ini_parse_stream(read_line, &r, handle, &r);
	if (r.failed)
		return -EINVAL;
	if (rc > 0)
		return err_set(err, EINVAL, "%s:%d: neither a [section] nor key = value", path, rc);
	if (rc < 0)
		return err_set(err, ENOMEM, "%s: out of memory", path);
	*ret = ini;
	ini = (struct inifile){0};
	return 0;
}

int inifile_read(const char *path, struct inifile *ret, struct err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int rc = file_read_all(AT_FDCWD, path, LIMIT_RECIPE_BYTES, &text, &len, err);

	if (rc)
		return rc;
	return inifile_parse(path, text, len, ret, err);
}

static void clear_entries(struct inifile_entry *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(list[i].section);
		free(list[i].key);
		free(list[i].value);
	}
	free(list);
}

void inifile_clear(struct inifile *ini)
{
	clear_entries(ini->entries, ini->n);
	clear_entries(ini->sections, ini->n_sections);
	free(ini->path);
	*ini = (struct inifile){0};
}

/* ---- what is wrong with it ------------------------------------------------------------------ */

int inifile_bad(const struct inifile *ini, const struct inifile_entry *e, struct err *err,
	const char *fmt, ...)
{
	cleanup_free char *why = NULL;
	size_t len = strcspn(e->value, "\n");
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&why, fmt, args) < 0)
		abort();
	va_end(args);
	return err_set(err, EINVAL, "%s:%u: [%s] %s = %.*s%s: %s", ini->path, e->line, e->section,
		e->key, (int)(len > 80 ? 80 : len), e->value, len > 80 || e->value[len] ? "…" : "",
		why);
}

static bool first_of_its_name(const char *const *names, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (names[k] && !strcmp(names[k], names[i]))
			return false;
	return true;
}

int inifile_unknown_section(const struct inifile *ini, const struct inifile_entry *e,
	const char *const *names, size_t n, struct err *err)
{
	const char *near = nearest_name(e->section, names, n);
	size_t last = 0;

	if (near)
		return err_set(err, EINVAL, "%s:%u: unknown section [%s]; did you mean [%s]?",
			ini->path, e->line, e->section, near);
	err_set(err, EINVAL, "%s:%u: unknown section [%s]; there are", ini->path, e->line,
		e->section);
	for (size_t i = 0; i < n; i++)
		last = first_of_its_name(names, i) ? i : last;
	for (size_t i = 0; i < n; i++)
		if (first_of_its_name(names, i))
			err_append(err, "%s %s", !i ? "" : i == last ? " and" : ",", names[i]);
	return -EINVAL;
}

int inifile_unknown_key(const struct inifile *ini, const struct inifile_entry *e,
	const char *const *names, size_t n, const char *others, struct err *err)
{
	const char *near = nearest_name(e->key, names, n);

	err_set(err, EINVAL, "%s:%u: [%s] %s: unknown key", ini->path, e->line, e->section, e->key);
	if (near) {
		err_append(err, "; did you mean %s?", near);
		return -EINVAL;
	}
	err_append(err, "; there %s", others ? others : "is");
	for (size_t i = 0, said = others != NULL; i < n; i++)
		if (names[i])
			err_append(err, "%s %s", said++ ? "," : "", names[i]);
	return -EINVAL;
}
