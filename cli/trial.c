/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trial of a snapshot that is about to be published: it is restored as any
 * sandbox will be, must pass its own ready check, and what it touches on the way to
 * its first answer is its working set. bake/ calls this through a hook, since it and
 * restore/ know nothing of each other.
 *
 * Two restores: the first records with nothing premapped; the second starts with
 * that working set and must be ready as well, so a working set that breaks a restore
 * is never published.
 */
#include "cli/cli.h"

#include <string.h>

#include "common/clock.h"
#include "common/limits.h"

#define READY_MS 60000

/* What the first call of a sandbox costs: a process, or code in the warm interpreter. */
#define FIRST_CODE "1"
#define FIRST_SHELL ":"

static int run_code(struct sandbox *sb, const char *code, struct err *err)
{
	struct guest_exec_spec spec = {.timeout_ms = READY_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_code(sandbox_guest(sb), NULL, code, &spec, clock_deadline(2 * READY_MS),
		machine_pidfd(sandbox_machine(sb)), &res, err);

	if (r < 0)
		return r;
	if (res.timed_out)
		return err_set(err, ETIMEDOUT, "no answer within %d s", READY_MS / 1000);
	if (res.ename || res.context_gone)
		return err_set(err, EIO, "%s", res.traceback ?: res.ename ?: "the interpreter died");
	return 0;
}

static int run_shell(
	struct sandbox *sb, const struct snapshot_config *config, const char *line, struct err *err)
{
	struct guest_exec_spec spec = {.shell = line, .timeout_ms = READY_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	cleanup_free const char **env = calloc(config->env.n + 1, sizeof(*env));
	int r;

	if (!env)
		abort();
	for (size_t i = 0; i < config->env.n; i++)
		env[i] = config->env.items[i];
	spec.env = env;
	r = guest_exec(sandbox_guest(sb), &spec, clock_deadline(2 * READY_MS),
		machine_pidfd(sandbox_machine(sb)), &res, err);
	if (r < 0)
		return r;
	if (res.timed_out)
		return err_set(err, ETIMEDOUT, "no end within %d s", READY_MS / 1000);
	if (res.exit_signal)
		return err_set(err, EIO, "killed by signal %d: %s%s", res.exit_signal,
			res.out ?: "", res.err ?: "");
	if (res.exit_code)
		return err_set(err, EIO, "exit status %d: %s%s", res.exit_code, res.out ?: "",
			res.err ?: "");
	return 0;
}

int trial_ready(struct sandbox *sb, const struct snapshot_config *config, struct err *err)
{
	int r;

	if (!config->ready)
		return 0;
	if (!strncmp(config->ready, "python:", 7))
		r = run_code(sb, config->ready + 7, err);
	else
		r = run_shell(sb, config, config->ready, err);
	if (r < 0)
		err_prefix(err, "the ready check failed");
	return r;
}

static int restore_once(struct store *s, const struct store_manifest *m,
	const struct template_options *opt, struct snapshot_wset *ret, struct err *err)
{
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	const struct snapshot_config *config;
	int r = template_open(s, m, opt, &t, err);

	if (r < 0)
		return r;
	config = template_config(t);
	r = sandbox_create(t, NULL, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (r < 0)
		return r;
	/* the call a sandbox is made for: its pages belong to the working set */
	if (config->context)
		r = run_code(sb, FIRST_CODE, err);
	else
		r = run_shell(sb, config, FIRST_SHELL, err);
	if (!r && ret && pagerd_way(template_pager(t)) == PAGER_UFFD)
		r = pagerd_recorded(template_pager(t), ret, err);
	if (!r)
		r = trial_ready(sb, config, err);
	if (r < 0)
		sandbox_explain(sb, err);
	return r;
}

int trial_restore(void *user, struct store *s, const struct store_manifest *candidate,
	struct snapshot_wset *ret, struct err *err)
{
	struct template_options record = {
		.own_pager = true,
		/* small windows: what is recorded is what was needed, not its neighbourhood */
		.pager = {.no_premap = true, .record = true, .window_bytes = 4096},
	};
	cleanup_with(snapshot_wset_clear) struct snapshot_wset wset = {0};
	int r;

	(void)user;
	r = restore_once(s, candidate, &record, &wset, err);
	if (r < 0) {
		err_prefix(err, "restore the new snapshot");
		return r;
	}
	r = restore_once(s, candidate, &(struct template_options){.own_pager = true}, NULL, err);
	if (r < 0) {
		err_prefix(err, "restore the new snapshot a second time");
		return r;
	}
	*ret = wset;
	wset = (struct snapshot_wset){0};
	return 0;
}
