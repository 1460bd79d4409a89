/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench density: how much memory N sandboxes of a template take, idle (they have answered
 * and do nothing) and busy (each has done a piece of work), beside one machine that was booted.
 * Counted as the proportional set size: a page that n processes map counts 1/n in each. The
 * pager, which all of them share, is counted once.
 *
 * Guest memory is the mapping of the template's memfd, apart from what the monitor itself takes.
 * `private` is what a clone has for itself: what it wrote, copied by the kernel.
 */
#include <stdio.h>
#include <string.h>

#include "benches/boot.h"
#include "common/smaps.h"
#include "cli/bench.h"
#include "common/clock.h"
#include "common/progress.h"
#include "common/str.h"

#define CLONES_MAX 1000
#define BUSY_MS 60000

/* The piece of work: 8 MiB of memory and a second or less of computing. */
#define BUSY_CODE                                                                                  \
	"block = bytearray(8 << 20)\ntotal = sum(i * i for i in range(100000))\nprint(total)"
#define BUSY_SHELL                                                                                 \
	"head -c 8388608 /dev/urandom >/dev/shm/parbake-busy && sha256sum /dev/shm/parbake-busy"

struct request {
	struct bench_output out;
	const char *template, *busy; /* a shell line instead of BUSY_… */
	struct bench_numbers steps;
	bool no_busy;
};

struct total {
	struct smaps clones; /* the sum */
	uint64_t max_guest_private; /* the greatest of one */
	struct smaps pager;
};

struct density {
	const struct request *rq;
	struct template *template;
	struct sandbox *clones[CLONES_MAX];
	size_t n;
	json_t *run;
	struct text text;
	struct progress *progress;
};

/*
 * It lets only root look into it; to others it counts as what it has filled, which is nearly all
 * of it.
 */
static int look_at_pager(const struct density *d, struct smaps *ret, struct err *err)
{
	struct pager_client *pager = template_pager(d->template);
	struct pager_stats stats;
	int r = smaps_read(pager_client_pid(pager), ret, err);

	if (r != -EACCES && r != -EPERM)
		return r;
	r = pager_client_get_stats(pager, &stats, err);
	if (r == 0)
		*ret = (struct smaps){.pss = stats.bytes_filled};
	return r;
}

static int look(const struct density *d, struct total *ret, struct err *err)
{
	struct smaps one;
	int r = 0;

	*ret = (struct total){0};
	for (size_t i = 0; i < d->n && r == 0; i++) {
		r = smaps_read(machine_pid(sandbox_machine(d->clones[i])), &one, err);
		if (r < 0)
			break;
		ret->clones.rss += one.rss;
		ret->clones.pss += one.pss;
		ret->clones.private_bytes += one.private_bytes;
		ret->clones.guest_rss += one.guest_rss;
		ret->clones.guest_pss += one.guest_pss;
		ret->clones.guest_private += one.guest_private;
		if (one.guest_private > ret->max_guest_private)
			ret->max_guest_private = one.guest_private;
	}
	if (r == 0)
		r = look_at_pager(d, &ret->pager, err);
	return r;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / MIB;
}

static int tell(struct density *d, const char *state, struct err *err)
{
	struct total t;
	int r = look(d, &t, err);
	double n = (double)d->n;

	if (r < 0)
		return r;
	text_add(&d->text, "%6zu %-5s %12.2f %12.2f %12.2f %12.2f %12.1f %12.1f\n", d->n, state,
		mib(t.clones.guest_private) / n, mib(t.max_guest_private),
		mib(t.clones.guest_pss) / n, mib(t.clones.pss) / n, mib(t.pager.pss),
		mib(t.clones.pss + t.pager.pss));
	bench_run_row(d->run,
		json_pack("[i, s, f, f, f, f, f, f]", (int)d->n, state,
			mib(t.clones.guest_private) / n, mib(t.max_guest_private),
			mib(t.clones.guest_pss) / n, mib(t.clones.pss) / n, mib(t.pager.pss),
			mib(t.clones.pss + t.pager.pss)));
	return 0;
}

