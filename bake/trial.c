/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trial of a snapshot that is about to be published: it is restored as any sandbox will be,
 * must pass its own ready check, and what it touches on the way to its first answer is its working
 * set.
 *
 * There are two restores. What the monitor of the first one translates is kept for all later
 * sandboxes, so the first one is made to run a little code. The second has those translations, as
 * sandboxes will, and no premapped working set: the memory that it touches is recorded. (A restore
 * that has to translate reads the guest's code as well.)
 */
#include "bake/trial.h"

#include <string.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "restore/sandbox.h"

#define READY_MS 60000

/* What the first call of a sandbox costs: a process, or code in the warm interpreter. */
static const char *const first_code[] = {"print(6 * 7)", "1"};
#define TRIAL_HOSTNAME "trial" /* setting it is part of a create */
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

static int ready_check(struct sandbox *sb, const struct snapshot_config *config, struct err *err)
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

/* The first calls of a sandbox: their pages belong to the working set. */
static int first_call(struct sandbox *sb, const struct snapshot_config *config, struct err *err)
{
	int r = 0;

	if (!config->context)
		return run_shell(sb, config, FIRST_SHELL, err);
	for (size_t i = 0; i < sizeof(first_code) / sizeof(*first_code) && !r; i++)
		r = run_code(sb, first_code[i], err);
	return r;
}

static int restore_once(struct store *s, const struct store_manifest *m,
	const struct template_options *opt, struct snapshot_ranges *ret, struct err *err)
{
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	const struct snapshot_config *config;
	int r = template_open(s, m, opt, &t, err);

	if (r < 0)
		return r;
	config = template_config(t);
	r = sandbox_create(t, TRIAL_HOSTNAME, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (r < 0)
		return r;
	r = first_call(sb, config, err);
	if (!r && pager_client_way(template_pager(t)) == PAGER_UFFD)
		r = pager_client_recorded(template_pager(t), ret, err);
	if (!r)
		r = ready_check(sb, config, err);
	if (r < 0)
		sandbox_explain(sb, err);
	return r;
}

/*
 * What sandboxes are likely to do first, so that what it takes is translated: results, output, errors,
 * loops, calls, imports; processes, pipes, files. This sandbox is thrown away, and what fails in it fails.
 */
static const char *const train_code[] = {"1", "print(6 * 7)",
	"import sys\nprint('a', 1.5, file=sys.stderr)",
	"def f(n, *args, **kwargs):\n    return {str(i): [i ** 2, i / 3] for i in range(n)}\nf(3, "
	"1, a=2)",
	"class A:\n    def __init__(self, x):\n        self.x = x\n"
	"    def __repr__(self):\n        return f'A({self.x!r:>4})'\nA('b')",
	"total = 0\nfor i in range(100):\n    if i % 3 == 0:\n        total += i\n"
	"print('total: %d, %s' % (total, sorted('cab')))",
	"import json, re, os, math, random, datetime\n"
	"json.loads(json.dumps({'a': [1, None, 'x']})), re.findall('[a-z]+', 'ab cd'), "
	"math.sqrt(2), random.random(), os.listdir('/'), str(datetime.datetime.now())",
	"with open('/tmp/parbake-trial', 'w') as f:\n    f.write('x\\n')\n"
	"print(open('/tmp/parbake-trial').read())",
	"try:\n    {}['x']\nexcept KeyError as e:\n    print(repr(e))", "1 / 0", "f(", "2"};
static const char *const train_shell[] = {":", "echo a; echo b >&2; exit 3",
	"cat /etc/hostname | tr a-z A-Z; ls / >/tmp/parbake-trial; cat </dev/null; sleep 0"};

int trial_train(struct store *s, const struct store_manifest *m, struct err *err)
{
	const struct template_options opt = {.own_pager = true, .untrained = true};
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	const struct snapshot_config *config;
	struct err why;
	int r = template_open(s, m, &opt, &t, err);

	if (r < 0)
		return r;
	config = template_config(t);
	r = sandbox_create(t, TRIAL_HOSTNAME, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (!r)
		r = first_call(sb, config, err);
	if (r < 0) {
		if (sb)
			sandbox_explain(sb, err);
		return r;
	}
	machine_save_translations(sandbox_machine(sb), -1, clock_deadline(READY_MS), NULL);
	for (size_t i = 0; config->context && i < sizeof(train_code) / sizeof(*train_code); i++)
		run_code(sb, train_code[i], NULL);
	for (size_t i = 0; i < sizeof(train_shell) / sizeof(*train_shell); i++)
		run_shell(sb, config, train_shell[i], NULL);
	r = ready_check(sb, config, err);
	if (r < 0) {
		sandbox_explain(sb, err);
		return r;
	}
	/* a snapshot without them is as good, its sandboxes only start slower */
	r = sandbox_train(sb, clock_deadline(READY_MS), &why);
	if (r < 0 && r != -ENOTSUP)
		log_warn("%s: translated code is not kept: %s", m->name, why.text);
	return 0;
}

int trial_restore(struct store *s, const struct store_manifest *candidate,
	struct snapshot_ranges *ret, struct err *err)
{
	struct template_options record = {
		.own_pager = true,
		/* small windows: what is recorded is what was needed, not its neighbourhood */
		.pager = {.no_premap = true, .record = true, .window_bytes = 4096},
	};
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges wset = {0};
	int r;

	r = trial_train(s, candidate, err);
	if (r < 0) {
		err_prefix(err, "restore the new snapshot");
		return r;
	}
	r = restore_once(s, candidate, &record, &wset, err);
	if (r < 0) {
		err_prefix(err, "restore the new snapshot a second time");
		return r;
	}
	*ret = wset;
	wset = (struct snapshot_ranges){0};
	return 0;
}

int trial_ready(struct store *s, const struct store_manifest *m, uint64_t *ret_ms, struct err *err)
{
	const struct template_options opt = {.own_pager = true};
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	int64_t begin = clock_now_ns();
	int r = template_open(s, m, &opt, &t, err);

	if (!r)
		r = sandbox_create(t, TRIAL_HOSTNAME, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (!r)
		r = first_call(sb, template_config(t), err);
	if (!r)
		r = ready_check(sb, template_config(t), err);
	if (!r)
		*ret_ms = (uint64_t)(clock_now_ns() - begin) / 1000000;
	else if (sb)
		sandbox_explain(sb, err);
	return r;
}
