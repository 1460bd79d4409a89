/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of two builds in turn, each as if it were alone: a process of its own for each run, with PARBAKE_HOME pointing to
 * a directory made for it, where store and cache are links to the real ones and the run directory is its own. The
 * pager that it starts there leaves with it.
 */
#include "cli/bench_side.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benches/document.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/paths.h"
#include "common/proc.h"
#include "common/str.h"

#define WAIT_MS 50
#define WORDS_MAX (BENCH_SIDE_WORDS + 48)
#define SAID_MAX 2000 /* bytes of a run's last words that are kept */

extern char **environ;

/* ---- words --------------------------------------------------------------------------------- */

static bool is_variable(const char *word)
{
	size_t name =
		strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return name > 0 && word[name] == '=' && !(word[0] >= '0' && word[0] <= '9');
}

static int take_word(struct bench_side *side, const char *word, size_t *n_variables,
	size_t *n_options, struct err *err)
{
	const char **one = strchr(word, '/') ? &side->program : &side->template;

	if (!strncmp(word, "--", 2)) {
		side->options[(*n_options)++] = word;
		return 0;
	}
	if (is_variable(word)) {
		side->variables[(*n_variables)++] = word;
		return 0;
	}
	if (*one)
		return err_set(err, EINVAL, "two %s: %s and %s",
			one == &side->program ? "programs" : "templates", *one, word);
	*one = word;
	return 0;
}

int bench_side_parse(
	const char *word, const char *template, struct bench_side *ret, struct err *err)
{
	struct bench_side side = {.text = str_dup(word)};
	size_t n_variables = 0, n_options = 0, n = 0;
	char *save = NULL;
	int r = 0;

	for (char *at = strtok_r(side.text, " \t\n", &save); at && r == 0;
		at = strtok_r(NULL, " \t\n", &save)) {
		r = n++ == BENCH_SIDE_WORDS
			? err_set(err, E2BIG, "more than %d words", BENCH_SIDE_WORDS)
			: take_word(&side, at, &n_variables, &n_options, err);
	}
	side.template = side.template ?: template;
	if (r == 0 && !side.template)
		r = err_set(err, EINVAL, "\"%s\" names no template: add one, or --template", word);
	if (r == 0 && side.program && access(side.program, X_OK) < 0)
		r = err_sys(err, errno, "the program %s", side.program);
	if (r < 0) {
		bench_side_clear(&side);
		return r;
	}
	*ret = side;
	return 0;
}

void bench_side_clear(struct bench_side *side)
{
	free(side->text);
	*side = (struct bench_side){0};
}

/* ---- stopping ------------------------------------------------------------------------------ */

static volatile sig_atomic_t stop_signal;

static void on_signal(int sig)
{
	stop_signal = sig;
}

void bench_stop_on_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_signal};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

/* Has a signal asked for an end? Its number, or 0. */
int bench_stop_asked(void)
{
	return stop_signal;
}

/* ---- a run --------------------------------------------------------------------------------- */

