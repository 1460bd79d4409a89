/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake completion: a script for a shell, which asks `parbake completion words -- WORD…` at each key what the last of
 * these words could become. The answer comes from the commands' own tables and from what is there: templates, recipes,
 * sandboxes. It is a line a candidate, the word and (behind a tab) what it is for; a line ":files" or ":dirs" says that
 * names of files or directories would do as well. Nothing is told where something cannot be read.
 */
#include "cli/cli.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/recipes.h"
#include "common/str.h"

/* How long a shell waits for a daemon that does not answer. */
#define ASK_S 10

struct args {
	struct words words;
};

/* ---- candidates ---------------------------------------------------------------------------- */

/* What is typed: candidates begin with @word, and are printed behind @before ("--store="). */
struct typed {
	const char *before, *word;
	const char *store_dir;
};

static void offer(const struct typed *t, const char *word, const char *help)
{
	if (!strncmp(word, t->word, strlen(t->word)))
		printf("%s%s%s%s\n", t->before, word, help ? "\t" : "", help ? help : "");
}

static void offer_templates(const struct typed *t)
{
	cleanup_store struct store *s = NULL;
	struct store_manifest *list = NULL;
	size_t n = 0;

	if (store_open(t->store_dir, false, &s, NULL) < 0 || store_list(s, &list, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		cleanup_free char *named = str_printf("%s:%s", list[i].name, list[i].tag);

		offer(t, strcmp(list[i].tag, "latest") ? named : list[i].name, list[i].created);
	}
	for (size_t i = 0; i < n; i++)
		store_manifest_clear(&list[i]);
	free(list);
}

static void offer_recipes(const struct typed *t)
{
	struct recipe_dirs dirs = {0};

	recipe_dirs_find(&dirs);
	for (size_t i = 0; dirs.items[i]; i++) {
		DIR *d = opendir(dirs.items[i]);
		struct dirent *e;

		while (d && (e = readdir(d))) {
			size_t len = strlen(e->d_name);

			if (len > 4 && !strcmp(e->d_name + len - 4, ".ini")) {
				e->d_name[len - 4] = '\0';
				offer(t, e->d_name, NULL);
			}
		}
		if (d)
			closedir(d);
	}
	recipe_dirs_clear(&dirs);
}

static void offer_sandboxes(const struct typed *t)
{
	cleanup_client struct client *c = NULL;
	cleanup_json json_t *list = NULL;
	json_t *one;
	size_t i;

	alarm(ASK_S); /* which ends us */
	if (client_new(&c, NULL) < 0 || client_list(c, NULL, &list, NULL) < 0)
		return;
	alarm(0);
	json_array_foreach(list, i, one)
	{
		const char *alias = client_string(one, "alias");

		offer(t, client_string(one, "sandboxID"),
			*alias ? alias : client_string(one, "templateID"));
	}
}

static void offer_named(const struct typed *t, enum option_names names)
{
	if (names == NAMES_TEMPLATE)
		offer_templates(t);
	if (names == NAMES_RECIPE)
		offer_recipes(t);
	if (names == NAMES_SANDBOX)
		offer_sandboxes(t);
	if (names == NAMES_FILE || names == NAMES_RECIPE)
		printf(":files\n");
	if (names == NAMES_DIR)
		printf(":dirs\n");
}

static void offer_value(const struct typed *t, const struct option_entry *o)
{
	for (size_t i = 0; o->choices && o->choices[i]; i++)
		offer(t, o->choices[i], NULL);
	offer_named(t, o->names);
}

static void offer_options(const struct typed *t, const struct option_bound *options, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct option_entry *o = options[i].entry;
		cleanup_free char *word =
			o->name ? str_printf("--%s", o->name) : str_printf("-%c", o->letter);

		offer(t, word, o->help);
	}
}

static void offer_commands(const struct typed *t, const struct command *const *list)
{
	for (; *list; list++) {
		if ((*list)->summary)
			offer(t, command_word(*list), (*list)->summary);
	}
}

