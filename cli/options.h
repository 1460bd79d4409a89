/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_OPTIONS_H
#define PARBAKE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

/*
 * A command is one table: its options, its operands and what each means. Parsing, the usage line, the help page, the
 * errors and the shells' completion all come from that table, which lies in the command's own file.
 *
 * The table says where each value goes: an offset into the command's own struct of arguments, which the parser
 * allocates, fills with the command's defaults and hands to the command. What it points into is argv: valid while the
 * command runs.
 *
 * Long options may be shortened as far as they stay unambiguous, and written "--name VALUE" or "--name=VALUE"; letters
 * may stand together ("-it") and have their value attached ("-n5"). Options may stand among the operands; what is behind
 * "--" is no option.
 */

/* What commands exit with: one of these, or what the manual page of the command says. */
enum cli_status {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_DIFFERS =
		3, /* `bake --check`, `bake --locked`, `diff`: what was compared is not the same */
	/* `run`: the command's own status, or these, as env(1), timeout(1) and shells have them */
	CLI_TIMED_OUT = 124,
	CLI_NOT_RUN = 125, /* parbake itself failed */
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
	CLI_SIGNAL = 128, /* + the signal's number */
};

/* How the value of an option is read, and the type of the field that it goes to. */
enum option_kind {
	OPTION_FLAG, /* bool: no value; given or not */
	OPTION_SET, /* int: no value; the field becomes .set, and the last of several wins */
	OPTION_TEXT, /* const char *: as written; one of .choices where there are any */
	OPTION_WORDS, /* struct words: repeated; each one of .choices where there are any; at most .max (0: any) */
	OPTION_PAIRS, /* struct words: repeated, each NAME=VALUE; at most .max (0: any) */
	OPTION_CHOICE, /* int: the index in .choices */
	OPTION_NUMBER, /* uint64_t: within .min to .max */
	OPTION_REAL, /* double: within .least to .most */
	OPTION_DURATION, /* uint64_t: milliseconds, up to a year; at least 1 unless .zero */
	OPTION_LEASE, /* uint64_t: whole seconds, rounded up */
	OPTION_SIZE, /* uint64_t: bytes, with or without a unit; at least 1 */
	OPTION_CALL, /* any: .take reads the value into the field */
	OPTION_TABLE, /* a struct whose own options .table has: they are this command's, too */
	OPTION_HELP, /* nothing: --help, which every command has */
};

/* What an argument names: how completion finds words for it, and how it is asked for where it is missing. */
enum option_names {
	NAMES_NOTHING,
	NAMES_TEMPLATE,
	NAMES_RECIPE,
	NAMES_SANDBOX,
	NAMES_FILE,
	NAMES_DIR,
	NAMES_COMMAND, /* an operand alone: the command line behind "--"; the field is a const char *const *, NULL: none */
};

struct words {
	const char **items; /* ended by NULL; NULL where none was given; the parser's */
	size_t n;
};

/*
 * The struct that a table's values go to is called struct args, in each command's own file, so that an entry reads
 *	{"tag", 't', OPTION_TEXT, "TAG", AT(tag), "publish under NAME:TAG"}
 * and that of a flag {"force", AT(force), "do all of it anew"}.
 */
#define AT(field) .offset = offsetof(struct args, field)

/* Tables end with an entry that has neither name nor letter nor table. */
struct option_entry {
	const char *name; /* without dashes; NULL: the letter alone */
	char letter; /* 0: none */
	enum option_kind kind;
	const char *value; /* what help calls it: "FILE"; NULL: no value, or all of .choices */
	size_t offset; /* of the field */
	const char *help; /* what it does, in a sentence without a capital or a full stop */
	enum option_names names;
	const char *section; /* a heading of the help page before it; NULL: none */
	bool required;
	bool repeats; /* of OPTION_CALL: for the usage line */
	bool zero; /* of OPTION_DURATION: 0 is a value, too */
	const char *const *choices; /* ended by NULL */
	int set;
	uint64_t min, max;
	double least, most;
	/* @option as the person knows it, "--window"; 0, or a negative errno with an error that names the option */
	int (*take)(void *field, const char *option, const char *text, struct err *err);
	const struct option_entry *table;
};

