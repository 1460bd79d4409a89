/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench create: how long a sandbox takes, from the request to the agent's
 * answer under its new identity (or on to a first result), by mode:
 *
 *   cold   nothing is there: monitor start, device state, resume, answer
 *   shell  a monitor already started; its start is not counted
 *   spare  a restored, paused sandbox; what made it is not counted
 *
 * Every sample is a restore: sandbox_… fails where the agent's boot nonce, which lives
 * only in guest memory, is not the snapshot's. A failed create is counted as failed, never
 * dropped. The very first create, which fills the template's memory, is reported by
 * itself. Removing a sandbox is not part of a create.
 */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "cli/bench_boot.h"
#include "cli/bench_stats.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/progress.h"

enum mode { COLD, SHELL, SPARE, N_MODES };
enum result { RESULT_NONE, RESULT_EXEC, RESULT_PYTHON };

static const char *const mode_names[N_MODES] = {"cold", "shell", "spare"};
static const char *const result_names[] = {"none", "exec", "python"};

struct request {
	const char *ref, *store_dir;
	uint64_t n, boots;
	bool modes[N_MODES];
	enum result result;
	struct template_options options;
	bool json;
};

struct bench {
	const struct request *rq;
	struct store *store;
	struct store_manifest *manifest;
	struct template *template;
	struct bench_series first, series[N_MODES], boot;
	struct progress *progress;
};

static int first_result(struct bench *b, struct sandbox *sb, struct err *err)
{
	const char *const argv[] = {"/bin/echo", "ready", NULL};
	struct guest_exec_spec spec = {.argv = argv, .timeout_ms = LIMIT_CREATE_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	int pidfd = machine_pidfd(sandbox_machine(sb)), r;

	if (b->rq->result == RESULT_PYTHON) {
		r = guest_code(sandbox_guest(sb), NULL, "print(6 * 7)", &spec, deadline, pidfd, &res, err);
		if (!r && (!res.out || strcmp(res.out, "42\n")))
			r = err_set(err, EIO, "6 * 7 gave \"%s\" %s", res.out ?: "", res.traceback ?: "");
		return r;
	}
	r = guest_exec(sandbox_guest(sb), &spec, deadline, pidfd, &res, err);
	if (!r && (!res.out || strcmp(res.out, "ready\n")))
		r = err_set(err, EIO, "echo gave \"%s\"", res.out ?: "");
	return r;
}

/* What happens before the clock starts. */
static int prepare(struct bench *b, enum mode mode, struct sandbox **ret, struct err *err)
{
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	int r;

	if (mode == COLD)
		return 0;
	r = sandbox_shell(b->template, ret, err);
	if (r < 0)
		return r;
	if (mode == SPARE)
		return sandbox_prepare(*ret, deadline, err);
	return machine_ready(sandbox_machine(*ret), deadline, err);
}

static int create(struct bench *b, enum mode mode, struct sandbox **sb, struct err *err)
{
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);

	switch (mode) {
	case COLD:
		return sandbox_create(b->template, NULL, deadline, sb, err);
	case SHELL:
		return sandbox_restore(*sb, NULL, deadline, err);
	default:
		return sandbox_activate(*sb, NULL, deadline, err);
	}
}

static int64_t between(int64_t from, int64_t to)
{
	return to > from ? to - from : 0;
}

static void fill_sample(struct bench_sample *one, int64_t begin, int64_t end,
	const struct sandbox_trace *t)
{
	int64_t ready = t->monitor_ready > begin ? t->monitor_ready : begin;
	int64_t loaded = t->state_loaded > ready ? t->state_loaded : ready;

	one->total = end - begin;
	one->parts[BENCH_MONITOR] = between(begin, ready);
	one->parts[BENCH_STATE] = between(ready, loaded);
	one->parts[BENCH_ANSWER] = between(loaded, t->answered);
	one->parts[BENCH_RESULT] = between(t->answered, end);
}

static int measure(struct bench *b, enum mode mode, struct bench_sample *ret, struct err *err)
{
	cleanup_sandbox struct sandbox *sb = NULL;
	struct pager_stats before = {0}, after = {0};
	bool uffd = pagerd_way(template_pager(b->template)) == PAGER_UFFD;
	int64_t begin, end;
	int r = prepare(b, mode, &sb, err);

	if (r < 0)
		return r;
	if (uffd && pagerd_get_stats(template_pager(b->template), &before, err) < 0)
		return -EIO;
	begin = clock_now_ns();
	r = create(b, mode, &sb, err);
	if (!r && b->rq->result != RESULT_NONE)
		r = first_result(b, sb, err);
	end = clock_now_ns();
	if (r < 0) {
		if (sb)
			sandbox_explain(sb, err);
		return r;
	}
	if (uffd && pagerd_get_stats(template_pager(b->template), &after, err) < 0)
		return -EIO;
	fill_sample(ret, begin, b->rq->result == RESULT_NONE ? sandbox_trace(sb)->answered : end,
		sandbox_trace(sb));
	ret->faults = after.faults - before.faults;
	ret->premapped = after.pages_premapped - before.pages_premapped;
	return 0;
}

