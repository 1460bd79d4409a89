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
#include <sys/ioctl.h>

#include "benches/boot.h"
#include "benches/trace.h"
#include "cli/bench.h"
#include "cli/bench_sampler.h"
#include "common/clock.h"
#include "common/str.h"
#include "cli/limits.h"

#define SAMPLES_MAX                                                                                \
	20000 /* of each mode, so that a document can be read again (LIMIT_JSON_BYTES) */
#define OPEN_CLIENTS 16 /* of an open loop, unless asked otherwise */
#define FAULTS_SHOWN 40

struct request {
	struct bench_output out;
	const char *ref, *monitor;
	uint64_t n, boots, clients;
	double rate;
	bool modes[N_MODES];
	int result; /* enum bench_result */
	struct template_options options;
	bool cold_cache, trace;
	const char *perfetto;
};

struct bench {
	const struct request *rq;
	struct bench_sampler sampler;
	struct bench_series first, series[N_MODES], boot;
	struct progress *progress;
	struct symbols *symbols;
	char no_symbols[256]; /* why there are none */
	/* of the series under way */
	enum bench_mode mode;
	struct bench_trace *traces;
	size_t n_traces, room_traces;
	size_t medians[N_MODES]; /* in traces; SIZE_MAX: none */
};

/* ---- traces -------------------------------------------------------------------------------- */

/* Every create is taken apart; which is the median is known at the end of its series. */
static void take_trace(void *user, struct bench_sample *one, const struct bench_moments *m)
{
	struct bench *b = user;
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
	t->sample = b->series[b->mode].n; /* it will be */
	/* the pager's counts go on after the answer, as the machine does */
	if (traced)
		one->faults = t->n_faults;
}

static void find_median(struct bench *b, size_t first_trace)
{
	long sample = bench_series_median_sample(&b->series[b->mode]);

	b->medians[b->mode] = SIZE_MAX;
	for (size_t i = first_trace; i < b->n_traces; i++) {
		if (sample >= 0 && b->traces[i].sample == (uint64_t)sample)
			b->medians[b->mode] = i;
	}
}

static int write_perfetto(const struct bench *b, struct err *err)
{
	cleanup_json json_t *obj = bench_traces_perfetto(b->traces, b->n_traces);
	cleanup_free char *text = json_text(obj);

	return bench_publish(b->rq->perfetto, text, strlen(text), err);
}

static void load_symbols(struct bench *b)
{
	struct err err = {0};

	if (b->rq->options.pager.trace &&
		symbols_find(
			template_config(b->sampler.template)->kernel_digest, &b->symbols, &err) < 0)
		snprintf(b->no_symbols, sizeof(b->no_symbols), "%.*s", 250, err.text);
}

/* ---- running it ---------------------------------------------------------------------------- */

static int run_series(struct bench *b, enum bench_mode mode, struct err *err)
{
	struct bench_series *s = &b->series[mode];
	size_t first_trace = b->n_traces;
	bool single = b->rq->clients == 1 && b->rq->rate <= 0;
	struct bench_load load = {
		.sampler = &b->sampler,
		.mode = mode,
		.n = b->rq->n,
		.clients = (unsigned)b->rq->clients,
		.rate = b->rq->rate,
		.progress = b->progress,
		.sampled = take_trace,
		.user = b,
	};
	int r;

	bench_series_init(s, bench_mode_names[mode], true,
		single && pager_client_way(template_pager(b->sampler.template)) == PAGER_UFFD);
	s->costs = bench_costs_here();
	b->mode = mode;
	progress_stage(b->progress, bench_mode_names[mode], "creates", b->rq->n);
	r = bench_load_run(&load, s, err);
	progress_done(b->progress, "%zu failed", s->failed);
	find_median(b, first_trace);
	return r;
}

static void run_boots(struct bench *b)
{
	bench_series_init(&b->boot, "boot", false, false);
	if (!b->rq->boots)
		return;
	progress_stage(b->progress, "boot", "boots", b->rq->boots);
	for (uint64_t i = 0; i < b->rq->boots; i++) {
		struct err why = {0};
		int64_t took;

		if (bench_boot(b->sampler.store, b->sampler.manifest, b->sampler.template, &took,
			    NULL, NULL, &why) == 0)
			bench_series_add_time(&b->boot, took);
		else
			bench_series_fail(&b->boot, &why);
		progress_update(b->progress, i + 1);
	}
	progress_done(b->progress, "%zu failed", b->boot.failed);
}

