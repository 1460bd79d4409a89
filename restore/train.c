/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training happens in a sandbox that was restored without translations, so all that it does is
 * translated. First come the first calls of a sandbox: what is translated by then is marked, since
 * later machines map it at their start, and the rest when they touch it. Then come cells and
 * commands, the programs of restore/programs.h one by one, and the ready check.
 *
 * Programs are given a time and translations a size. A program that brings more than there is room
 * for is found out when it has run, and code cannot be taken back: training is done again, without
 * that one and those behind it.
 */
#include "restore/train.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/str.h"
#include "restore/programs.h"
#include "restore/sandbox_private.h"
#include "restore/translations.h"

#define READY_MS 60000

/* What the first call of a sandbox costs: a process, or code in the warm interpreter. */
static const char *const first_code[] = {"print(6 * 7)", "1"};
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

static const char **copy_env(const struct snapshot_config *config)
{
	const char **env = calloc(config->env.n + 1, sizeof(*env));

	if (!env)
		abort();
	for (size_t i = 0; i < config->env.n; i++)
		env[i] = config->env.items[i];
	return env;
}

static int run_shell(
	struct sandbox *sb, const struct snapshot_config *config, const char *line, struct err *err)
{
	struct guest_exec_spec spec = {.shell = line, .timeout_ms = READY_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	cleanup_free const char **env = copy_env(config);
	int r;

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

int train_ready_check(struct sandbox *sb, const struct snapshot_config *config, struct err *err)
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

int train_first_call(struct sandbox *sb, const struct snapshot_config *config, struct err *err)
{
	int r = 0;

	if (!config->context)
		return run_shell(sb, config, FIRST_SHELL, err);
	for (size_t i = 0; i < sizeof(first_code) / sizeof(*first_code) && !r; i++)
		r = run_code(sb, first_code[i], err);
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

/* What an image of it takes: code, and for each block its places in the tables. */
#define BLOCK_BYTES 40
/* With so much, no further program is tried. */
#define ENOUGH_BYTES (LIMIT_TRANSLATIONS_BYTES / 10 * 9)

static uint64_t image_bytes(const struct machine_translated *t)
{
	return t->bytes + t->blocks * BLOCK_BYTES;
}

static void tell(struct progress *progress, const struct programs_one *p, int64_t took_ns,
	const struct machine_translated *before, const struct machine_translated *after)
{
	char size[16], all[16];

	progress_note(progress,
		"program %s: %.1f s, %llu blocks of code, %s of translations, %s in all", p->name,
		(double)took_ns / 1e9, (unsigned long long)(after->blocks - before->blocks),
		progress_bytes(image_bytes(after) - image_bytes(before), size),
		progress_bytes(image_bytes(after), all));
}

/*
 * Run the first @max programs, as long as there are time and room. -E2BIG: there is no room for
 * program *@ret_fit.
 */
static int run_programs(struct sandbox *sb, const struct snapshot_config *config, size_t max,
	struct progress *progress, size_t *ret_fit, struct err *err)
{
	cleanup_with(strings_clear) struct strings named = {0};
	struct programs_one list[PROGRAMS_MAX];
	size_t n;
	int64_t deadline = clock_deadline(LIMIT_PROGRAMS_MS);
	struct machine *machine = sandbox_machine(sb);
	struct machine_translated before, after;
	cleanup_free const char **env = copy_env(config);
	int r = machine_translated(machine, &before, clock_deadline(READY_MS), NULL);

	if (r < 0)
		return 0; /* a monitor that cannot count them keeps none */
	programs_from_extra(config->extra, &named);
	n = programs_list(
		&named, json_is_true(json_object_get(config->extra, "settled_addresses")), list);
	for (size_t i = 0; i < n && i < max; i++, before = after) {
		int64_t began = clock_now_ns(), left = clock_left_ms(deadline);

		if (left <= 0 || image_bytes(&before) > ENOUGH_BYTES) {
			progress_note(progress, "programs from %s on are left out: %s",
				list[i].name,
				left <= 0 ? "their time is up" : "there is no room left");
			return 0;
		}
		r = programs_run(
			sandbox_guest(sb), machine_pidfd(machine), env, &list[i], left, err);
		if (r < 0)
			return r;
		if (machine_translated(machine, &after, clock_deadline(READY_MS), err) < 0)
			return -EIO;
		if (r > 0)
			tell(progress, &list[i], clock_now_ns() - began, &before, &after);
		if (image_bytes(&after) > LIMIT_TRANSLATIONS_BYTES) {
			*ret_fit = i;
			return err_set(
				err, E2BIG, "no room for the translations of %s", list[i].name);
		}
	}
	return 0;
}

/* As train_candidate(), with @max programs at most. -E2BIG: with *@ret_fit it would do. */
static int train_with(struct store *s, const struct store_manifest *m, size_t max,
	struct progress *progress, size_t *ret_fit, struct err *err)
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
	r = sandbox_create(t, TRAIN_HOSTNAME, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (!r)
		r = train_first_call(sb, config, err);
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
	if (template_trainable(t))
		r = run_programs(sb, config, max, progress, ret_fit, err);
	if (!r)
		r = train_ready_check(sb, config, err);
	if (r < 0) {
		if (r != -E2BIG)
			sandbox_explain(sb, err);
		return r;
	}
	/* a snapshot without them is as good, its sandboxes only start slower */
	r = sandbox_train(sb, clock_deadline(READY_MS), &why);
	if (r < 0 && r != -ENOTSUP)
		log_warn("%s: translated code is not kept: %s", m->name, why.text);
	return 0;
}

int train_candidate(
	struct store *s, const struct store_manifest *m, struct progress *progress, struct err *err)
{
	size_t max = PROGRAMS_MAX;
	int r;

	while ((r = train_with(s, m, max, progress, &max, err)) == -E2BIG)
		progress_note(progress, "%s", err->text);
	return r;
}

int train_template(struct store *s, const struct store_manifest *m, bool wait,
	struct progress *progress, struct err *err)
{
	cleanup_template struct template *t = NULL;
	cleanup_fd int lock = -1;
	int r = template_open(s, m, NULL, &t, err);

	if (r < 0 || !template_trainable(t) || template_trained(t))
		return r;
	lock = translations_lock(template_memory_key(t), wait, err);
	if (lock < 0)
		return lock == -EWOULDBLOCK && !wait ? 0 : lock;
	/* whoever had it may have done it */
	return template_look_for_translations(t) ? 0 : train_candidate(s, m, progress, err);
}
