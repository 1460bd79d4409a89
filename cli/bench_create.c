/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench create: how long a sandbox takes, from the request to the agent's answer under
 * its new identity (or on to a first result), by mode:
 *
 *   cold   nothing is there: monitor start, device state, resume, answer
 *   standby  a monitor already started; its start is not counted
 *   spare  a restored, paused sandbox; what made it is not counted
 *
 * The very first create, which fills the template's memory, is reported by itself.
 * bench_sampler.c measures one, bench_load.c many.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "benches/boot.h"
#include "cli/bench_create.h"
#include "cli/bench_side.h"
#include "common/clock.h"
#include "common/str.h"
#include "cli/limits.h"

#define SAMPLES_MAX                                                                                \
	20000 /* of each mode, so that a document can be read again (LIMIT_JSON_BYTES) */
#define CREATES 100
#define OPEN_CLIENTS 16 /* of an open loop, unless asked otherwise */

/* ---- traces -------------------------------------------------------------------------------- */

/* Every create is taken apart; which is the median is known at the end of its series. */
static void take_trace(
	void *user, unsigned lane, struct bench_sample *one, const struct bench_moments *m)
{
	struct create_bench *b = user;
	cleanup_pager_trace struct pager_trace pager = {0};
	struct pager_client *d = template_pager(b->sampler.template);
	bool traced = b->rq->options.pager.trace && pager_client_way(d) == PAGER_UFFD &&
		pager_client_traced(d, &pager, NULL) == 0;
	struct bench_trace *t;

	if (b->n_traces == b->room_traces) {
		b->room_traces = b->room_traces ? b->room_traces * 2 : 64;
		b->traces = reallocarray(b->traces, b->room_traces, sizeof(*b->traces));
		if (!b->traces)
			abort();
	}
	t = &b->traces[b->n_traces++];
	bench_trace_make(t, one, m->begin, traced ? &pager : NULL, b->symbols);
	snprintf(t->name, sizeof(t->name), "%s", bench_mode_names[b->mode]);
	t->lane = lane;
	t->sample = b->series[b->mode].n; /* it will be */
	/* the pager's counts go on after the answer, as the machine does */
	if (traced)
		one->faults = t->n_faults;
}

static void find_median(struct create_bench *b, enum bench_mode mode)
{
	long sample = bench_series_median_sample(&b->series[mode]);

	b->medians[mode] = SIZE_MAX;
	for (size_t i = 0; i < b->n_traces; i++) {
		if (sample >= 0 && b->traces[i].sample == (uint64_t)sample &&
			!strcmp(b->traces[i].name, bench_mode_names[mode]))
			b->medians[mode] = i;
	}
}

static int write_perfetto(const struct create_bench *b, struct err *err)
{
	cleanup_json json_t *obj = bench_traces_perfetto(b->traces, b->n_traces);
	cleanup_free char *text = json_text(obj);

	return bench_publish(b->rq->perfetto, text, strlen(text), err);
}

static void load_symbols(struct create_bench *b)
{
	struct err err = {0};

	if (b->rq->options.pager.trace &&
		symbols_find(
			template_config(b->sampler.template)->kernel_digest, &b->symbols, &err) < 0)
		snprintf(b->no_symbols, sizeof(b->no_symbols), "%.*s", 250, err.text);
}

/* ---- running it ---------------------------------------------------------------------------- */

static bool is_alone(const struct create_request *rq)
{
	return rq->clients == 1 && rq->rate <= 0;
}

/* @n creates of a mode. */
static int run_mode(struct create_bench *b, enum bench_mode mode, uint64_t n, struct err *err)
{
	struct bench_load load = {
		.sampler = &b->sampler,
		.mode = mode,
		.n = n,
		.begun = b->turns.begun,
		.clients = (unsigned)b->rq->clients,
		.rate = b->rq->rate,
		.sampled = is_alone(b->rq) || b->rq->perfetto ? take_trace : NULL,
		.user = b,
	};

	b->mode = mode;
	return bench_load_run(&load, &b->series[mode], err);
}

static int run_boot(struct create_bench *b, struct err *err)
{
	struct bench_sample one = {0};
	struct err why = {0};
	int r;

	if (!b->sampler.template && (r = bench_sampler_open(&b->sampler, err)) < 0)
		return r;
	one.at = clock_now_ns() - b->turns.begun;
	r = bench_boot(b->sampler.store, b->sampler.manifest, b->sampler.template, &one.total, NULL,
		NULL, &why);
	if (r == 0)
		bench_series_add(&b->boot, &one);
	else if (!bench_stop_asked())
		bench_series_fail(&b->boot, &why);
	return 0;
}