/* The first one opens the template, fills its memory and finds the files unread. */
static int run_first(struct bench *b, struct err *err)
{
	cleanup_sandbox struct sandbox *sb = NULL;
	cleanup_pager_trace struct pager_trace ignored = {0};
	cleanup_counted struct bench_counted counted;
	struct bench_moments m = {0};
	struct bench_sample one = {0};
	int r;

	bench_series_init(&b->first, "first", true, false);
	b->first.costs = bench_costs_here();
	bench_count_open(&counted);
	bench_count_begin(&b->sampler, NULL, &counted);
	r = bench_create_one(&b->sampler, MODE_COLD, &sb, &m, &counted, &one, err);
	if (r < 0)
		return r;
	bench_series_add(&b->first, &one);
	/* a pager that is shared has done other work before */
	if (b->rq->options.pager.trace && !bench_sampler_reopens(&b->sampler))
		pager_client_traced(template_pager(b->sampler.template), &ignored, NULL);
	return 0;
}

static int run(struct bench *b, struct err *err)
{
	int r = run_first(b, err);

	if (r < 0)
		return r;
	load_symbols(b);
	for (int i = 0; i < N_MODES && r == 0; i++)
		r = b->rq->modes[i] ? run_series(b, i, err) : 0;
	if (r < 0)
		return r;
	if (!b->sampler.template && (r = bench_sampler_open(&b->sampler, err)) < 0)
		return r;
	run_boots(b);
	return 0;
}

/* ---- saying it ----------------------------------------------------------------------------- */

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void print_series(struct text *out, const struct bench_series *s)
{
	static const struct {
		enum bench_part first, last;
	} groups[] = {{PART_WAIT, PART_OPEN}, {PART_OVERLAY, PART_MONITOR},
		{PART_STATE, PART_STATE}, {PART_ASK, PART_THAW}, {PART_RESULT, PART_RESULT}};

	if (!s->n && !s->failed)
		return;
	text_add(out, "%-7s %5zu %6zu %8.1f %8.1f %8.1f %8.1f", s->name, s->n, s->failed,
		ms(bench_series_percentile(s, 50)), ms(bench_series_percentile(s, 90)),
		ms(bench_series_percentile(s, 99)), ms(bench_series_percentile(s, 100)));
	for (size_t i = 0; s->has_parts && i < sizeof(groups) / sizeof(groups[0]); i++)
		text_add(out, " %8.1f",
			ms(bench_series_parts(s, groups[i].first, groups[i].last, 50)));
	if (s->has_faults)
		text_add(out, " %7" PRIu64 " %9" PRIu64, bench_median_faults(s),
			bench_median_premapped(s));
	text_add(out, "\n");
	if (s->failed)
		text_add(out, "       first failure: %s\n", s->first_error.text);
}

static void print_costs(struct text *out, const struct bench_series *s)
{
	if (!s->n || !s->costs)
		return;
	text_add(out, "%-7s", s->name);
	for (int i = 0; i < COSTS; i++) {
		if (!(s->costs & 1U << i))
			text_add(out, " %9s", "-");
		else if (i == COST_CPU)
			text_add(out, " %9.2f", ms(bench_median_cost(s, COST_CPU)));
		else
			text_add(out, " %9" PRId64, bench_median_cost(s, (enum cost)i));
	}
	text_add(out, "\n");
}

static void print_all_costs(struct text *out, const struct bench *b)
{
	text_add(out, "what one costs, at p50\n%-7s", "mode");
	for (int i = 0; i < COSTS; i++)
		text_add(out, " %9s", i == COST_CPU ? "cpu ms" : cost_titles[i]);
	text_add(out, "\n");
	print_costs(out, &b->first);
	for (int i = 0; i < N_MODES; i++)
		print_costs(out, &b->series[i]);
	for (int i = 0; i < COSTS; i++) {
		if (*cost_absent((enum cost)i))
			text_add(out, "no %s: %s\n", cost_names[i], cost_absent((enum cost)i));
	}
}

