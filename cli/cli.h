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
extern const struct command command_bake;
extern const struct command command_bench;
extern const struct command command_code;
extern const struct command command_completion;
extern const struct command command_cp;
extern const struct command command_create;
extern const struct command command_diff;
extern const struct command command_doctor;
extern const struct command command_exec;
extern const struct command command_fetch;
extern const struct command command_fork;
extern const struct command command_gc;
extern const struct command command_inspect;
extern const struct command command_kill;
extern const struct command command_logs;
extern const struct command command_ls;
extern const struct command command_pause;
extern const struct command command_pool;
extern const struct command command_ps;
extern const struct command command_resume;
extern const struct command command_rm;
extern const struct command command_run;
extern const struct command command_sbom;
extern const struct command command_sign;
extern const struct command command_snapshot;
extern const struct command command_stats;
extern const struct command command_timeout;
extern const struct command command_verify;
/* A subcommand of `parbake pool`. */
extern const struct command command_pool_status;

/* All of them, ended by NULL. */
extern const struct command *const cli_commands[];

/* The umask that we were started with, for files that are the user's; our own are private. */
extern mode_t cli_umask;

/* Print "parbake: TEXT" to standard error; the value is CLI_FAILED. */
int cli_fail(const struct err *err);
/* Open the store (--store or the default place) and resolve @ref in it. */
int cli_resolve(const char *store_dir, const char *ref, struct store **ret_store,
	struct store_manifest *ret, struct err *err);

#endif
