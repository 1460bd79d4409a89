/* SPDX-License-Identifier: Apache-2.0 */
/* A command's table: what is read by it, what is refused and how, and the help page that it gives. */
#include "cli/options.h"

#include <stdlib.h>

#include "tests/unit/tap.h"

struct inner {
	bool json;
	const char *save;
};

struct args {
	bool flag, other;
	int which, format;
	const char *text, *stage;
	struct words words, modes, env;
	uint64_t number, keep, lease, size;
	double rate;
	char called[64];
	struct inner inner;
	const char *first;
	struct words rest;
	const char *const *command;
};

static const char *const formats[] = {"spdx", "cyclonedx", "provenance", NULL};
static const char *const modes[] = {"cold", "standby", "spare", NULL};

static int take_called(void *field, const char *option, const char *text, struct err *err)
{
	if (!strcmp(text, "bad"))
		return err_set(err, EINVAL, "%s %s: not that", option, text);
	snprintf(field, 64, "%s=%s", option, text);
	return 0;
}

static const struct option_entry inner_options[] = {
	{"json", .section = "what comes out", .offset = offsetof(struct inner, json),
		.help = "as JSON"},
	{"save", .kind = OPTION_TEXT, .offset = offsetof(struct inner, save), .value = "FILE",
		.help = "into a file"},
	{0},
};

#define AT(field) .offset = offsetof(struct args, field)
static const struct option_entry options[] = {
	{"flag", 'f', AT(flag),
		.help = "a flag whose help is so long that it does not fit on one line of "
			"a page as wide as this test asks for"},
	{"other", 'o', AT(other), .help = "another"},
	{"config", .kind = OPTION_SET, AT(which), .set = 7, .help = "seven"},
	{"manifest", .kind = OPTION_SET, AT(which), .set = 9, .help = "nine"},
	{"text", 't', .kind = OPTION_TEXT, AT(text), .value = "TEXT", .help = "text"},
	{"stage", .kind = OPTION_TEXT, AT(stage), .choices = formats, .help = "a word as text"},
	{"word", 'w', .kind = OPTION_WORDS, AT(words), .max = 2, .value = "W", .help = "words"},
	{"mode", .kind = OPTION_WORDS, AT(modes), .choices = modes, .help = "modes"},
	{"env", 'e', .kind = OPTION_PAIRS, AT(env), .value = "K=V", .help = "pairs"},
	{"format", .kind = OPTION_CHOICE, AT(format), .choices = formats, .help = "a format"},
	{.letter = 'n',
		.kind = OPTION_NUMBER,
		AT(number),
		.min = 1,
		.max = 50,
		.value = "N",
		.help = "a number without a name"},
	{"keep", .kind = OPTION_DURATION, .zero = true, AT(keep), .value = "T", .help = "a time"},
	{"keep-long", .kind = OPTION_DURATION, AT(keep), .value = "T", .help = "a time but 0"},
	{"lease", .kind = OPTION_LEASE, AT(lease), .value = "T", .help = "a lease"},
	{"size", .kind = OPTION_SIZE, AT(size), .value = "SIZE", .help = "a size"},
	{"rate", .kind = OPTION_REAL, AT(rate), .least = 0.5, .most = 10, .value = "R",
		.help = "a rate"},
	{"call", .kind = OPTION_CALL, .take = take_called, AT(called), .value = "C",
		.repeats = true, .help = "called"},
	{.kind = OPTION_TABLE, .table = inner_options, AT(inner)},
	{0},
};

static const struct operand_entry operands[] = {
	{"FIRST", .names = NAMES_TEMPLATE, AT(first)},
	{"REST", .optional = true, .many = true, AT(rest)},
	{0},
};

static int run(void *args)
{
	const struct args *a = args;

	return a->number == 5 ? 42 : CLI_FAILED;
}

static const struct command plain = {.name = "plain",
	.summary = "try things out",
	.notes = "A note.",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct args),
	.defaults = &(const struct args){.number = 5},
	.run = run};