static int open_template(struct bench *b, struct err *err)
{
	if (b->template)
		template_free(steal_ptr(&b->template));
	return template_open(b->store, b->manifest, &b->rq->options, &b->template, err);
}

static void count(struct bench_series *s, int r, const struct bench_sample *one,
	const struct err *err)
{
	if (r == 0) {
		bench_add(s, one);
		return;
	}
	if (!s->failed++)
		s->first_error = *err;
}

static int run_series(struct bench *b, enum mode mode, struct err *err)
{
	struct bench_series *s = &b->series[mode];

	snprintf(s->name, sizeof(s->name), "%s", mode_names[mode]);
	progress_stage(b->progress, mode_names[mode], "creates", b->rq->n);
	for (uint64_t i = 0; i < b->rq->n; i++) {
		struct bench_sample one = {0};
		struct err why = {0};
		int r = 0;

		if (b->rq->options.own_pager) {
			r = open_template(b, err);
			if (r < 0)
				return r;
		}
		r = measure(b, mode, &one, &why);
		count(s, r, &one, &why);
		progress_update(b->progress, i + 1);
	}
	progress_done(b->progress, "%zu failed", s->failed);
	return 0;
}

static int run_boots(struct bench *b, struct err *err)
{
	snprintf(b->boot.name, sizeof(b->boot.name), "boot");
	if (!b->rq->boots)
		return 0;
	progress_stage(b->progress, "boot", "boots", b->rq->boots);
	for (uint64_t i = 0; i < b->rq->boots; i++) {
		struct bench_sample one = {0};
		struct err why = {0};
		int r = bench_boot(b->store, b->manifest, b->template, &one.total, &why);

		one.parts[BENCH_ANSWER] = one.total;
		count(&b->boot, r, &one, &why);
		progress_update(b->progress, i + 1);
	}
	progress_done(b->progress, "%zu failed", b->boot.failed);
	(void)err;
	return 0;
}

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void print_series(const struct bench_series *s)
{
	if (!s->n && !s->failed)
		return;
	printf("%-6s %5zu %6zu %8.1f %8.1f %8.1f %8.1f", s->name, s->n, s->failed,
		ms(bench_series_percentile(s, -1, 50)), ms(bench_series_percentile(s, -1, 90)),
		ms(bench_series_percentile(s, -1, 99)), ms(bench_series_percentile(s, -1, 100)));
	for (int i = 0; i < BENCH_PARTS; i++)
		printf(" %8.1f", ms(bench_series_percentile(s, i, 50)));
	printf(" %7" PRIu64 " %9" PRIu64 "\n", bench_median_faults(s), bench_median_premapped(s));
	if (s->failed)
		printf("       first failure: %s\n", s->first_error.text);
}

static void print_table(const struct bench *b)
{
	const struct snapshot_config *c = template_config(b->template);
	const struct bench_series *cold = &b->series[COLD];
	char memory[16];

	printf("%s:%s  %s, %u vCPU, %s, %s %s, %s\n", b->manifest->name, b->manifest->tag, c->accel,
		c->vcpus, progress_bytes(c->memory_bytes, memory), c->monitor, c->monitor_version,
		pagerd_way(template_pager(b->template)) == PAGER_UFFD ? "userfaultfd" :
								       "private mapping");
	printf("create to %s; times in ms, parts at p50, faults and premapped pages at p50\n",
		b->rq->result == RESULT_NONE	? "the agent's answer" :
			b->rq->result == RESULT_EXEC ? "the first command's output" :
						       "the first Python result");
	printf("%-6s %5s %6s %8s %8s %8s %8s %8s %8s %8s %8s %7s %9s\n", "mode", "n", "failed", "p50",
		"p90", "p99", "max", "monitor", "state", "answer", "result", "faults", "premapped");
	print_series(&b->first);
	for (int i = 0; i < N_MODES; i++)
		print_series(&b->series[i]);
	print_series(&b->boot);
	if (cold->n && b->boot.n)
		printf("a cold create is %.1f times as fast as the cold boot (p50)\n",
			(double)bench_series_percentile(&b->boot, -1, 50) /
				(double)bench_series_percentile(cold, -1, 50));
}

static json_t *host_json(void)
{
	struct utsname un;
	double load[1] = {0};

	uname(&un);
	if (getloadavg(load, 1) < 1)
		load[0] = 0;
	return json_pack("{s:s, s:s, s:i, s:f}", "kernel", un.release, "machine", un.machine, "cores",
		(int)sysconf(_SC_NPROCESSORS_ONLN), "load", load[0]);
}