/* ---- what is typed ------------------------------------------------------------------------- */

/* The option with this name of @len bytes, or (no name) with this letter; NULL: none. */
static const struct option_entry *find_option(
	const struct option_bound *options, size_t n, const char *name, size_t len, char letter)
{
	for (size_t i = 0; i < n; i++) {
		const struct option_entry *o = options[i].entry;

		if (name ? o->name && !strncmp(o->name, name, len) && !o->name[len]
			 : o->letter == letter)
			return o;
	}
	return NULL;
}

/* The option that @word is and whose value the next word is; NULL: none. */
static const struct option_entry *takes_next(
	const char *word, const struct option_bound *options, size_t n)
{
	const struct option_entry *o = NULL;

	if (word[0] != '-')
		return NULL;
	if (word[1] == '-')
		o = find_option(options, n, word + 2, strlen(word + 2), 0);
	/* of letters, the last; one before it that takes a value has it attached */
	for (size_t i = 1; word[1] != '-' && word[i]; i++) {
		o = find_option(options, n, NULL, 0, word[i]);
		if (o && option_has_value(o) && word[i + 1])
			return NULL;
	}
	return o && option_has_value(o) ? o : NULL;
}

static const struct operand_entry *operand_at(const struct command *c, size_t at)
{
	for (const struct operand_entry *o = c->operands; o && o->name; o++) {
		if (o->names != NAMES_COMMAND && (at == 0 || o->many))
			return o;
		at -= at > 0;
	}
	return NULL;
}

/* The value of the option "--name=VALUE" that @word is. */
static void complete_attached(struct typed *t, const struct option_bound *options, size_t n)
{
	size_t len = strcspn(t->word, "=");
	const struct option_entry *o = find_option(options, n, t->word + 2, len - 2, 0);
	cleanup_free char *before = str_printf("%.*s=", (int)len, t->word);

	t->before = before;
	t->word += len + 1;
	if (o && option_has_value(o))
		offer_value(t, o);
}

/* @words: those behind the command, the last of which is to be completed. */
static void complete_words(const struct command *c, const char *const *words, size_t n)
{
	struct option_bound options[COMMAND_OPTIONS_MAX];
	size_t n_options = command_options(c, NULL, options), operands = 0;
	struct typed t = {"", words[n - 1], NULL};
	const struct option_entry *pending = NULL;
	const struct operand_entry *operand;
	bool behind = false;

	for (size_t i = 0; i + 1 < n; i++) {
		if (pending) {
			if (pending->name && !strcmp(pending->name, "store"))
				t.store_dir = words[i];
			pending = NULL;
			continue;
		}
		if (!behind && !strcmp(words[i], "--")) {
			behind = true;
			continue;
		}
		pending = behind ? NULL : takes_next(words[i], options, n_options);
		operands += behind || words[i][0] != '-' || !words[i][1];
	}
	operand = operand_at(c, operands);
	if (pending)
		offer_value(&t, pending);
	else if (!behind && !strncmp(t.word, "--", 2) && strchr(t.word, '='))
		complete_attached(&t, options, n_options);
	else if (!behind && t.word[0] == '-')
		offer_options(&t, options, n_options);
	else if (operand)
		offer_named(&t, operand->names);
}

static int complete(void *user)
{
	const struct args *a = user;
	const struct command *const *list = cli_commands;
	const char *const *words = a->words.items;
	size_t n = a->words.n;
	const struct command *c;

	/* `help` is followed by commands, as parbake itself is */
	if (n > 1 && !strcmp(words[0], "help"))
		words++, n--;
	for (; n > 1; words++, n--) {
		c = command_find(list, words[0]);
		if (c && !c->commands)
			complete_words(c, words + 1, n - 1);
		if (!c || !c->commands)
			return CLI_OK;
		list = c->commands;
	}
	if (n == 1)
		offer_commands(&(struct typed){"", words[0], NULL}, list);
	if (a->words.n == 1) {
		offer(&(struct typed){"", words[0], NULL}, "help", "tell a command's options");
		offer(&(struct typed){"", words[0], NULL}, "version", "say which parbake this is");
	}
	return CLI_OK;
}