static const struct operand_entry runs_operands[] = {
	{"ID", AT(first)},
	{"COMMAND", .optional = true, .names = NAMES_COMMAND, AT(command)},
	{0},
};
static const struct command runs = {.name = "runs",
	.summary = "run",
	.options = options,
	.operands = runs_operands,
	.args_bytes = sizeof(struct args),
	.run = run};

static const struct command stops = {.name = "stops",
	.summary = "stop",
	.options = options,
	.operands = operands,
	.stops = true,
	.args_bytes = sizeof(struct args),
	.run = run};

static const struct option_entry must_options[] = {
	{"into", .required = true, .kind = OPTION_TEXT, AT(text), .value = "DIR", .help = "where"},
	{0},
};
static const struct command must = {.name = "group must",
	.summary = "must",
	.options = must_options,
	.args_bytes = sizeof(struct args),
	.run = run};
static const struct command hidden = {.name = "group hidden",
	.args_bytes = sizeof(struct args),
	.defaults = &(const struct args){.number = 5},
	.run = run};
static const struct command group = {.name = "group",
	.summary = "several",
	.commands = (const struct command *const[]){&must, &hidden, NULL}};

static struct args a;
static struct err err;

/* The words of @line, parsed by @c. They stay until the next call. */
static int parse(const struct command *c, const char *line)
{
	static char copy[512];
	static char *argv[64];
	static const struct command *last;
	int argc = 0;

	if (last)
		command_clear(last, &a);
	last = c;
	a = (struct args){0};
	err = (struct err){0};
	snprintf(copy, sizeof(copy), "%s %s", command_word(c), line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	return command_parse(c, argc, argv, &a, &err);
}

static void test_kinds(void)
{
	is_int(parse(&plain, "T"), 0, "an operand alone");
	ok(!a.flag && !a.words.items && !a.rest.items, "leaves all else as it was");
	is_int(parse(&plain,
		       "--flag --text x --stage spdx --format provenance --keep 2s --lease 1500ms "
		       "--size 64K --rate 2.5 --call y --json --save d -n 7 T"),
		0, "one of each kind");
	ok(a.flag && !a.other, "a flag is set");
	is_str(a.text, "x", "a text is as written");
	is_str(a.stage, "spdx", "a text with choices is one of them");
	is_int(a.format, 2, "a choice is an index");
	is_int(a.keep, 2000, "a duration is in milliseconds");
	is_int(a.lease, 2, "a lease is rounded up to seconds");
	is_int(a.size, 65536, "a size has a unit");
	ok(a.rate > 2.49 && a.rate < 2.51, "a number may have a fraction");
	is_str(a.called, "--call=y", "a value is read by a function, which knows the option");
	ok(a.inner.json && !strcmp(a.inner.save, "d"),
		"options of an included table go into its struct");
	is_int(a.number, 7, "an option may have a letter alone");
	ok(parse(&plain, "T --size 1000") == 0 && a.size == 1000, "a size may be plain bytes");
	ok(parse(&plain, "T --config --manifest") == 0 && a.which == 9, "the last of several wins");
	ok(parse(&plain, "T -w a -w b") == 0 && a.words.n == 2 && !a.words.items[2],
		"words are collected");
	is_str(a.words.items[1], "b", "in order");
	ok(parse(&plain, "T -e A=1 -e B=") == 0 && a.env.n == 2, "pairs are collected");
	ok(parse(&plain, "T --mode cold --mode spare") == 0 && a.modes.n == 2,
		"choices are collected");
	ok(parse(&plain, "T --keep 0") == 0 && a.keep == 0, "0 is a duration where it means none");
}

static void refuses(const struct command *c, const char *line, const char *text)
{
	is_int(parse(c, line), -EINVAL, "%s %s is refused", c->name, line);
	is_str(err.text, text, "and told: %s", text);
}

static void test_errors(void)
{
	refuses(&plain, "", "which template?");
	refuses(&plain, "T --jsno", "unknown option --jsno; did you mean --json?");
	refuses(&plain, "T --zzzzzzzz=1", "unknown option --zzzzzzzz");
	refuses(&plain, "T -x", "unknown option -x");
	refuses(&plain, "T -fx", "unknown option -x");
	refuses(&plain, "T --=x", "unknown option --");
	refuses(&plain, "T --keep-lo 0",
		"--keep-long 0: not a duration up to a year; write 500ms, 30s or 5m");
	refuses(&plain, "T --s", "--s: is that --stage or --size?");
}

static void test_values(void)
{
	refuses(&plain, "T -n 0", "-n 0: not a number within 1 to 50");
	refuses(&plain, "T -n51", "-n 51: not a number within 1 to 50");
	refuses(&plain, "T -n -1", "-n -1: not a number within 1 to 50");
	refuses(&plain, "T -n 5x", "-n 5x: not a number within 1 to 50");
	refuses(&plain, "T --rate 0.4", "--rate 0.4: not a number within 0.5 to 10");
	refuses(&plain, "T --rate nan", "--rate nan: not a number within 0.5 to 10");
	refuses(&plain, "T --size 0", "--size 0: not a size; write 1000, 64K or 16M");
	refuses(&plain, "T --size -1", "--size -1: not a size; write 1000, 64K or 16M");
	refuses(&plain, "T --format spxd",
		"--format spxd: must be spdx, cyclonedx or provenance; did you mean spdx?");
	refuses(&plain, "T --mode lukewarm", "--mode lukewarm: must be cold, standby or spare");
	refuses(&plain, "T -e =1", "--env =1: write NAME=VALUE");
	refuses(&plain, "T -e A", "--env A: write NAME=VALUE");
	refuses(&plain, "T -wa -wb -wc", "more than 2 of --word");
	refuses(&plain, "T --call bad", "--call bad: not that");
	refuses(&plain, "T --text", "--text: a value is missing: TEXT");
	refuses(&plain, "T -t", "--text: a value is missing: TEXT");
	refuses(&plain, "T --flag=1", "--flag takes no value");
	refuses(&must, "", "--into DIR is missing");
	refuses(&must, "--into x y", "\"y\" is one word too many");
}

static void test_order(void)
{
	ok(parse(&plain, "T --flag A --text x B") == 0 && a.flag && a.rest.n == 2,
		"options may stand among the operands");
	is_str(a.rest.items[1], "B", "which keep their order");
	ok(parse(&plain, "T --text=a=b") == 0 && !strcmp(a.text, "a=b"), "--name=VALUE");
	ok(parse(&plain, "T --text=") == 0 && !strcmp(a.text, ""), "a value may be empty");
	ok(parse(&plain, "T --text --flag") == 0 && !strcmp(a.text, "--flag") && !a.flag,
		"a value may look like an option");
	ok(parse(&plain, "T -fot x") == 0 && a.flag && a.other && !strcmp(a.text, "x"),
		"letters may stand together, the last with a value");
	ok(parse(&plain, "T -ftx") == 0 && a.flag && !strcmp(a.text, "x"), "which may be attached");
	ok(parse(&plain, "T --fl --man") == 0 && a.flag && a.which == 9, "names may be shortened");
	ok(parse(&plain, "T --keep 1s") == 0 && a.keep == 1000, "a whole name is no shortened one");
	ok(parse(&plain, "- T") == 0 && !strcmp(a.first, "-"), "- is an operand");
	ok(parse(&plain, "-- --flag -n") == 0 && !strcmp(a.first, "--flag") && !a.flag,
		"behind -- there are operands alone");
	is_str(a.rest.items[0], "-n", "however they look");
	ok(parse(&runs, "-f ID -o -- ls -f") == 0 && a.flag && a.other,
		"options before the command");
	ok(!strcmp(a.command[0], "ls") && !strcmp(a.command[1], "-f") && !a.command[2],
		"the command has its own");
	ok(parse(&runs, "ID --") == 0 && !a.command, "-- alone is no command");
	ok(parse(&runs, "ID -- -- x") == 0 && !strcmp(a.command[0], "--"),
		"a second -- is the command's");
	refuses(&runs, "ID ls", "\"ls\": the command goes behind --");
	ok(parse(&stops, "-f T -o -- x") == 0 && a.flag && !a.other && a.rest.n == 3,
		"options end at the first operand where a table says so");
	is_int(parse(&plain, "-fh"), COMMAND_HELP, "help by its letter");
	is_int(parse(&plain, "--help --nonsense"), COMMAND_HELP, "help, before what is wrong");
}

static char *page(const struct command *c, size_t width)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	command_help(c, f, width);
	fclose(f);
	return text;
}