/* Tables end with an entry without a name. Only the last but a NAMES_COMMAND may be optional or many. */
struct operand_entry {
	const char *name; /* what usage calls it: "TEMPLATE" */
	size_t offset;
	enum option_names names;
	bool optional;
	bool many; /* one or more; with .optional any number: the field is a struct words, otherwise a const char * */
};

struct command {
	const char *name; /* all words behind "parbake": "bench create" */
	const char *
		summary; /* what it is for, without a capital or a full stop; NULL: internal, in no list */
	const char *notes; /* the end of the help page: a line each paragraph; NULL: none */
	const struct option_entry *options; /* NULL: none */
	const struct operand_entry *operands; /* NULL: none */
	bool stops; /* options end at the first operand: the last operand has all the rest, as written */
	const struct command *const
		*commands; /* ended by NULL: then it has no options of its own */
	size_t args_bytes; /* of the struct of arguments */
	const void *defaults; /* one of them; NULL: all zero */
	int (*run)(void *args); /* its value is an exit status */
};

/* Options that many commands have, declared once. */
#define OPTION_JSON(type, field)                                                                   \
	{                                                                                          \
		"json", .kind = OPTION_FLAG, .offset = offsetof(type, field),                      \
			.help = "print JSON, an object a line"                                     \
	}
#define OPTION_STORE(type, field)                                                                  \
	{                                                                                          \
		"store", .kind = OPTION_TEXT, .names = NAMES_DIR, .offset = offsetof(type, field), \
			 .value = "DIR",                                                           \
			 .help = "the directory of the store, where it is not the usual one"       \
	}

/*
 * Run what @argv asks of @c, argv[0] being its name: a subcommand, --help, or the command itself. The exit status: the
 * command's, or CLI_USAGE with the error and the usage line on standard error.
 */
int command_main(const struct command *c, int argc, char **argv);

/*
 * Read @argv by the table of @c into @args, which holds the defaults. 0; COMMAND_HELP where help is asked for; -EINVAL
 * with an error. Whatever comes back, command_clear() frees what @args has of the parser.
 */
#define COMMAND_HELP 1
int command_parse(const struct command *c, int argc, char **argv, void *args, struct err *err);
void command_clear(const struct command *c, void *args);

/* The one of the commands in @list (ended by NULL) whose last word is @word; NULL: none. */
const struct command *command_find(const struct command *const *list, const char *word);
/* The last word of its name. */
const char *command_word(const struct command *c);

/* Print "parbake NAME: TEXT" and the usage line to standard error; the value is CLI_USAGE. */
int command_usage(const struct command *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Print the help page, lines of at most @width columns. */
void command_help(const struct command *c, FILE *to, size_t width);
/* Print a line or more for each command of @list (ended by NULL) but internal ones: its last word and what it is for. */
void command_list(const struct command *const *list, FILE *to, size_t width);
/* The width for these: the terminal's at standard output; 80 where that is none. */
size_t command_help_width(void);

/* An option of a command with its place in that command's arguments. */
struct option_bound {
	const struct option_entry *entry;
	void *field;
};
#define COMMAND_OPTIONS_MAX 48

/* All options of @c, those of included tables and --help too, with their fields in @args (NULL: none). How many. */
size_t command_options(
	const struct command *c, void *args, struct option_bound ret[static COMMAND_OPTIONS_MAX]);

/* Does it take a value? */
bool option_has_value(const struct option_entry *o);

/* A number of an option: within [@min, @max] or an error that names the option. */
int cli_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
	struct err *err);
/* A lease ("500ms", "30s", "5m") of an option in whole seconds, as the API has it: rounded up. */
int cli_lease(const char *option, const char *text, uint64_t *ret_s, struct err *err);

#endif
