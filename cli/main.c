/* SPDX-License-Identifier: Apache-2.0 */
/* The `parbake` program: the list of its commands, and what they share. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benches/document.h"
#include "common/nearest.h"
#include "pool/keeper/keeper.h"
#include "pool/publish.h"
#include "restore/pager/pager.h"
#include "restore/train.h"

const struct command *const cli_commands[] = {
	&command_bake,
	&command_fetch,
	&command_run,
	&command_ls,
	&command_inspect,
	&command_diff,
	&command_sbom,
	&command_sign,
	&command_verify,
	&command_rm,
	&command_gc,
	&command_bench,
	&command_pool,
	&command_create,
	&command_ps,
	&command_exec,
	&command_cp,
	&command_code,
	&command_kill,
	&command_pause,
	&command_resume,
	&command_fork,
	&command_snapshot,
	&command_timeout,
	&command_logs,
	&command_stats,
	&command_doctor,
	&command_completion,
	NULL,
};

#define N_COMMANDS (sizeof(cli_commands) / sizeof(*cli_commands) - 1)

int cli_fail(const struct err *err)
{
	fprintf(stderr, "parbake: %s\n", err->text);
	return CLI_FAILED;
}

static int help(FILE *to)
{
	fprintf(to,
		"parbake %s: bake microVM templates, make sandboxes from them in milliseconds\n\n",
		PARBAKE_VERSION);
	command_list(cli_commands, to, command_help_width());
	fprintf(to, "  %-10s  %s\n", "version", "say which parbake this is");
	fprintf(to,
		"\n`parbake help COMMAND` tells more; so do parbake(1), parbake-recipe(5) and "
		"parbake-pool(5).\n");
	return to == stdout ? CLI_OK : CLI_USAGE;
}

static int unknown(const char *name)
{
	const char *names[N_COMMANDS];
	const char *near;

	for (size_t i = 0; i < N_COMMANDS; i++)
		names[i] = cli_commands[i]->name;
	near = nearest_name(name, names, N_COMMANDS);
	fprintf(stderr, "parbake: there is no command \"%s\"%s%s%s; see `parbake help`\n", name,
		near ? " (do you mean \"" : "", near ? near : "", near ? "\"?)" : "");
	return CLI_USAGE;
}

/* The page of the command that @words name, or the list of all. */
static int help_of(int n, char **words)
{
	const struct command *c, *next;

	if (n == 0 || words[0][0] == '-' || !strcmp(words[0], "help") ||
		!strcmp(words[0], "version"))
		return help(stdout);
	c = command_find(cli_commands, words[0]);
	for (int i = 1; c && c->commands && i < n; i++, c = next) {
		next = command_find(c->commands, words[i]);
		if (!next)
			return command_main(c, 2, (char *[]){words[i - 1], words[i], NULL});
	}
	if (!c)
		return unknown(words[0]);
	command_help(c, stdout, command_help_width());
	return CLI_OK;
}

int cli_resolve(const char *store_dir, const char *ref, struct store **ret_store,
	struct store_manifest *ret, struct err *err)
{
	cleanup_store struct store *s = NULL;
	int r = store_open(store_dir, false, &s, err);

	if (r < 0)
		return r;
	r = store_resolve(s, ref, ret, err);
	if (r < 0)
		return r;
	*ret_store = steal_ptr(&s);
	return 0;
}

mode_t cli_umask = 022;

/*
 * Standard streams that were closed: what is opened next must not take their place, and be read or
 * written as one. An absent input is empty; writing to an absent output goes on to fail.
 */
static bool fill_standard_fds(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			return false;
	}
	return true;
}

static int dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct command *c;

	if (!name)
		return help(stderr);
	if (!strcmp(name, "--version") || !strcmp(name, "version")) {
		printf("parbake %s\n", PARBAKE_VERSION);
		return CLI_OK;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
		return help_of(argc - 2, argv + 2);
	if (!strcmp(name, "pager")) /* internal: started by pager_client_connect() */
		return pager_process_main(argc, argv);
	if (!strcmp(name, "pool-publish")) /* internal: started by the pool */
		return pool_publish_main(argc, argv);
	if (!strcmp(name, "train")) /* internal: started by train_in_background() */
		return train_main(argc, argv);
	if (!strcmp(name, "zygote")) /* internal: started by zygote_start() */
		return zygote_main(argc, argv);
	c = command_find(cli_commands, name);
	return c ? command_main(c, argc - 1, argv + 1) : unknown(name);
}

int main(int argc, char **argv)
{
	int status;

	if (!fill_standard_fds())
		return CLI_FAILED;
	/* what we make is nobody else's, and ours to read, whoever started us */
	cli_umask = umask(077);
	bench_file_mode = 0666 & ~cli_umask;
	/* a peer that went away is an error of one call, not the end of the program */
	signal(SIGPIPE, SIG_IGN);
	/* who started us may ignore it, and then children leave no status (sigaction(2)) */
	signal(SIGCHLD, SIG_DFL);
	status = dispatch(argc, argv);
	/* what could not be written was not said */
	if ((fflush(stdout) == 0 && !ferror(stdout)) || status != CLI_OK)
		return status;
	fprintf(stderr, "parbake: standard output could not be written: %s\n", strerror(errno));
	return argc > 1 && (!strcmp(argv[1], "run") || !strcmp(argv[1], "exec")) ? CLI_NOT_RUN
										 : CLI_FAILED;
}
