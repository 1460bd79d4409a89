/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a command line by a command's table. One pass over argv: options are looked up in the flat list of the command's
 * own entries and those of included tables, operands are collected, and handed out at the end. Nothing of argv is moved
 * or changed, so that what the command keeps of it stays valid.
 */
#include "cli/options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/nearest.h"
#include "common/units.h"

struct parser {
	const struct command *command;
	struct option_bound options[COMMAND_OPTIONS_MAX];
	bool given[COMMAND_OPTIONS_MAX];
	size_t n;
	char **argv;
	int argc, at; /* the next word */
	struct words words; /* the operands */
	const char *const *behind; /* behind "--", of a command that runs another; NULL: none */
	struct err *err;
};

/* ---- values -------------------------------------------------------------------------------- */

int cli_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
	struct err *err)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n < min || n > max)
		return err_set(err, EINVAL, "%s %s: not a number within %" PRIu64 " to %" PRIu64,
			option, text, min, max);
	*ret = n;
	return 0;
}

static int take_duration(const char *option, const char *text, uint64_t *ret, struct err *err)
{
	uint64_t ms;

	if (units_parse_time_ms(text, &ms) < 0 || ms == 0 || ms > LIMIT_TIMEOUT_MS)
		return err_set(err, EINVAL,
			"%s %s: not a duration up to a year; write 500ms, 30s or 5m", option, text);
	*ret = ms;
	return 0;
}

int cli_lease(const char *option, const char *text, uint64_t *ret_s, struct err *err)
{
	uint64_t ms = 0;
	int r = take_duration(option, text, &ms, err);

	if (r == 0)
		*ret_s = (ms + 999) / 1000;
	return r;
}

static int take_size(const char *option, const char *text, uint64_t *ret, struct err *err)
{
	uint64_t bytes;

	if ((cli_number(option, text, 0, UINT64_MAX, &bytes, NULL) < 0 &&
		    units_parse_size(text, &bytes) < 0) ||
		!bytes)
		return err_set(
			err, EINVAL, "%s %s: not a size; write 1000, 64K or 16M", option, text);
	*ret = bytes;
	return 0;
}

static int take_real(const struct option_entry *o, const char *option, const char *text,
	double *ret, struct err *err)
{
	char *end;
	double x;

	errno = 0;
	x = strtod(text, &end);
	if (errno || end == text || *end || !(x >= o->least && x <= o->most))
		return err_set(err, EINVAL, "%s %s: not a number within %g to %g", option, text,
			o->least, o->most);
	*ret = x;
	return 0;
}

static size_t count(const char *const *list)
{
	size_t n = 0;

	while (list[n])
		n++;
	return n;
}

/* The index of @text among the choices of @o. */
static int take_choice(const struct option_entry *o, const char *option, const char *text, int *ret,
	struct err *err)
{
	size_t n = count(o->choices);
	const char *near = nearest_name(text, o->choices, n);
	int r;

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(o->choices[i], text)) {
			*ret = (int)i;
			return 0;
		}
	}
	r = err_set(err, EINVAL, "%s %s: must be ", option, text);
	for (size_t i = 0; i < n; i++)
		err_append(err, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", o->choices[i]);
	if (near)
		err_append(err, "; did you mean %s?", near);
	return r;
}

static void words_add(struct words *w, const char *word)
{
	w->items = realloc(w->items, (w->n + 2) * sizeof(*w->items));
	if (!w->items)
		abort();
	w->items[w->n++] = word;
	w->items[w->n] = NULL;
}

static int take_word(const struct option_entry *o, const char *option, const char *text,
	struct words *ret, struct err *err)
{
	const char *equals = strchr(text, '=');
	int unused;

	if (o->kind == OPTION_PAIRS && (!equals || equals == text))
		return err_set(err, EINVAL, "%s %s: write NAME=VALUE", option, text);
	if (o->choices && take_choice(o, option, text, &unused, err) < 0)
		return -EINVAL;
	if (o->max && ret->n == o->max)
		return err_set(err, EINVAL, "more than %" PRIu64 " of %s", o->max, option);
	words_add(ret, text);
	return 0;
}