/* A create of @sampler that has nothing open: it opens the template and fills its memory. */
static int create_first(struct create_bench *b, struct bench_sampler *sampler, struct err *err)
{
	cleanup_sandbox struct sandbox *sb = NULL;
	cleanup_counted struct bench_counted counted;
	struct bench_moments m = {0};
	struct bench_sample one = {0};
	int r;

	bench_count_open(&counted);
	r = bench_prepare(sampler, MODE_COLD, &sb, err);
	bench_count_begin(sampler, NULL, &counted);
	if (r == 0)
		r = bench_create_one(sampler, MODE_COLD, &sb, &m, &counted, &one, err);
	one.at = m.begin - b->turns.begun;
	if (r == 0)
		bench_series_add(&b->first, &one);
	return r;
}

/* Once, by the sampler of all the others, before them: the files are as they are. */
static int run_first(struct create_bench *b, struct err *err)
{
	cleanup_pager_trace struct pager_trace ignored = {0};
	int r = create_first(b, &b->sampler, err);

	/* a pager that is shared has done other work before */
	if (r == 0 && b->rq->options.pager.trace && !bench_sampler_reopens(&b->sampler))
		pager_client_traced(template_pager(b->sampler.template), &ignored, NULL);
	return r;
}

/* With cold files and a pager of its own, as after a boot of the host. */
static int run_cold_first(struct create_bench *b, struct err *err)
{
	struct err why = {0};
	/* what is open is what is dropped */
	int r = bench_sampler_open(&b->first_sampler, err);

	if (r == 0 && create_first(b, &b->first_sampler, &why) < 0 && !bench_stop_asked())
		bench_series_fail(&b->first, &why);
	bench_sampler_close(&b->first_sampler);
	return r;
}

/* What is rarer than the modes, as far as it is due. */
static int run_rare(struct create_bench *b, uint64_t turn, struct err *err)
{
	int64_t now = clock_now_ns();
	uint64_t boots = turns_due(&b->turns, b->rq->boots, turn, now);
	uint64_t firsts = turns_due(&b->turns, b->rq->firsts, turn, now);
	int r = 0;

	for (; b->boots < boots && r == 0 && !bench_stop_asked(); b->boots++)
		r = run_boot(b, err);
	for (; b->firsts < firsts && r == 0 && !bench_stop_asked(); b->firsts++)
		r = run_cold_first(b, err);
	return r;
}

static size_t list_modes(const struct create_bench *b, enum bench_mode ret[static N_MODES])
{
	size_t n = 0;

	for (int i = 0; i < N_MODES; i++) {
		if (b->rq->modes[i])
			ret[n++] = (enum bench_mode)i;
	}
	return n;
}

/* Turn after turn. */
static int run_turns(struct create_bench *b, struct err *err)
{
	const uint64_t n = b->rq->n, clients = b->rq->clients;
	enum bench_mode modes[N_MODES];
	unsigned n_modes = (unsigned)list_modes(b, modes);
	uint64_t turn = 0;
	int r = 0;

	b->turns.n = (n + clients - 1) / clients;
	progress_stage(b->progress, "creates", "of each mode", n);
	for (; r == 0 && !bench_stop_asked() && turns_more(&b->turns, turn, clock_now_ns());
		turn++) {
		uint64_t left = n - turn * clients, some = left < clients ? left : clients;

		r = run_rare(b, turn, err);
		for (unsigned i = 0; i < n_modes && r == 0 && !bench_stop_asked(); i++)
			r = run_mode(b, modes[turns_mode(turn, i, n_modes)], some, err);
		progress_update(b->progress, turn * clients + some);
	}
	progress_done(b->progress, NULL);
	return r == 0 ? run_rare(b, b->turns.n, err) : r;
}

/* An open loop has begin times that nothing may move: one mode after the other. */
static int run_open(struct create_bench *b, struct err *err)
{
	enum bench_mode modes[N_MODES];
	size_t n_modes = list_modes(b, modes);
	uint64_t n = b->rq->n;
	int r = 0;

	if (b->turns.duration)
		n = (uint64_t)(b->rq->rate * (double)b->turns.duration / 1e9 / (double)n_modes) + 1;
	n = n < SAMPLES_MAX ? n : SAMPLES_MAX;
	progress_stage(b->progress, "creates", "modes", n_modes);
	for (size_t i = 0; i < n_modes && r == 0 && !bench_stop_asked(); i++) {
		r = run_mode(b, modes[i], n, err);
		progress_update(b->progress, i + 1);
	}
	progress_done(b->progress, NULL);
	b->turns.n = 1;
	return r == 0 ? run_rare(b, 1, err) : r;
}