static void test_help(void)
{
	static const size_t widths[] = {40, 60, 80, 200};
	struct option_bound all[COMMAND_OPTIONS_MAX];
	size_t n = command_options(&plain, NULL, all);
	char *text = page(&plain, 80);

	is_int(n, 20, "options of included tables, and --help, are the command's");
	for (size_t i = 0; i < n; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s%s", all[i].entry->name ? " --" : " -n",
			all[i].entry->name ? all[i].entry->name : "");
		has_str(text, name, "the page has%s", name);
	}
	has_str(text, "usage: parbake plain [OPTIONS] FIRST [REST…]\n\ntry things out.\n",
		"a page begins with its usage");
	has_str(text, "\nwhat comes out:\n      --json ", "sections have their headings");
	has_str(text, "--format spdx|cyclonedx|provenance\n", "choices stand for the value");
	has_str(text, "  -e, --env K=V", "letters stand before names");
	has_str(text, "pairs (may be repeated)", "what may be repeated says so");
	has_str(text, "\n\nA note.\n", "notes come last");
	free(text);
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
		size_t widest = 0, at = 0;

		text = page(&plain, widths[i]);
		for (const char *p = text; *p; p++) {
			at = *p == '\n' ? 0 : at + ((*p & 0xc0) != 0x80);
			widest = at > widest ? at : widest;
		}
		ok(widest <= widths[i], "no line of a page for %zu columns is wider: %zu",
			widths[i], widest);
		free(text);
	}
	text = page(&must, 80);
	has_str(text, "usage: parbake group must --into DIR\n",
		"what must be given has no brackets");
	free(text);
	text = page(&group, 80);
	has_str(text, "usage: parbake group must …\n",
		"subcommands stand in the usage, but internal ones");
	has_str(text, "\ncommands:\n  must  must\n", "subcommands stand in a list");
	free(text);
}

