/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench bisect GOOD BAD: which commit made creates slower. `git bisect run` in a work tree of its own asks for
 * each commit: is what it builds slower than what GOOD builds, measured in turn? The answers are git's (git-bisect(1)):
 * 0 good, 1 bad, 125 cannot be told: a commit that does not build, a build that makes nothing, a host too busy to
 * decide are no evidence against a commit.
 */
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benches/compare_documents.h"
#include "cli/bench.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/proc.h"
#include "common/str.h"

#define STEP_UNKNOWN 125 /* git-bisect(1): "this commit cannot be tested" */
#define WORDS_MAX 64
#define STEP_VERB "bisect-step"

struct bisect {
	const char *build, *program; /* of a work tree: how, and what is made */
	const char *template, *good, *bad; /* a step: the program that is known to be good */
	struct words words; /* further ones for `bench ab`, perhaps with "--" in front */
};

/* Run it with our own standard output and error; its exit status, or -errno. */
static int run(const char *const *argv, const char *cwd, struct err *err)
{
	cleanup_proc struct proc p = PROC_INIT;
	struct proc_spec spec = {.argv = argv, .cwd = cwd};
	int status, r;

	proc_map_fd(&spec, STDOUT_FILENO, 1);
	proc_map_fd(&spec, STDERR_FILENO, 2);
	r = proc_start(&spec, &p, err);
	if (r == 0)
		r = proc_wait(&p, CLOCK_NEVER, &status);
	if (r < 0)
		return r;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int must(const char *const *argv, const char *cwd, struct err *err)
{
	int status = run(argv, cwd, err);

	if (status > 0)
		return err_set(err, EIO, "%s %s ended with status %d", argv[0], argv[1], status);
	return status;
}

/* This program by its name: what git and a shell start is not this process. Caller frees. */
static char *own_program(void)
{
	return realpath(proc_program(), NULL) ?: str_dup(proc_program());
}

/* Behind the "--" that may stand in front of them. */
static size_t words_begin(const struct bisect *b)
{
	return b->words.n && !strcmp(b->words.items[0], "--") ? 1 : 0;
}

/* ---- one commit ---------------------------------------------------------------------------- */

/* In the commit's work tree. */
static int step(const struct bisect *b)
{
	const char *build[] = {"sh", "-c", b->build, NULL};
	cleanup_free char *here = realpath(".", NULL);
	cleanup_free char *program = str_printf("%s/%s", here ?: ".", b->program);
	cleanup_free char *self = own_program();
	const char *ab[WORDS_MAX + 12] = {
		self, "bench", "ab", "--template", b->template, "--broken-apart"};
	size_t n = 6;
	struct err err = {0};
	int status;

	if (run(build, NULL, &err) != 0) {
		printf("bisect: it does not build: skipped\n");
		return STEP_UNKNOWN;
	}
	for (size_t i = words_begin(b); i < b->words.n; i++)
		ab[n++] = b->words.items[i];
	ab[n++] = "--";
	ab[n++] = b->good;
	ab[n++] = program;
	status = run(ab, NULL, &err);
	if (status == OUTCOME_UNDECIDED) /* another minute may be a better one */
		status = run(ab, NULL, &err);
	return status == OUTCOME_GOOD ? 0 : status == OUTCOME_SLOWER ? 1 : STEP_UNKNOWN;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int add_tree(const char *dir, const char *commit, struct err *err)
{
	return must((const char *const[]){"git", "worktree", "add", "-q", "--detach", dir, commit,
			    NULL},
		NULL, err);
}

static void remove_tree(const char *dir)
{
	struct err err;

	if (access(dir, F_OK) == 0)
		run((const char *const[]){"git", "worktree", "remove", "--force", dir, NULL}, NULL,
			&err);
}

static int bisect_in(const struct bisect *b, const char *good, const char *bad,
	const char *good_tree, const char *work, struct err *err)
{
	cleanup_free char *program = str_printf("%s/%s", good_tree, b->program);
	cleanup_free char *self = own_program();
	const char *words[WORDS_MAX + 20] = {"git", "bisect", "run", self, "bench", STEP_VERB,
		"--build", b->build, "--program", b->program, "--template", b->template, "--good",
		program};
	size_t n = 14;
	int r;

	if ((r = add_tree(good_tree, good, err)) < 0 || (r = add_tree(work, bad, err)) < 0)
		return r;
	r = must((const char *const[]){"sh", "-c", b->build, NULL}, good_tree, err);
	if (r < 0) {
		err_prefix(err, "build %s", good);
		return r;
	}
	r = must((const char *const[]){"git", "bisect", "start", bad, good, NULL}, work, err);
	if (r < 0)
		return r;
	words[n++] = "--";
	for (size_t i = words_begin(b); i < b->words.n; i++)
		words[n++] = b->words.items[i];
	r = run(words, work, err);
	run((const char *const[]){"git", "bisect", "reset", NULL}, work, &(struct err){0});
	return r;
}

static int bisect(const struct bisect *b, const char *good, const char *bad)
{
	const char *tmp = getenv("TMPDIR");
	cleanup_free char *dir = str_printf("%s/parbake-bisect.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	cleanup_free char *good_tree = NULL, *work = NULL;
	struct err err = {0};
	int r;

	if (!mkdtemp(dir)) {
		err_sys(&err, errno, "make a directory: %s", dir);
		return cli_fail(&err);
	}
	good_tree = str_printf("%s/good", dir);
	work = str_printf("%s/work", dir);
	r = bisect_in(b, good, bad, good_tree, work, &err);
	remove_tree(good_tree);
	remove_tree(work);
	file_remove_tree(AT_FDCWD, dir, &(struct err){0});
	if (r < 0)
		return cli_fail(&err);
	return r == 0 ? CLI_OK : CLI_FAILED;
}

static int run_bisect(void *args)
{
	const struct bisect *b = args;

	if (b->words.n > WORDS_MAX)
		return command_usage(
			&command_bench_bisect, "more than %d words for `bench ab`", WORDS_MAX);
	return bisect(b, b->good, b->bad);
}

static int run_step(void *args)
{
	const struct bisect *b = args;

	return b->good && b->template && b->words.n <= WORDS_MAX ? step(b) : STEP_UNKNOWN;
}

static const struct option_entry options[] = {
	{"template", .kind = OPTION_TEXT, .required = true, .names = NAMES_TEMPLATE,
		.offset = offsetof(struct bisect, template), .value = "TEMPLATE",
		.help = "what is created"},
	{"build", .kind = OPTION_TEXT, .offset = offsetof(struct bisect, build), .value = "COMMAND",
		.help = "builds a commit (make -s all kernel monitor)"},
	{"program", .kind = OPTION_TEXT, .offset = offsetof(struct bisect, program),
		.value = "PATH", .help = "what that makes (parbake)"},
	{0},
};

static const struct operand_entry operands[] = {
	{"GOOD", .offset = offsetof(struct bisect, good)},
	{"BAD", .offset = offsetof(struct bisect, bad)},
	{"OPTIONS", .optional = true, .many = true, .offset = offsetof(struct bisect, words)},
	{0},
};

#define BUILD "make -s -j\"$(nproc)\" all kernel monitor"

const struct command command_bench_bisect = {
	.name = "bench bisect",
	.summary = "find the commit that made creates slower: git bisect run by bench ab",
	.notes = "OPTIONS are those of `bench ab`, behind a \"--\".",
	.options = options,
	.operands = operands,
	.stops = true,
	.args_bytes = sizeof(struct bisect),
	.defaults = &(const struct bisect){.build = BUILD, .program = "parbake"},
	.run = run_bisect,
};

/* What `git bisect run` runs: whatever is wrong with its words says nothing of a commit. */
static const struct option_entry step_options[] = {
	{"template", .kind = OPTION_TEXT, .offset = offsetof(struct bisect, template)},
	{"build", .kind = OPTION_TEXT, .offset = offsetof(struct bisect, build)},
	{"program", .kind = OPTION_TEXT, .offset = offsetof(struct bisect, program)},
	{"good", .kind = OPTION_TEXT, .offset = offsetof(struct bisect, good)},
	{0},
};

static const struct operand_entry step_operands[] = {
	{"OPTIONS", .optional = true, .many = true, .offset = offsetof(struct bisect, words)},
	{0},
};

const struct command command_bench_bisect_step = {
	.name = "bench " STEP_VERB,
	.options = step_options,
	.operands = step_operands,
	.stops = true,
	.args_bytes = sizeof(struct bisect),
	.defaults = &(const struct bisect){.build = BUILD, .program = "parbake"},
	.run = run_step,
};