static int run(struct create_bench *b, struct err *err)
{
	unsigned costs = bench_costs_here();
	bool faults;
	int r;

	bench_series_init(&b->first, "first", true, false);
	bench_series_init(&b->boot, "boot", false, false);
	b->first.costs = costs;
	b->turns = (struct turns){.begun = clock_now_ns()};
	r = b->rq->firsts ? bench_sampler_open(&b->sampler, err) : run_first(b, err);
	if (r < 0)
		return r;
	load_symbols(b);
	faults = is_alone(b->rq) &&
		pager_client_way(template_pager(b->sampler.template)) == PAGER_UFFD;
	for (int i = 0; i < N_MODES; i++) {
		bench_series_init(&b->series[i], bench_mode_names[i], true, faults);
		b->series[i].costs = costs;
	}
	bench_stop_on_signals();
	b->turns.begun = clock_now_ns();
	b->turns.duration = (int64_t)b->rq->duration_ms * 1000000;
	r = b->rq->rate > 0 ? run_open(b, err) : run_turns(b, err);
	for (int i = 0; i < N_MODES; i++)
		find_median(b, (enum bench_mode)i);
	if (r == 0 && !b->sampler.template)
		r = bench_sampler_open(&b->sampler, err);
	return r;
}

/* ---- saying it ----------------------------------------------------------------------------- */

static int finish(const struct create_bench *b, struct err *err)
{
	cleanup_text struct text out = {0};
	size_t failed = b->boot.failed + b->first.failed;
	char what[160];
	int r = 0;

	bench_create_describe(b->rq, what, sizeof(what));
	bench_create_print(&out, b, what);
	if (bench_stop_asked())
		text_add(&out, "stopped early (%s): a part of what was asked for\n",
			strsignal(bench_stop_asked()));
	if (b->rq->trace)
		bench_create_print_traces(&out, b);
	r = bench_finish(&b->rq->out, bench_create_run(b, what), &out, err);
	if (r == 0 && b->rq->perfetto)
		r = write_perfetto(b, err);
	for (int i = 0; i < N_MODES; i++)
		failed += b->series[i].failed;
	if (r == 0 && failed)
		r = err_set(err, EIO, "%zu creates failed", failed);
	return r;
}

/* ---- the command line ---------------------------------------------------------------------- */

/* @text, or what it was called once, among @names. */
static int take_name(const char *option, const char *text, const char *const *names, int n,
	int *ret, struct err *err)
{
	const char *name = bench_series_name(text);

	for (int i = 0; i < n; i++) {
		if (!strcmp(name, names[i])) {
			*ret = i;
			return 0;
		}
	}
	return err_set(
		err, EINVAL, "%s %s: %s, %s or %s", option, text, names[0], names[1], names[2]);
}

static int take_mode(void *field, const char *option, const char *text, struct err *err)
{
	bool *modes = field;
	int which = 0, r = take_name(option, text, bench_mode_names, N_MODES, &which, err);

	if (r == 0)
		modes[which] = true;
	return r;
}

static int check(struct create_request *rq, struct err *err)
{
	bool any = false, single;

	rq->options.own_pager |= rq->cold_cache;
	for (int i = 0; i < N_MODES; i++)
		any |= rq->modes[i];
	for (int i = 0; i < N_MODES && !any; i++)
		rq->modes[i] = true;
	if (!rq->clients)
		rq->clients = rq->rate > 0 ? OPEN_CLIENTS : 1;
	single = rq->clients == 1 && rq->rate <= 0;
	if (!single && rq->options.own_pager)
		return err_set(err, EINVAL,
			"--own-pager and --cold-cache measure one create at a time: no "
			"--concurrency, no --rate");
	if (!single && rq->trace)
		return err_set(err, EINVAL,
			"--trace takes one create at a time apart: no --concurrency, no --rate");
	if (rq->drop_all && !rq->cold_cache && !rq->firsts)
		return err_set(err, EINVAL, "--drop-all goes with --cold-cache or --firsts");
	if (!rq->n)
		rq->n = rq->duration_ms ? SAMPLES_MAX : CREATES;
	rq->options.pager.trace = single && (rq->trace || rq->perfetto || rq->out.report);
	return 0;
}

/* A snapshot is restored by the monitor that made it: which is measured is the template's to say. */
static int check_monitor(
	const struct create_request *rq, const struct store_manifest *m, struct err *err)
{
	const char *has = json_string_value(json_object_get(m->config, "monitor")) ?: "none";

	if (!rq->monitor || !strcmp(rq->monitor, has))
		return 0;
	return err_set(err, EINVAL,
		"--monitor %s: %s was baked with %s; `parbake bake %s --monitor %s --tag %s` makes "
		"one",
		rq->monitor, rq->ref, has, m->name, rq->monitor, rq->monitor);
}