static void describe(const struct request *rq, char *ret, size_t len)
{
	char loop[64] = "one after the other";

	if (rq->rate > 0)
		snprintf(loop, sizeof(loop), "open loop, %g a second", rq->rate);
	else if (rq->clients > 1)
		snprintf(loop, sizeof(loop), "%" PRIu64 " at once", rq->clients);
	snprintf(ret, len, "%s, %s%s%s%s%s", bench_result_titles[rq->result], loop,
		rq->options.pager.no_premap ? ", no premap" : "",
		rq->options.no_uffd ? ", no userfaultfd" : "",
		rq->options.own_pager && !rq->cold_cache ? ", pager of its own" : "",
		rq->cold_cache ? ", cold files" : "");
}

static void print_table(struct text *out, const struct bench *b, const char *what)
{
	const struct snapshot_config *c = template_config(b->sampler.template);
	const struct bench_series *cold = &b->series[MODE_COLD];
	const struct store_manifest *m = b->sampler.manifest;
	char memory[16];

	text_add(out, "%s:%s  %s, %u vCPU, %s, %s %s, %s\n", m->name, m->tag, c->accel, c->vcpus,
		progress_bytes(c->memory_bytes, memory), c->monitor, c->monitor_version,
		pager_client_way(template_pager(b->sampler.template)) == PAGER_UFFD
			? "userfaultfd"
			: "private mapping");
	text_add(out,
		"create to %s; times in ms, parts at p50, faults and premapped pages at p50\n",
		what);
	text_add(out, "%-7s %5s %6s %8s %8s %8s %8s %8s %8s %8s %8s %8s %7s %9s\n", "mode", "n",
		"failed", "p50", "p90", "p99", "max", "before", "monitor", "state", "answer",
		"result", "faults", "premapped");
	print_series(out, &b->first);
	for (int i = 0; i < N_MODES; i++)
		print_series(out, &b->series[i]);
	print_series(out, &b->boot);
	print_all_costs(out, b);
	if (b->rq->n < 100)
		text_add(out, "(p99 of fewer than 100 samples is the maximum)\n");
	if (b->rq->cold_cache)
		text_add(out, "cold files: at most %.1f %% of them were in the page cache\n",
			b->sampler.resident * 100);
	if (cold->n && b->boot.n)
		text_add(out, "a cold create is %.1f times as fast as the cold boot (p50)\n",
			(double)bench_series_percentile(&b->boot, 50) /
				(double)bench_series_percentile(cold, 50));
}

static void print_traces(struct text *out, const struct bench *b)
{
	struct winsize ws;
	unsigned columns =
		ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 40 ? ws.ws_col : 100;

	for (int i = 0; i < N_MODES; i++) {
		if (!b->rq->modes[i] || b->medians[i] == SIZE_MAX)
			continue;
		text_add(out, "\n");
		bench_trace_print(out, &b->traces[b->medians[i]], columns, FAULTS_SHOWN);
	}
	if (b->no_symbols[0])
		text_add(out, "addresses have no names: %s\n", b->no_symbols);
}

static json_t *make_run(const struct bench *b, const char *what)
{
	const struct store_manifest *m = b->sampler.manifest;
	cleanup_free char *id = str_printf("create %s to %s", m->name, what);
	cleanup_free char *title = str_printf("Create %s to %s", m->name, what);
	json_t *run = bench_run_new("create", id, title);

	bench_run_template(run, m, b->sampler.template);
	bench_run_fact(run, "until", json_string(bench_result_names[b->rq->result]));
	bench_run_fact(run, "clients", json_integer((json_int_t)b->rq->clients));
	bench_run_fact(run, "rate", json_real(b->rq->rate));
	bench_run_fact(run, "page_cache", json_string(b->rq->cold_cache ? "cold" : "warm"));
	if (b->rq->cold_cache)
		bench_run_fact(run, "page_cache_left", json_real(b->sampler.resident));
	for (int i = 0; i < COSTS; i++) {
		cleanup_free char *name = str_printf("no_%s", cost_names[i]);

		if (*cost_absent((enum cost)i))
			bench_run_fact(run, name, json_string(cost_absent((enum cost)i)));
	}
	bench_run_append(run, "series", bench_series_to_json(&b->first));
	for (int i = 0; i < N_MODES; i++) {
		if (!b->rq->modes[i])
			continue;
		bench_run_append(run, "series", bench_series_to_json(&b->series[i]));
		if (b->medians[i] != SIZE_MAX)
			bench_run_append(
				run, "traces", bench_trace_to_json(&b->traces[b->medians[i]]));
	}
	if (b->boot.n || b->boot.failed)
		bench_run_append(run, "series", bench_series_to_json(&b->boot));
	if (b->no_symbols[0])
		bench_run_note(run, "addresses have no names: %s", b->no_symbols);
	return run;
}

