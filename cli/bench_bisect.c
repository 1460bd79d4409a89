/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench bisect GOOD BAD: which commit made creates slower. `git bisect run` in a work tree of its own asks for
 * each commit: is what it builds slower than what GOOD builds, measured in turn? The answers are git's (git-bisect(1)):
 * 0 good, 1 bad, 125 cannot be told: a commit that does not build, a build that makes nothing, a host too busy to
 * decide are no evidence against a commit.
 */
#include <fcntl.h>
#include <limits.h>
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
	const char *template, *good; /* a step: the program that is known to be good */
	const char *words[WORDS_MAX]; /* further ones for `bench ab` */
	size_t n_words;
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
	for (size_t i = 0; i < b->n_words; i++)
		ab[n++] = b->words[i];
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
	for (size_t i = 0; i < b->n_words; i++)
		words[n++] = b->words[i];
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

static int parse(int argc, char **argv, struct bisect *b)
{
	static const struct option options[] = {
		{"build", required_argument, NULL, 'b'},
		{"program", required_argument, NULL, 'p'},
		{"template", required_argument, NULL, 't'},
		{"good", required_argument, NULL, 'g'},
		{NULL, 0, NULL, 0},
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (opt == 'b')
			b->build = optarg;
		else if (opt == 'p')
			b->program = optarg;
		else if (opt == 't')
			b->template = optarg;
		else if (opt == 'g')
			b->good = optarg;
		else
			return cli_usage("bench", "see above");
	}
	return 0;
}

static int take_words(int argc, char **argv, int from, struct bisect *b)
{
	if (from < argc && !strcmp(argv[from], "--"))
		from++;
	if (argc - from > WORDS_MAX)
		return cli_usage("bench", "more than %d words for `bench ab`", WORDS_MAX);
	for (int i = from; i < argc; i++)
		b->words[b->n_words++] = argv[i];
	return 0;
}

int bench_bisect_main(int argc, char **argv)
{
	struct bisect b = {
		.build = "make -s -j\"$(nproc)\" all kernel monitor", .program = "parbake"};
	bool is_step = !strcmp(argv[0], STEP_VERB);
	int r = parse(argc, argv, &b);

	if (r != 0)
		return r;
	if (is_step) {
		r = b.good && b.template ? take_words(argc, argv, optind, &b) : CLI_USAGE;
		return r != 0 ? STEP_UNKNOWN : step(&b);
	}
	if (argc - optind < 2 || !b.template)
		return cli_usage("bench",
			"write `bench bisect --template TEMPLATE [--build COMMAND] [--program "
			"PATH] GOOD BAD [-- "
			"OPTIONS OF BENCH AB]`");
	r = take_words(argc, argv, optind + 2, &b);
	return r != 0 ? r : bisect(&b, argv[optind], argv[optind + 1]);
}