static int take(const struct option_bound *b, const char *option, const char *text, struct err *err)
{
	const struct option_entry *o = b->entry;
	int unused;

	switch (o->kind) {
	case OPTION_FLAG:
		*(bool *)b->field = true;
		return 0;
	case OPTION_SET:
		*(int *)b->field = o->set;
		return 0;
	case OPTION_TEXT:
		if (o->choices && take_choice(o, option, text, &unused, err) < 0)
			return -EINVAL;
		*(const char **)b->field = text;
		return 0;
	case OPTION_WORDS:
	case OPTION_PAIRS:
		return take_word(o, option, text, b->field, err);
	case OPTION_CHOICE:
		return take_choice(o, option, text, b->field, err);
	case OPTION_NUMBER:
		return cli_number(option, text, o->min, o->max, b->field, err);
	case OPTION_REAL:
		return take_real(o, option, text, b->field, err);
	case OPTION_DURATION:
		if (!o->zero || strcmp(text, "0"))
			return take_duration(option, text, b->field, err);
		*(uint64_t *)b->field = 0;
		return 0;
	case OPTION_LEASE:
		return cli_lease(option, text, b->field, err);
	case OPTION_SIZE:
		return take_size(option, text, b->field, err);
	case OPTION_CALL:
		return o->take(b->field, option, text, err);
	case OPTION_HELP:
		return COMMAND_HELP;
	case OPTION_TABLE:
		break;
	}
	abort();
}

bool option_has_value(const struct option_entry *o)
{
	return o->kind != OPTION_FLAG && o->kind != OPTION_SET && o->kind != OPTION_HELP;
}

/* ---- tables -------------------------------------------------------------------------------- */

static const struct option_entry help_options[] = {
	{"help", 'h', .kind = OPTION_HELP, .help = "print this page"},
	{0},
};

static size_t add_options(const struct option_entry *table, char *base,
	struct option_bound ret[static COMMAND_OPTIONS_MAX], size_t n)
{
	for (const struct option_entry *o = table; o && (o->name || o->letter || o->table); o++) {
		char *field = base ? base + o->offset : NULL;

		if (o->table) {
			n = add_options(o->table, field, ret, n);
			continue;
		}
		if (n == COMMAND_OPTIONS_MAX)
			abort();
		ret[n++] = (struct option_bound){o, field};
	}
	return n;
}

size_t command_options(
	const struct command *c, void *args, struct option_bound ret[static COMMAND_OPTIONS_MAX])
{
	size_t n = add_options(c->options, args, ret, 0);

	return add_options(help_options, NULL, ret, n);
}

const char *command_word(const struct command *c)
{
	const char *space = strrchr(c->name, ' ');

	return space ? space + 1 : c->name;
}

const struct command *command_find(const struct command *const *list, const char *word)
{
	for (; *list; list++) {
		if (!strcmp(command_word(*list), word))
			return *list;
	}
	return NULL;
}

/* ---- options ------------------------------------------------------------------------------- */

