/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_CLI_H
#define PARBAKE_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/options.h"
#include "common/err.h"
#include "common/json.h"
#include "restore/sandbox.h"
#include "store/store.h"

/* The commands, each a table in its own file. */
extern const struct command command_bench;
extern const struct command command_exec;
extern const struct command command_gc;
extern const struct command command_ls;

/* Those that are no table yet. Each gets its own name as argv[0] and returns an exit status. */
int cmd_bake(int argc, char **argv);
int cmd_code(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_fetch(int argc, char **argv);
int cmd_fork(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_sbom(int argc, char **argv);
int cmd_sign(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_timeout(int argc, char **argv);
/* A verb of `parbake pool`. */
int pool_status_main(int argc, char **argv);
int cmd_verify(int argc, char **argv);

/* The umask that we were started with, for files that are the user's; our own are private. */
extern mode_t cli_umask;

/* Print "parbake: TEXT" to standard error; the value is CLI_FAILED. */
int cli_fail(const struct err *err);
/* Print "parbake NAME: TEXT" and where the usage stands; the value is CLI_USAGE. */
int cli_usage(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Print a subcommand's usage to standard output; the value is CLI_OK. */
int cli_help(const char *name);

struct option;

/*
 * The options of @name, one other word (*@ret_word, NULL: none), which may stand among them, and behind "--" a command
 * (*@ret_argv, NULL: none). @short_options as getopt(3) has them; each goes to @take, which fails with an error. 0, or
 * CLI_USAGE, told. What is given back is @argv's.
 */
int cli_command_line(const char *name, int argc, char **argv, const char *short_options,
	const struct option *options, int (*take)(void *user, int opt, struct err *err), void *user,
	const char **ret_word, const char *const **ret_argv);

/* "NAME=VALUE" into the object @obj. */
int cli_pair(const char *option, const char *text, json_t *obj, struct err *err);
/* Open the store (--store or the default place) and resolve @ref in it. */
int cli_resolve(const char *store_dir, const char *ref, struct store **ret_store,
	struct store_manifest *ret, struct err *err);

#endif
