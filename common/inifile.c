/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading INI files (recipes, configurations) by inih.
 *
 * inih reads through a stream reader of ours, which knows what inih does not report: the number of
 * the line and its text as written. Lines that carry a value on never reach inih, which would drop
 * those that look like comments and those that are blank: the reader keeps them, and inih sees an
 * empty line in their place. When the value ends, its lines are joined without the indent that they
 * have in common, so that a shell loop, a here-document or Python code is what was written.
 * Everything else that inih would cut or misread without an error is refused before it sees the
 * text (long lines, NUL and control bytes) or switched off (comments inside a line: `a ; b` is
 * shell).
 */
#include "common/inifile.h"

#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
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
	unsigned number; /* of the line that inih works on */
	bool crlf; /* every line of the file ends in CR LF */
	bool open; /* the last entry's value may be carried on */
	const char *value_end; /* of the line of its key */
	const char *more; /* from the first line that carries it on … */
	size_t more_len; /* … to the end of the last; 0: there is none */
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

/* ---- values of several lines --------------------------------------------------------------- */

static size_t blank_prefix(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && (s[n] == ' ' || s[n] == '\t'))
		n++;
	return n;
}

/* The line at @at: its length without its end, which is LF, or CR LF in a file of such lines; *@ret_next is
 * the next one's beginning. */
static size_t line_at(
	const struct reading *r, const char *at, const char *end, const char **ret_next)
{
	const char *stop = memchr(at, '\n', (size_t)(end - at));
	size_t len = stop ? (size_t)(stop - at) : (size_t)(end - at);

	*ret_next = stop ? stop + 1 : end;
	return len && r->crlf && at[len - 1] == '\r' ? len - 1 : len;
}

/* Comments stand in the first column, also between the lines of a value. */
static bool is_comment(const char *line, size_t len)
{
	return len && (*line == '#' || *line == ';');
}

/* The indent that all lines but blank ones have in common. */
static size_t common_indent(const struct reading *r, const char *text, const char *end)
{
	const char *first = NULL, *next;
	size_t indent = 0;

	for (const char *p = text; p < end; p = next) {
		size_t len = line_at(r, p, end, &next), blanks = blank_prefix(p, len);

		if (blanks == len || is_comment(p, len))
			continue;
		if (!first) {
			first = p;
			indent = blanks;
		}
		while (indent > blanks || memcmp(first, p, indent) != 0)
			indent--;
	}
	return indent;
}

/* The value at hand is over: what carried it on is joined to it. */
static void close_value(struct reading *r)
{
	const char *end = r->more + r->more_len, *next;
	struct inifile_entry *e = r->ini->n ? &r->ini->entries[r->ini->n - 1] : NULL;
	size_t len = 0, indent;
	char *joined;
	FILE *f;

	if (!r->open || !r->more_len) {
		r->open = false;
		return;
	}
	f = open_memstream(&joined, &len);
	if (!f)
		abort();
	fputs(e->value, f);
	indent = common_indent(r, r->more, end);
	for (const char *p = r->more; p < end; p = next) {
		size_t n = line_at(r, p, end, &next), skip = blank_prefix(p, n);

		if (is_comment(p, n))
			continue;
		skip = skip < indent ? skip : indent;
		fputc('\n', f);
		fwrite(p + skip, 1, n - skip, f);
	}
	if (fclose(f))
		abort();
	free(e->value);
	e->value = joined;
	r->more_len = 0;
	r->open = false;
}

/* Does the line (with its LF, at r->text) carry the value at hand on, or may it? It is kept then. */
static bool keep_line(struct reading *r, const char *line, size_t len, const char *next)
{
	size_t blanks = blank_prefix(line, len);
	bool blank = blanks == len || (blanks + 1 == len && line[blanks] == '\r');

	if (!r->open || (len && !blank && !blanks))
		return false;
	if (blank)
		return true; /* kept if more follows */
	if (!r->crlf && line[len - 1] == '\r') {
		err_set(r->err, EINVAL,
			"%s:%u: a line of a value ends in a carriage return, and others of the "
			"file do not: end all alike; where the value is to have one, write "
			"printf '\\r'",
			r->ini->path, r->number);
		r->failed = true;
	}
	if (!r->more_len)
		r->more = r->value_end;
	r->more_len = (size_t)(next - r->more);
	return true;
}

/* ---- inih's side --------------------------------------------------------------------------- */

static void note_section(struct reading *r, const char *line, size_t len)
{
	const char *close = memchr(line, ']', len);
	char *name;

	if (!close)
		return;
	name = strndup(line + 1, (size_t)(close - line - 1));
	if (!name)
		abort();
	add_entry(&r->ini->sections, &r->ini->n_sections, name, NULL, NULL, r->number);
	free(name);
}

/* inih's reader, as fgets(3). The lines are known to fit. */
static char *read_line(char *str, int num, void *stream)
{
	struct reading *r = stream;
	const char *line = r->text, *stop;
	size_t len;

	if (r->text == r->end || num <= 0 || r->failed)
		return NULL;
	stop = memchr(line, '\n', (size_t)(r->end - line));
	len = stop ? (size_t)(stop - line) : (size_t)(r->end - line);
	r->number++;
	if (len + 2 > (size_t)num) {
		err_set(r->err, EINVAL, "%s:%u: line is longer than %d bytes", r->ini->path,
			r->number, num - 2);
		r->failed = true;
		return NULL;
	}
	r->text += len + (stop ? 1 : 0);
	if (keep_line(r, line, len, r->text))
		len = 0;
	else if (len && !is_comment(line, len))
		close_value(r);
	if (r->failed)
		return NULL;
	memcpy(str, line, len);
	str[len] = '\n';
	str[len + 1] = '\0';
	if (len && line[0] == '[')
		note_section(r, line, len);
	return str;
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
	r->open = true;
	r->value_end = r->text;
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

static bool all_crlf(const char *text, size_t len)
{
	for (const char *p = text, *stop; p < text + len; p = stop + 1) {
		stop = memchr(p, '\n', (size_t)(text + len - p));
		if (!stop)
			break;
		if (stop == p || stop[-1] != '\r')
			return false;
	}
	return true;
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
	r.crlf = all_crlf(text, len);
	ini_allow_multiline = false; /* read_line() does it */
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
	close_value(&r);
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