static void print_json(const struct bench *b)
{
	const struct snapshot_config *c = template_config(b->template);
	json_t *series = json_array();
	cleanup_json json_t *obj = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:o}",
		"template", b->manifest->name, "tag", b->manifest->tag, "digest", b->manifest->digest,
		"accel", c->accel, "monitor", c->monitor, "monitor_version", c->monitor_version,
		"memory_bytes", (json_int_t)c->memory_bytes, "pager",
		pagerd_way(template_pager(b->template)) == PAGER_UFFD ? "userfaultfd" : "private",
		"until", result_names[b->rq->result], "host", host_json());

	json_array_append_new(series, bench_series_json(&b->first));
	for (int i = 0; i < N_MODES; i++) {
		if (b->rq->modes[i])
			json_array_append_new(series, bench_series_json(&b->series[i]));
	}
	json_array_append_new(series, bench_series_json(&b->boot));
	json_object_set_new(obj, "series", series);
	json_print_line(obj);
}

static int run(struct bench *b, struct err *err)
{
	struct bench_sample one = {0};
	size_t failed = b->boot.failed;
	int r = open_template(b, err);

	if (r < 0)
		return r;
	/* the first one fills the template's memory and finds the files unread */
	snprintf(b->first.name, sizeof(b->first.name), "first");
	r = measure(b, COLD, &one, err);
	if (r < 0)
		return r;
	count(&b->first, 0, &one, err);
	for (int i = 0; i < N_MODES; i++) {
		r = b->rq->modes[i] ? run_series(b, i, err) : 0;
		if (r < 0)
			return r;
		failed += b->series[i].failed;
	}
	r = run_boots(b, err);
	if (r < 0)
		return r;
	failed += b->boot.failed;
	if (b->rq->json)
		print_json(b);
	else
		print_table(b);
	return failed ? err_set(err, EIO, "%zu creates failed", failed) : 0;
}

static int take_option(int opt, struct request *rq, struct err *err)
{
	switch (opt) {
	case 'n':
		return cli_number("-n", optarg, 1, 1000000, &rq->n, err);
	case 'b':
		return cli_number("--boots", optarg, 0, 1000, &rq->boots, err);
	case 'm':
		for (int i = 0; i < N_MODES; i++) {
			if (!strcmp(optarg, mode_names[i])) {
				rq->modes[i] = true;
				return 0;
			}
		}
		return err_set(err, EINVAL, "--mode %s: cold, shell or spare", optarg);
	case 'r':
		for (int i = RESULT_NONE; i <= RESULT_PYTHON; i++) {
			if (!strcmp(optarg, result_names[i])) {
				rq->result = i;
				return 0;
			}
		}
		return err_set(err, EINVAL, "--result %s: none, exec or python", optarg);
	case 'P':
		rq->options.pager.no_premap = true;
		return 0;
	case 'U':
		rq->options.no_uffd = true;
		return 0;
	case 'O':
		rq->options.own_pager = true;
		return 0;
	case 'j':
		rq->json = true;
		return 0;
	case 'S':
		rq->store_dir = optarg;
		return 0;
	default:
		return err_set(err, EINVAL, "see above");
	}
}

static int parse(int argc, char **argv, struct request *rq)
{
	static const struct option options[] = {
		{"boots", required_argument, NULL, 'b'},
		{"mode", required_argument, NULL, 'm'},
		{"result", required_argument, NULL, 'r'},
		{"no-premap", no_argument, NULL, 'P'},
		{"no-uffd", no_argument, NULL, 'U'},
		{"own-pager", no_argument, NULL, 'O'},
		{"json", no_argument, NULL, 'j'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	struct err err = {0};
	bool any = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (take_option(opt, rq, &err) < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (argc - optind != 2 || strcmp(argv[optind], "create"))
		return cli_usage("bench", "write `create TEMPLATE`");
	rq->ref = argv[optind + 1];
	for (int i = 0; i < N_MODES; i++)
		any |= rq->modes[i];
	for (int i = 0; i < N_MODES && !any; i++)
		rq->modes[i] = true;
	return 0;
}

int cmd_bench(int argc, char **argv)
{
	struct request rq = {.n = 100, .boots = 3};
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct bench b = {.rq = &rq, .manifest = &m};
	struct err err = {0};
	int r = parse(argc, argv, &rq);

	if (r)
		return r;
	b.progress = progress_new(PROGRESS_AUTO);
	rq.options.progress = b.progress;
	r = cli_resolve(rq.store_dir, rq.ref, &s, &m, &err);
	b.store = s;
	if (!r)
		r = run(&b, &err);
	if (b.template)
		template_free(b.template);
	bench_clear(&b.first);
	bench_clear(&b.boot);
	for (int i = 0; i < N_MODES; i++)
		bench_clear(&b.series[i]);
	progress_free(b.progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