/* A home whose store and cache are the real ones. Caller removes it, and frees *@ret. */
static int make_home(const char *store_dir, char **ret, struct err *err)
{
	const char *tmp = getenv("TMPDIR"), *store = store_dir, *cache;
	cleanup_free char *home = str_printf("%s/parbake-run.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	cleanup_free char *store_link = NULL, *cache_link = NULL, *real = NULL;
	int r = store ? 0 : paths_get(PATHS_STORE, &store, err);

	if (r < 0 || (r = paths_get(PATHS_CACHE, &cache, err)) < 0)
		return r;
	real = realpath(store, NULL);
	if (!real)
		return err_sys(err, errno, "the store %s", store);
	if (!mkdtemp(home))
		return err_sys(err, errno, "make a directory for a run: %s", home);
	store_link = str_printf("%s/store", home);
	cache_link = str_printf("%s/cache", home);
	if (symlink(real, store_link) < 0 || symlink(cache, cache_link) < 0) {
		r = err_sys(err, errno, "fill the directory of a run");
		file_remove_tree(AT_FDCWD, home, &(struct err){0});
		return r;
	}
	*ret = steal_ptr(&home);
	return 0;
}

/* Environment of a run: this process's, but for PARBAKE_HOME and PARBAKE_EXE, and the side's. Caller frees the list. */
static const char **make_environment(const struct bench_side *side, const char *home)
{
	size_t n = 0, kept = 0;
	const char **env;

	while (environ[n])
		n++;
	env = calloc(n + BENCH_SIDE_WORDS + 2, sizeof(*env));
	if (!env)
		abort();
	for (size_t i = 0; i < n; i++) {
		const char *one = environ[i];
		bool replaced =
			!strncmp(one, "PARBAKE_HOME=", 13) || !strncmp(one, "PARBAKE_EXE=", 12);

		for (size_t j = 0; side->variables[j] && !replaced; j++) {
			size_t name = strcspn(side->variables[j], "=") + 1;

			replaced = !strncmp(one, side->variables[j], name);
		}
		if (!replaced)
			env[kept++] = one;
	}
	env[kept++] = home;
	for (size_t j = 0; side->variables[j]; j++)
		env[kept++] = side->variables[j];
	return env;
}

/* The last line that the run said. */
static void last_words(int fd, char ret[static SAID_MAX])
{
	off_t end = lseek(fd, 0, SEEK_END), from = end > SAID_MAX - 1 ? end - (SAID_MAX - 1) : 0;
	ssize_t n = end > 0 ? pread(fd, ret, SAID_MAX - 1, from) : 0;
	char *line;

	ret[n > 0 ? n : 0] = '\0';
	while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == ' '))
		ret[--n] = '\0';
	line = strrchr(ret, '\n');
	if (line)
		memmove(ret, line + 1, strlen(line + 1) + 1);
}

static int wait_for(struct proc *p, int64_t deadline, int *ret_status, struct err *err)
{
	int r;

	do {
		r = proc_wait(p, clock_deadline(WAIT_MS), ret_status);
		if (r == -ETIMEDOUT && bench_stop_asked())
			return err_set(err, EINTR, "stopped");
		if (r == -ETIMEDOUT && clock_now_ns() > deadline)
			return err_set(err, ETIMEDOUT, "it was not done in time");
	} while (r == -ETIMEDOUT);
	return r < 0 ? err_sys(err, -r, "wait for a run") : 0;
}

static int run_in(const struct bench_side *side, const struct bench_side_run *rq, const char *home,
	json_t **ret, struct err *err)
{
	const char *argv[WORDS_MAX] = {
		side->program ?: proc_program(), "bench", "create", side->template};
	cleanup_free char *save = str_printf("%s/run.json", home);
	cleanup_free char *home_variable = str_printf("PARBAKE_HOME=%s", home);
	cleanup_free const char **env = make_environment(side, home_variable);
	cleanup_proc struct proc p = PROC_INIT;
	struct proc_spec spec = {
		.argv = argv, .env = env, .die_with_parent = true, .new_session = true};
	cleanup_fd int said = memfd_create("parbake-run", MFD_CLOEXEC);
	char words[SAID_MAX];
	int status = 0, r;
	size_t n = 4;

	for (size_t i = 0; rq->create[i] && n < WORDS_MAX - 4; i++)
		argv[n++] = rq->create[i];
	for (size_t i = 0; side->options[i] && n < WORDS_MAX - 4; i++)
		argv[n++] = side->options[i];
	argv[n++] = "--save";
	argv[n++] = save;
	if (said < 0)
		return err_sys(err, errno, "keep what a run says");
	proc_map_fd(&spec, said, 2);
	r = proc_start(&spec, &p, err);
	if (r == 0)
		r = wait_for(&p, rq->deadline, &status, err);
	if (r < 0)
		return r;
	/* failed creates make its status 1; they are in its document */
	if (access(save, F_OK) == 0)
		return bench_document_read(save, ret, err);
	last_words(said, words);
	return err_set(err, EIO, "%s left no document (%s %d): %s", argv[0],
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), words);
}

int bench_side_measure(const struct bench_side *side, const struct bench_side_run *rq, json_t **ret,
	struct err *err)
{
	cleanup_free char *home = NULL;
	int r = make_home(rq->store_dir, &home, err);

	if (r < 0)
		return r;
	r = run_in(side, rq, home, ret, err);
	file_remove_tree(AT_FDCWD, home, &(struct err){0});
	return r;
}