static int finish(const struct bench *b, struct err *err)
{
	cleanup_text struct text out = {0};
	size_t failed = b->boot.failed;
	char what[160];
	int r = 0;

	describe(b->rq, what, sizeof(what));
	print_table(&out, b, what);
	if (b->rq->trace)
		print_traces(&out, b);
	r = bench_finish(&b->rq->out, make_run(b, what), &out, err);
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

static int check(struct request *rq, struct err *err)
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
	if (!single && (rq->trace || rq->perfetto))
		return err_set(err, EINVAL,
			"--trace and --perfetto take one create at a time apart: no --concurrency, "
			"no --rate");
	rq->options.pager.trace = single && (rq->trace || rq->perfetto || rq->out.report);
	return 0;
}

/* A snapshot is restored by the monitor that made it: which is measured is the template's to say. */
static int check_monitor(const struct request *rq, const struct store_manifest *m, struct err *err)
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
	struct request *rq = args;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct bench b = {.rq = rq, .medians = {SIZE_MAX, SIZE_MAX, SIZE_MAX}};
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
		.cold_cache = rq->cold_cache};
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
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	BENCH_COUNT(struct request, n, SAMPLES_MAX, "creates of each mode (100)"),
	{"mode", .kind = OPTION_CALL, .take = take_mode, .repeats = true,
		.offset = offsetof(struct request, modes), .value = "MODE",
		.choices = (const char *const[]){"cold", "standby", "spare", NULL},
		.help = "cold, standby or spare (all)"},
	{"result", .kind = OPTION_CHOICE,
		.choices = (const char *const[]){"none", "exec", "python", NULL},
		.offset = offsetof(struct request, result),
		.help = "what is waited for after the agent's answer (none)"},
	{"concurrency", .kind = OPTION_NUMBER, .min = 1, .max = LIMIT_BENCH_CLIENTS,
		.offset = offsetof(struct request, clients), .value = "N",
		.help = "that many at once, round after round (1)"},
	{"rate", .kind = OPTION_REAL, .least = 0.01, .most = 10000,
		.offset = offsetof(struct request, rate), .value = "R",
		.help = "open loop: R creates a second begin on time, latency counts from then"},
	{"boots", .kind = OPTION_NUMBER, .max = 1000, .offset = offsetof(struct request, boots),
		.value = "N", .help = "cold boots beside it (3; 0: none)"},
	{"monitor", .kind = OPTION_TEXT, .offset = offsetof(struct request, monitor), .value = "M",
		.help = "kvm or qemu: the template must be of that monitor"},
	{"trace", .offset = offsetof(struct request, trace),
		.help = "the median create of each mode, taken apart: parts and faults"},
	{"perfetto", .kind = OPTION_TEXT, .names = NAMES_FILE,
		.offset = offsetof(struct request, perfetto), .value = "FILE",
		.help = "all creates as a trace that ui.perfetto.dev opens"},
	{"cold-cache", .offset = offsetof(struct request, cold_cache),
		.help = "the template's files leave the page cache before each create"},
	{"own-pager", .offset = offsetof(struct request, options.own_pager),
		.help = "a fresh pager for every create: nothing of the memory filled yet"},
	{"no-premap", .offset = offsetof(struct request, options.pager.no_premap),
		.help = "do not map the working set at attach"},
	{"no-uffd", .offset = offsetof(struct request, options.no_uffd),
		.help = "the plain private mapping instead of userfaultfd"},
	BENCH_OUTPUT(struct request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", .names = NAMES_TEMPLATE, .offset = offsetof(struct request, ref)},
	{0},
};

const struct command command_bench_create = {
	.name = "bench create",
	.summary = "how long creates take, by mode and by part, and what they cost",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.defaults = &(const struct request){.n = 100, .boots = 3},
	.run = run_create,
};