static int unknown_option(struct parser *p, const char *word, size_t len)
{
	const char *names[COMMAND_OPTIONS_MAX], *near;
	char name[128] = "";

	for (size_t i = 0; i < p->n; i++)
		names[i] = p->options[i].entry->name;
	if (len < sizeof(name))
		memcpy(name, word, len);
	near = nearest_name(name, names, p->n);
	return err_set(p->err, EINVAL, "unknown option --%.*s%s%s%s", (int)len, word,
		near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

/* The option whose name is @word's first @len bytes, or begins with them where no other does. */
static int find_long(struct parser *p, const char *word, size_t len, size_t *ret)
{
	size_t found = p->n;

	for (size_t i = 0; i < p->n && len; i++) {
		const char *name = p->options[i].entry->name;

		if (!name || strncmp(name, word, len))
			continue;
		if (!name[len]) {
			*ret = i;
			return 0;
		}
		if (found < p->n)
			return err_set(p->err, EINVAL, "--%.*s: is that --%s or --%s?", (int)len,
				word, p->options[found].entry->name, name);
		found = i;
	}
	if (found == p->n)
		return unknown_option(p, word, len);
	*ret = found;
	return 0;
}

/* @value: what was attached; NULL: nothing, so that the next word is the value. */
static int take_option(struct parser *p, size_t i, const char *option, const char *value)
{
	const struct option_entry *o = p->options[i].entry;

	if (!option_has_value(o) && value)
		return err_set(p->err, EINVAL, "%s takes no value", option);
	if (option_has_value(o) && !value && p->at == p->argc)
		return err_set(p->err, EINVAL, "%s: a value is missing%s%s", option,
			o->value ? ": " : "", o->value ? o->value : "");
	if (option_has_value(o) && !value)
		value = p->argv[p->at++];
	p->given[i] = true;
	return take(&p->options[i], option, value, p->err);
}

static int take_long(struct parser *p, const char *word)
{
	size_t len = strcspn(word, "="), i = 0;
	char option[128];
	int r = find_long(p, word, len, &i);

	if (r < 0)
		return r;
	snprintf(option, sizeof(option), "--%s", p->options[i].entry->name);
	return take_option(p, i, option, word[len] ? word + len + 1 : NULL);
}

static int take_letters(struct parser *p, const char *letters)
{
	int r = 0;

	while (r == 0 && *letters) {
		char letter = *letters++;
		size_t i = 0;
		const char *rest = *letters ? letters : NULL;
		char option[128] = {'-', letter};

		while (i < p->n && p->options[i].entry->letter != letter)
			i++;
		if (i == p->n)
			return err_set(p->err, EINVAL, "unknown option -%c", letter);
		if (p->options[i].entry->name)
			snprintf(option, sizeof(option), "--%s", p->options[i].entry->name);
		if (option_has_value(p->options[i].entry))
			return take_option(p, i, option, rest);
		r = take_option(p, i, option, NULL);
	}
	return r;
}

/* ---- operands ------------------------------------------------------------------------------ */

static int missing(const struct operand_entry *o, struct err *err)
{
	static const char *const questions[] = {
		[NAMES_TEMPLATE] = "which template?",
		[NAMES_RECIPE] = "which recipe? A name (base) or a path (./mine.ini)",
		[NAMES_SANDBOX] = "which sandbox?",
		[NAMES_COMMAND] = "which command? It goes behind --",
	};
	const char *question =
		o->names < sizeof(questions) / sizeof(*questions) ? questions[o->names] : NULL;

	if (question)
		return err_set(err, EINVAL, "%s", question);
	return err_set(err, EINVAL, "%s is missing", o->name);
}

static const struct operand_entry *command_behind(const struct command *c)
{
	for (const struct operand_entry *o = c->operands; o && o->name; o++) {
		if (o->names == NAMES_COMMAND)
			return o;
	}
	return NULL;
}

static int give_operands(struct parser *p, char *args)
{
	size_t i = 0;

	for (const struct operand_entry *o = p->command->operands; o && o->name; o++) {
		void *field = args + o->offset;

		if (o->names == NAMES_COMMAND)
			*(const char *const **)field = p->behind;
		if (o->names == NAMES_COMMAND ? !p->behind && !o->optional
					      : i == p->words.n && !o->optional)
			return missing(o, p->err);
		if (o->names == NAMES_COMMAND || i == p->words.n)
			continue;
		if (!o->many)
			*(const char **)field = p->words.items[i++];
		while (o->many && i < p->words.n)
			words_add(field, p->words.items[i++]);
	}
	if (i == p->words.n)
		return 0;
	return err_set(p->err, EINVAL,
		command_behind(p->command) ? "\"%s\": the command goes behind --"
					   : "\"%s\" is one word too many",
		p->words.items[i]);
}

static int check_required(const struct parser *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct option_entry *o = p->options[i].entry;

		if (o->required && !p->given[i])
			return err_set(p->err, EINVAL, "--%s %s is missing", o->name, o->value);
	}
	return 0;
}

/* Behind "--": another command's line, or operands that may look like options. */
static void take_rest(struct parser *p)
{
	if (command_behind(p->command) && p->at < p->argc) {
		p->behind = (const char *const *)p->argv + p->at;
		p->at = p->argc;
	}
	while (p->at < p->argc)
		words_add(&p->words, p->argv[p->at++]);
}

int command_parse(const struct command *c, int argc, char **argv, void *args, struct err *err)
{
	struct parser p = {.command = c, .argv = argv, .argc = argc, .at = 1, .err = err};
	int r = 0;

	p.n = command_options(c, args, p.options);
	while (r == 0 && p.at < argc) {
		const char *word = argv[p.at++];

		if (!strcmp(word, "--")) {
			take_rest(&p);
		} else if (word[0] == '-' && word[1] == '-') {
			r = take_long(&p, word + 2);
		} else if (word[0] == '-' && word[1]) {
			r = take_letters(&p, word + 1);
		} else {
			words_add(&p.words, word);
			while (c->stops && p.at < argc)
				words_add(&p.words, argv[p.at++]);
		}
	}
	if (r == 0)
		r = give_operands(&p, args);
	if (r == 0)
		r = check_required(&p);
	free(p.words.items);
	return r;
}

static void words_free(struct words *w)
{
	free(w->items);
	*w = (struct words){0};
}

void command_clear(const struct command *c, void *args)
{
	struct option_bound options[COMMAND_OPTIONS_MAX];
	size_t n = command_options(c, args, options);

	for (size_t i = 0; i < n; i++) {
		if (options[i].entry->kind == OPTION_WORDS ||
			options[i].entry->kind == OPTION_PAIRS)
			words_free(options[i].field);
	}
	for (const struct operand_entry *o = c->operands; o && o->name; o++) {
		if (o->many)
			words_free((struct words *)((char *)args + o->offset));
	}
}

/* ---- running ------------------------------------------------------------------------------- */

static int help(const struct command *c)
{
	command_help(c, stdout, command_help_width());
	return CLI_OK;
}

static int run_one_of(const struct command *c, int argc, char **argv)
{
	const struct command *const *list = c->commands, *one;
	const char *names[COMMAND_OPTIONS_MAX], *near, *word = argc > 1 ? argv[1] : NULL;
	size_t n = 0;

	if (!word)
		return command_usage(c, "which one?");
	if (!strcmp(word, "--help") || !strcmp(word, "-h"))
		return help(c);
	one = command_find(list, word);
	if (one)
		return command_main(one, argc - 1, argv + 1);
	for (; *list && n < COMMAND_OPTIONS_MAX; list++)
		names[n++] = (*list)->summary ? command_word(*list) : NULL;
	near = nearest_name(word, names, n);
	return command_usage(c, "there is no `%s %s`%s%s%s%s%s", c->name, word,
		near ? ", do you mean `" : "", near ? c->name : "", near ? " " : "",
		near ? near : "", near ? "`?" : "");
}

int command_main(const struct command *c, int argc, char **argv)
{
	struct err err = {0};
	void *args;
	int r;

	if (c->commands)
		return run_one_of(c, argc, argv);
	args = calloc(1, c->args_bytes + 1);
	if (!args)
		abort();
	if (c->defaults)
		memcpy(args, c->defaults, c->args_bytes);
	r = command_parse(c, argc, argv, args, &err);
	if (r == 0)
		r = c->run(args);
	else
		r = r == COMMAND_HELP ? help(c) : command_usage(c, "%s", err.text);
	command_clear(c, args);
	free(args);
	return r;
}