static void test_running(void)
{
	is_int(command_main(&plain, 2, (char *[]){"plain", "T", NULL}), 42,
		"the defaults reach the command");
	is_int(command_main(&plain, 4, (char *[]){"plain", "T", "-n", "6", NULL}), CLI_FAILED,
		"an option that is given reaches the command in place of its default");
	is_int(command_main(&plain, 1, (char *[]){"plain", NULL}), CLI_USAGE, "a usage error is 2");
	is_int(command_main(&plain, 2, (char *[]){"plain", "--help", NULL}), CLI_OK,
		"help is no error");
	is_int(command_main(&group, 2, (char *[]){"group", "hidden", NULL}), 42,
		"a subcommand is run");
	is_int(command_main(&group, 2, (char *[]){"group", "mist", NULL}), CLI_USAGE,
		"which must be there");
	is_int(command_main(&group, 1, (char *[]){"group", NULL}), CLI_USAGE,
		"a group without a subcommand is wrong usage");
	ok(command_find(group.commands, "must") == &must && !command_find(group.commands, "group"),
		"commands are found by their last word");
}

int main(void)
{
	test_kinds();
	test_errors();
	test_values();
	test_order();
	test_help();
	test_running();
	parse(&plain, "T");
	command_clear(&plain, &a);
	return tap_done();
}
