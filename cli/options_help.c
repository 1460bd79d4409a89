/* SPDX-License-Identifier: Apache-2.0 */
/* What a command's table looks like to a person: the usage line and the help page, wrapped to a width. */
#include "cli/options.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"

#define WIDTH 80
#define WIDTH_MIN 40
#define NAMES_MAX 26 /* longer names of an option have their help on the next line */

size_t command_help_width(void)
{
	struct winsize ws = {0};

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) < 0 || !ws.ws_col)
		return WIDTH;
	return ws.ws_col < WIDTH_MIN ? WIDTH_MIN : ws.ws_col;
}

/* Columns that UTF-8 takes; all that is printed here is one column a character. */
static size_t columns(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

/*
 * Print words, the first at column @at, further lines from column @indent on; a newline in the text begins a line. Words
 * joined by GLUE stay on one line, with a blank between them.
 */
#define GLUE '\x01'
static void wrap(FILE *to, const char *text, size_t at, size_t indent, size_t width)
{
	bool first = true;

	while (*text) {
		size_t len = strcspn(text, " \n"), wide = columns(text, len);

		if (!first && at + 1 + wide > width) {
			fprintf(to, "\n%*s", (int)indent, "");
			at = indent;
			first = true;
		}
		if (!first)
			at += (size_t)fprintf(to, " ");
		for (size_t i = 0; i < len; i++)
			putc(text[i] == GLUE ? ' ' : text[i], to);
		at += wide;
		first = false;
		text += len;
		if (*text == '\n') {
			fprintf(to, "\n%*s", (int)indent, "");
			at = indent;
			first = true;
		}
		text += *text != '\0';
	}
	putc('\n', to);
}

/* Put @word behind the text. */
static void append_to(char **line, const char *between, const char *word)
{
	char *longer = str_printf("%s%s%s", *line, between, word);

	free(*line);
	*line = longer;
}

/* What stands for its value: its own name, else all its choices. Caller frees. */
static char *value_of(const struct option_entry *o)
{
	char *all = str_dup(o->value ? o->value : "");

	for (size_t i = 0; !o->value && o->choices && o->choices[i]; i++)
		append_to(&all, i ? "|" : "", o->choices[i]);
	return all;
}

static bool repeats(const struct option_entry *o)
{
	return o->repeats || o->kind == OPTION_WORDS || o->kind == OPTION_PAIRS;
}

/* "[--env K=V]…", its blanks glued. Caller frees. */
static char *option_usage(const struct option_entry *o)
{
	cleanup_free char *value = value_of(o);
	char letter[2] = {o->letter};

	return str_printf("%s%s%s%s%s%s%s", o->required ? "" : "[", o->name ? "--" : "-",
		o->name ? o->name : letter, *value ? "\x01" : "", value, o->required ? "" : "]",
		repeats(o) ? "…" : "");
}

static void append(char **line, const char *word)
{
	append_to(line, " ", word);
}

/* With all options where they fit on two lines; otherwise with those that must be given. */
static char *usage_line(const struct command *c, size_t width, bool all)
{
	struct option_bound options[COMMAND_OPTIONS_MAX];
	size_t n = command_options(c, NULL, options);
	char *line = str_printf("usage: parbake %s", c->name);

	if (c->commands && !all) {
		append(&line, "COMMAND …");
		return line;
	}
	if (!all && !c->commands)
		append(&line, "[OPTIONS]");
	for (size_t i = 0; c->commands && c->commands[i]; i++) {
		if (c->commands[i]->summary)
			append_to(&line, i ? "|" : " ", command_word(c->commands[i]));
	}
	if (c->commands)
		append(&line, "…");
	for (size_t i = 0; !c->commands && i + 1 < n; i++) { /* but --help, the last */
		cleanup_free char *one = option_usage(options[i].entry);

		if (all || options[i].entry->required)
			append(&line, one);
	}
	for (const struct operand_entry *o = c->operands; o && o->name; o++) {
		cleanup_free char *one = str_printf("%s%s%s%s%s", o->optional ? "[" : "",
			o->names == NAMES_COMMAND ? "--\x01" : "", o->name,
			o->many || o->names == NAMES_COMMAND ? "…" : "", o->optional ? "]" : "");

		append(&line, one);
	}
	if (!all || columns(line, strlen(line)) <= (c->commands ? width : 2 * width - 20))
		return line;
	free(line);
	return usage_line(c, width, false);
}

static void print_usage(const struct command *c, FILE *to, size_t width)
{
	cleanup_free char *line = usage_line(c, width, true);

	wrap(to, line, 0, 8, width);
}

int command_usage(const struct command *c, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "parbake %s: ", c->name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	print_usage(c, stderr, command_help_width());
	return CLI_USAGE;
}

/* "-e, --env K=V", glued. Caller frees. */
static char *option_names(const struct option_entry *o)
{
	cleanup_free char *value = value_of(o);
	char letter[5] = {'-', o->letter};

	if (o->letter && o->name)
		strcat(letter, ", ");
	return str_printf("%s%s%s%s%s", o->letter ? letter : "    ", o->name ? "--" : "",
		o->name ? o->name : "", *value ? " " : "", value);
}

/* A line of a list: what it is at column 2, what it does from column @at on. */
static void print_entry(FILE *to, const char *names, const char *help, size_t at, size_t width)
{
	size_t wide = columns(names, strlen(names));

	fprintf(to, "  %s", names);
	if (2 + wide + 2 > at)
		fprintf(to, "\n%*s", (int)at, "");
	else
		fprintf(to, "%*s", (int)(at - 2 - wide), "");
	wrap(to, help, at, at, width);
}

static void print_options(const struct command *c, FILE *to, size_t width)
{
	struct option_bound options[COMMAND_OPTIONS_MAX];
	size_t n = command_options(c, NULL, options), at = 0;
	char *names[COMMAND_OPTIONS_MAX];

	for (size_t i = 0; i < n; i++) {
		size_t wide;

		names[i] = option_names(options[i].entry);
		wide = columns(names[i], strlen(names[i]));
		if (wide <= NAMES_MAX && wide > at)
			at = wide;
	}
	if (!options[0].entry->section)
		fputs("\noptions:\n", to);
	for (size_t i = 0; i < n; i++) {
		const struct option_entry *o = options[i].entry;
		cleanup_free char *help =
			str_printf("%s%s", o->help, repeats(o) ? " (may be repeated)" : "");

		if (o->section)
			fprintf(to, "\n%s:\n", o->section);
		print_entry(to, names[i], help, at + 4, width);
		free(names[i]);
	}
}

void command_list(const struct command *const *list, FILE *to, size_t width)
{
	size_t at = 0;

	for (const struct command *const *c = list; *c; c++) {
		if ((*c)->summary && strlen(command_word(*c)) > at)
			at = strlen(command_word(*c));
	}
	for (const struct command *const *c = list; *c; c++) {
		if ((*c)->summary)
			print_entry(to, command_word(*c), (*c)->summary, at + 4, width);
	}
}

void command_help(const struct command *c, FILE *to, size_t width)
{
	const char *text = c->summary ? c->summary : "internal";
	cleanup_free char *summary =
		str_printf("%s%s", text, text[strlen(text) - 1] == '?' ? "" : ".");

	print_usage(c, to, width);
	fputc('\n', to);
	wrap(to, summary, 0, 0, width);
	if (!c->commands) {
		print_options(c, to, width);
	} else {
		fputs("\ncommands:\n", to);
		command_list(c->commands, to, width);
		fprintf(to, "\n`parbake help %s COMMAND` tells its options.\n", c->name);
	}
	if (c->notes) {
		fputc('\n', to);
		wrap(to, c->notes, 0, 0, width);
	}
}