static int run_create(void *args)
{
	struct create_request *rq = args;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct create_bench b = {.rq = rq, .medians = {SIZE_MAX, SIZE_MAX, SIZE_MAX}};
	struct err err = {0};
	int r = check(rq, &err);

	if (r < 0)
		return command_usage(&command_bench_create, "%s", err.text);
	b.progress = progress_new(PROGRESS_AUTO);
	rq->options.count_cpu = true;
	rq->options.progress = b.progress;
	r = cli_resolve(rq->out.store_dir, rq->ref, &s, &m, &err);
	b.sampler = (struct bench_sampler){.store = s,
		.manifest = &m,
		.options = rq->options,
		.result = (enum bench_result)rq->result,
		.alone = rq->clients == 1 && rq->rate <= 0,
		.drop_all = rq->drop_all,
		.cold_cache = rq->cold_cache};
	b.first_sampler = b.sampler;
	b.first_sampler.alone = b.first_sampler.cold_cache = b.first_sampler.options.own_pager =
		true;
	b.first_sampler.options.pager.trace = false;
	if (!r)
		r = check_monitor(rq, &m, &err);
	if (!r)
		r = run(&b, &err);
	if (!r)
		r = finish(&b, &err);
	bench_sampler_close(&b.sampler);
	bench_series_clear(&b.first);
	bench_series_clear(&b.boot);
	for (int i = 0; i < N_MODES; i++)
		bench_series_clear(&b.series[i]);
	for (size_t i = 0; i < b.n_traces; i++)
		bench_trace_clear(&b.traces[i]);
	free(b.traces);
	symbols_free(b.symbols);
	progress_free(b.progress);
	if (r < 0)
		return cli_fail(&err);
	return bench_stop_asked() ? CLI_SIGNAL + bench_stop_asked() : CLI_OK;
}

static const struct option_entry options[] = {
	BENCH_COUNT(struct create_request, n, SAMPLES_MAX, "creates of each mode (100)"),
	{"mode", .kind = OPTION_CALL, .take = take_mode, .repeats = true,
		.offset = offsetof(struct create_request, modes), .value = "MODE",
		.choices = (const char *const[]){"cold", "standby", "spare", NULL},
		.help = "cold, standby or spare (all)"},
	{"result", .kind = OPTION_CHOICE,
		.choices = (const char *const[]){"none", "exec", "python", NULL},
		.offset = offsetof(struct create_request, result),
		.help = "what is waited for after the agent's answer (none)"},
	{"concurrency", .kind = OPTION_NUMBER, .min = 1, .max = LIMIT_BENCH_CLIENTS,
		.offset = offsetof(struct create_request, clients), .value = "N",
		.help = "that many at once, round after round (1)"},
	{"rate", .kind = OPTION_REAL, .least = 0.01, .most = 10000,
		.offset = offsetof(struct create_request, rate), .value = "R",
		.help = "open loop: R creates a second begin on time, latency counts from then"},
	{"boots", .kind = OPTION_NUMBER, .max = 1000,
		.offset = offsetof(struct create_request, boots), .value = "N",
		.help = "cold boots beside it (3; 0: none)"},
	{"firsts", .kind = OPTION_NUMBER, .max = 1000,
		.offset = offsetof(struct create_request, firsts), .value = "N",
		.help = "first creates among the others: cold files, a pager of their own (0: one, "
			"before them, the files as they are)"},
	{"duration", .kind = OPTION_DURATION,
		.offset = offsetof(struct create_request, duration_ms), .value = "T",
		.help = "measure for so long, not for a number of creates"},
	{"monitor", .kind = OPTION_TEXT, .offset = offsetof(struct create_request, monitor),
		.value = "M", .help = "kvm or qemu: the template must be of that monitor"},
	{"trace", .offset = offsetof(struct create_request, trace),
		.help = "the median create of each mode, taken apart: parts and faults"},
	{"perfetto", .kind = OPTION_TEXT, .names = NAMES_FILE,
		.offset = offsetof(struct create_request, perfetto), .value = "FILE",
		.help = "all creates as a trace that ui.perfetto.dev opens"},
	{"cold-cache", .offset = offsetof(struct create_request, cold_cache),
		.help = "the template's files leave the page cache before each create"},
	{"drop-all", .offset = offsetof(struct create_request, drop_all),
		.help = "whatever is dropped, the host's whole page cache goes (as root)"},
	{"own-pager", .offset = offsetof(struct create_request, options.own_pager),
		.help = "a fresh pager for every create: nothing of the memory filled yet"},
	{"no-premap", .offset = offsetof(struct create_request, options.pager.no_premap),
		.help = "do not map the working set at attach"},
	{"no-uffd", .offset = offsetof(struct create_request, options.no_uffd),
		.help = "the plain private mapping instead of userfaultfd"},
	BENCH_OUTPUT(struct create_request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", .names = NAMES_TEMPLATE, .offset = offsetof(struct create_request, ref)},
	{0},
};

const struct command command_bench_create = {
	.name = "bench create",
	.summary = "how long creates take, by mode and by part, and what they cost",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct create_request),
	.defaults = &(const struct create_request){.boots = 3},
	.run = run_create,
};