static int work(struct density *d, struct sandbox *sb, struct err *err)
{
	const struct snapshot_config *c = template_config(d->template);
	struct guest_exec_spec spec = {.timeout_ms = BUSY_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int64_t deadline = clock_deadline(2 * BUSY_MS);
	int pidfd = machine_pidfd(sandbox_machine(sb)), r;

	if (c->context && !d->rq->busy) {
		r = guest_code(
			sandbox_guest(sb), NULL, BUSY_CODE, &spec, deadline, pidfd, &res, err);
		if (r == 0 && res.ename)
			r = err_set(err, EIO, "the work failed: %s", res.traceback ?: res.ename);
		return r;
	}
	spec.shell = d->rq->busy ?: BUSY_SHELL;
	r = guest_exec(sandbox_guest(sb), &spec, deadline, pidfd, &res, err);
	if (r == 0 && res.exit_code)
		r = err_set(
			err, EIO, "the work failed (status %d): %s", res.exit_code, res.err ?: "");
	return r;
}

/* Up to @n clones. */
static int grow(struct density *d, uint64_t n, struct err *err)
{
	progress_stage(d->progress, "density", "clones", n);
	while (d->n < n) {
		int r = sandbox_create(
			d->template, NULL, clock_deadline(LIMIT_CREATE_MS), &d->clones[d->n], err);

		if (r < 0)
			return r;
		progress_update(d->progress, ++d->n);
	}
	progress_done(d->progress, NULL);
	return 0;
}

static void remove_all(struct density *d)
{
	while (d->n)
		sandbox_free(d->clones[--d->n]);
}

static int run_steps(struct density *d, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < d->rq->steps.n && r == 0; i++) {
		r = grow(d, d->rq->steps.items[i], err);
		if (r == 0)
			r = tell(d, "idle", err);
	}
	if (d->rq->no_busy)
		return r;
	remove_all(d);
	for (size_t i = 0; i < d->rq->steps.n && r == 0; i++) {
		size_t from = d->n;

		r = grow(d, d->rq->steps.items[i], err);
		for (size_t j = from; j < d->n && r == 0; j++)
			r = work(d, d->clones[j], err);
		if (r == 0)
			r = tell(d, "busy", err);
	}
	return r;
}

/* What each would take, had it been booted: guest memory of one machine that was. */
static int tell_boot(
	struct density *d, struct store *s, const struct store_manifest *m, struct err *err)
{
	uint64_t baked = template_config(d->template)->memory_data_bytes;
	struct smaps booted;
	int r = bench_boot_smaps(s, m, d->template, &booted, err);

	if (r < 0)
		return r;
	text_add(&d->text,
		"a machine booted on its own: %.1f MiB of guest memory when its agent answers; the "
		"snapshot, warm, holds "
		"%.1f MiB\n",
		mib(booted.guest_rss), mib(baked));
	bench_run_fact(d->run, "boot_guest_mib", json_real(mib(booted.guest_rss)));
	bench_run_fact(d->run, "boot_pss_mib", json_real(mib(booted.pss)));
	bench_run_fact(d->run, "snapshot_mib", json_real(mib(baked)));
	return 0;
}

static int take_clones(void *field, const char *option, const char *text, struct err *err)
{
	struct bench_numbers *steps = field;
	int r = bench_numbers(option, text, 1, CLONES_MAX, steps, err);

	for (size_t i = 1; i < steps->n && r == 0; i++) {
		if (steps->items[i] <= steps->items[i - 1])
			r = err_set(err, EINVAL, "%s %s: write rising numbers", option, text);
	}
	return r;
}

static int run(struct density *d, struct store *s, const struct store_manifest *m, struct err *err)
{
	const struct template_options options = {.progress = d->progress};
	static const char *const columns[] = {"clones", "state", "guest private MiB", "greatest",
		"guest PSS MiB", "PSS MiB", "pager MiB", "all MiB"};
	cleanup_free char *id = str_printf("density %s", m->name);
	cleanup_free char *title = str_printf("Memory of many sandboxes of %s", m->name);
	int r = template_open(s, m, &options, &d->template, err);

	if (r < 0)
		return r;
	d->run = bench_run_new("density", id, title);
	bench_run_template(d->run, m, d->template);
	bench_run_columns(d->run, columns, sizeof(columns) / sizeof(columns[0]));
	text_add(&d->text, "%s; MiB, a clone's mean but for the last two\n", title);
	text_add(&d->text, "%6s %-5s %12s %12s %12s %12s %12s %12s\n", "clones", "", "guest priv",
		"greatest", "guest PSS", "PSS", "pager", "all PSS");
	r = run_steps(d, err);
	remove_all(d);
	if (r == 0)
		r = tell_boot(d, s, m, err);
	if (r == 0)
		r = bench_finish(&d->rq->out, json_incref(d->run), &d->text, err);
	return r;
}

static int measure(void *args)
{
	const struct request *rq = args;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct density d = {.rq = rq};
	struct err err = {0};
	int r;

	d.progress = progress_new(PROGRESS_AUTO);
	r = cli_resolve(rq->out.store_dir, rq->template, &s, &m, &err);
	if (r == 0)
		r = run(&d, s, &m, &err);
	remove_all(&d);
	if (d.template)
		template_free(d.template);
	json_decref(d.run);
	text_clear(&d.text);
	progress_free(d.progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"clones", .kind = OPTION_CALL, .take = take_clones,
		.offset = offsetof(struct request, steps), .value = "A,B,…",
		.help = "how many sandboxes, rising (1,2,5,10,20)"},
	{"busy", .kind = OPTION_TEXT, .offset = offsetof(struct request, busy), .value = "SHELL",
		.help = "what busy sandboxes run"},
	{"idle-only", .offset = offsetof(struct request, no_busy),
		.help = "measure idle sandboxes alone"},
	BENCH_OUTPUT(struct request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", .names = NAMES_TEMPLATE, .offset = offsetof(struct request, template)},
	{0},
};

const struct command command_bench_density = {
	.name = "bench density",
	.summary = "the memory of many sandboxes",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.defaults = &(const struct request){.steps = {{1, 2, 5, 10, 20}, 5}},
	.run = measure,
};
