/* SPDX-License-Identifier: Apache-2.0 */
/* What `bench create` has measured: tables for a terminal, a run for a document. */
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cli/bench_create.h"
#include "cli/bench_side.h"
#include "common/str.h"

#define FAULTS_SHOWN 40

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

static void print_all_costs(struct text *out, const struct create_bench *b)
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

void bench_create_describe(const struct create_request *rq, char *ret, size_t len)
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

void bench_create_print(struct text *out, const struct create_bench *b, const char *what)
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
	if (cold->n < 100)
		text_add(out, "(p99 of fewer than 100 samples is the maximum)\n");
	if (b->rq->cold_cache)
		text_add(out, "cold files: at most %.1f %% of them were in the page cache\n",
			b->sampler.resident * 100);
	if (cold->n && b->boot.n)
		text_add(out, "a cold create is %.1f times as fast as the cold boot (p50)\n",
			(double)bench_series_percentile(&b->boot, 50) /
				(double)bench_series_percentile(cold, 50));
}

void bench_create_print_traces(struct text *out, const struct create_bench *b)
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

json_t *bench_create_run(const struct create_bench *b, const char *what)
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
	if (b->rq->firsts) {
		bench_run_fact(run, "first_page_cache", json_string("cold"));
		bench_run_fact(run, "first_page_cache_left", json_real(b->first_sampler.resident));
	}
	if (b->rq->drop_all)
		bench_run_fact(run, "dropped", json_string("all of the host's page cache"));
	if (b->rq->duration_ms)
		bench_run_fact(run, "duration_s", json_real((double)b->rq->duration_ms / 1e3));
	if (bench_stop_asked()) {
		bench_run_fact(run, "partial", json_string(strsignal(bench_stop_asked())));
		bench_run_note(run, "stopped early (%s): a part of what was asked for",
			strsignal(bench_stop_asked()));
	}
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