/* ---- scripts ------------------------------------------------------------------------------- */

/* Words are taken from the line itself: bash cuts its own at : and = as well, and wants back what is behind these. */
static const char bash_script[] =
	"_parbake() {\n"
	"	local line words word cut full\n"
	"	read -ra words <<<\"${COMP_LINE:0:COMP_POINT}\"\n"
	"	[[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=('')\n"
	"	word=${words[-1]}\n"
	"	cut=${word%\"${word##*[:=]}\"}\n"
	"	COMPREPLY=()\n"
	"	while IFS= read -r line; do\n"
	"		case $line in\n"
	"		:files | :dirs)\n"
	"			compopt -o filenames\n"
	"			while IFS= read -r full; do COMPREPLY+=(\"$full\"); done < <(\n"
	"				compgen -\"${line:1:1}\" -- \"${word#\"$cut\"}\")\n"
	"			;;\n"
	"		*)\n"
	"			full=${line%%$'\\t'*}\n"
	"			COMPREPLY+=(\"${full#\"$cut\"}\")\n"
	"			;;\n"
	"		esac\n"
	"	done < <(\"$1\" completion words -- \"${words[@]:1}\" 2>/dev/null)\n"
	"}\n"
	"complete -F _parbake parbake\n";

static const char zsh_script[] =
	"#compdef parbake\n"
	"_parbake() {\n"
	"	local line\n"
	"	local -a names shown\n"
	"	while IFS= read -r line; do\n"
	"		case $line in\n"
	"		:files) _files ;;\n"
	"		:dirs) _files -/ ;;\n"
	"		*)\n"
	"			names+=(\"${line%%$'\\t'*}\")\n"
	"			shown+=(\"${line/$'\\t'/  -- }\")\n"
	"			;;\n"
	"		esac\n"
	"	done < <($words[1] completion words -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
	"	compadd -l -d shown -a names\n"
	"}\n"
	"if [ \"$funcstack[1]\" = _parbake ]; then _parbake \"$@\"; else compdef _parbake parbake; "
	"fi\n";

static const char fish_script[] =
	"function __parbake_words\n"
	"	set -l words (commandline -opc)\n"
	"	set -l word (commandline -ct)\n"
	"	for line in ($words[1] completion words -- $words[2..] \"$word\" 2>/dev/null)\n"
	"		switch $line\n"
	"			case :files :dirs\n"
	"				__fish_complete_path \"$word\"\n"
	"			case '*'\n"
	"				echo $line\n"
	"		end\n"
	"	end\n"
	"end\n"
	"complete -c parbake -f -a '(__parbake_words)'\n";

static int print_script(void *user)
{
	fputs(*(const char *const *)user, stdout);
	return CLI_OK;
}

static const struct operand_entry words_operands[] = {{"WORD", AT(words), .many = true}, {0}};

/* What the scripts ask. */
static const struct command command_words = {"completion words", .operands = words_operands,
	.args_bytes = sizeof(struct args), .run = complete};

#define SCRIPT(shell, how)                                                                         \
	static const struct command command_##shell = {"completion " #shell, "to try it: " how,    \
		.args_bytes = sizeof(const char *),                                                \
		.defaults = &(const char *const){shell##_script}, .run = print_script}

SCRIPT(bash, "source <(parbake completion bash)");
SCRIPT(zsh, "source <(parbake completion zsh)");
SCRIPT(fish, "parbake completion fish | source");

const struct command command_completion = {"completion",
	"print a script by which a shell completes parbake's words",
	.notes = "`make install` puts the scripts where the shells look for them.",
	.commands = (const struct command *const[]){
		&command_bash, &command_zsh, &command_fish, &command_words, NULL}};
