/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else makes a machine, or something like one, from the same template, measured in the same
 * run, in turns, so that a busy minute of the host meets all of them:
 *
 *   parbake        a cold create
 *   private file   the memory image expanded into a file on tmpfs and mapped privately (what VM
 *                  templating does): device state and answer as parbake's, without a pager, a
 *                  working set, or a compressed image
 *   eager          QEMU's own snapshot of the very same machine, memory inside: all of it is
 *                  read before it runs
 *   boot           the cold boot
 *   crun           the same root as a container: a process, not a machine; no kernel of its own
 *
 *     build/bench_peers [-n N] [--json] [--save FILE] [--store DIR] TEMPLATE
 *
 * Each is measured to the agent's answer and to the first command's output (a container has no
 * agent). What cannot run here is left out, and why is said.
 */
#include <getopt.h>
#include <string.h>

#include "benches/document.h"
#include "benches/peers/peers.h"
#include "benches/text.h"
#include "common/progress.h"
#include "common/str.h"

static const struct peer *const peers[] = {
	&peer_parbake, &peer_file, &peer_eager, &peer_boot, &peer_crun};

#define N_PEERS (sizeof(peers) / sizeof(peers[0]))

struct standing {
	struct bench_series answer, output;
	bool left_out;
	struct err why;
};

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void run_once(struct peers *p, size_t i, struct standing *st)
{
	struct bench_sample answer = {0}, output = {0};
	struct err why = {0};
	int r = peers[i]->once(p, &answer.total, &output.total, &why);

	if (r < 0) {
		bench_series_fail(&st->output, &why);
		if (peers[i]->answers)
			bench_series_fail(&st->answer, &why);
		return;
	}
	bench_series_add(&st->output, &output);
	if (peers[i]->answers)
		bench_series_add(&st->answer, &answer);
}

static void tell(struct text *out, json_t *run, const char *name, const char *until,
	const struct bench_series *s, const struct bench_series *base)
{
	double p50 = ms(bench_series_percentile(s, 50)), p99 = ms(bench_series_percentile(s, 99));
	double ratio = base->n ? p50 / ms(bench_series_percentile(base, 50)) : 0;

	if (!s->n && !s->failed)
		return;
	text_add(out, "%-28s %-7s %5zu %6zu %9.1f %9.1f %9.2f\n", name, until, s->n, s->failed, p50,
		p99, ratio);
	if (s->failed)
		text_add(out, "  first failure: %s\n", s->first_error.text);
	bench_run_row(run,
		json_pack("[s, s, i, i, f, f, f]", name, until, (int)s->n, (int)s->failed, p50, p99,
			ratio));
	bench_run_append(run, "series", bench_series_to_json(s));
}

static json_t *tell_all(struct peers *p, struct standing *st, struct text *out)
{
	static const char *const columns[] = {
		"peer", "until", "n", "failed", "p50 ms", "p99 ms", "ratio"};
	cleanup_free char *id = str_printf("peers %s", p->manifest->name);
	cleanup_free char *title = str_printf("%s and its peers", p->manifest->name);
	json_t *run = bench_run_new("peers", id, title);

	bench_run_columns(run, columns, sizeof(columns) / sizeof(columns[0]));
	bench_run_fact(run, "template", json_string(p->manifest->name));
	bench_run_fact(run, "digest", json_string(p->manifest->digest));
	bench_run_fact(run, "memory_bytes",
		json_integer((json_int_t)template_config(p->template)->memory_bytes));
	bench_run_fact(run, "eager_state_bytes", json_integer((json_int_t)p->eager_bytes));
	text_add(out, "%-28s %-7s %5s %6s %9s %9s %9s\n", title, "until", "n", "failed", "p50 ms",
		"p99 ms", "ratio");
	for (size_t i = 0; i < N_PEERS; i++) {
		if (peers[i]->answers)
			tell(out, run, peers[i]->name, "answer", &st[i].answer, &st[0].answer);
	}
	for (size_t i = 0; i < N_PEERS; i++)
		tell(out, run, peers[i]->name, "output", &st[i].output, &st[0].output);
	for (size_t i = 0; i < N_PEERS; i++) {
		if (st[i].left_out) {
			text_add(out, "%s: left out: %s\n", peers[i]->name, st[i].why.text);
			bench_run_note(run, "%s: left out: %.800s", peers[i]->name, st[i].why.text);
		}
	}
	return run;
}

static int run(struct peers *p, uint64_t n, struct progress *progress, bool json, const char *save,
	struct err *err)
{
	struct standing *st = calloc(N_PEERS, sizeof(*st));
	cleanup_json json_t *doc = bench_document_new();
	cleanup_text struct text out = {0};
	size_t failed = 0;
	int r;

	if (!st)
		abort();
	progress_stage(progress, "prepare", "peers", N_PEERS);
	for (size_t i = 0; i < N_PEERS; i++) {
		bench_series_init(&st[i].answer, peers[i]->short_name, false, false);
		bench_series_init(&st[i].output, peers[i]->short_name, false, false);
		snprintf(st[i].output.name, sizeof(st[i].output.name), "%s, output",
			peers[i]->short_name);
		st[i].left_out = peers[i]->prepare && peers[i]->prepare(p, &st[i].why) < 0;
		progress_update(progress, i + 1);
	}
	progress_done(progress, NULL);
	progress_stage(progress, "peers", "rounds", n);
	for (uint64_t round = 0; round < n; round++) {
		for (size_t i = 0; i < N_PEERS; i++) {
			/* a boot takes as long as a dozen of the others */
			if (!st[i].left_out && (round % peers[i]->every == 0))
				run_once(p, i, &st[i]);
		}
		progress_update(progress, round + 1);
	}
	progress_done(progress, NULL);
	bench_document_add(doc, tell_all(p, st, &out));
	r = save ? bench_document_write(doc, save, err) : 0;
	if (json)
		json_print_line(doc);
	else
		fputs(out.s, stdout);
	for (size_t i = 0; i < N_PEERS; i++) {
		failed += st[i].output.failed;
		bench_series_clear(&st[i].answer);
		bench_series_clear(&st[i].output);
	}
	free(st);
	return r < 0 || !failed ? r : err_set(err, EIO, "%zu failed", failed);
}

/* This program lies in the build directory: parbake and its parts are found from there. */
static void find_parbake(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	cleanup_free char *exe = NULL;
	char *slash;

	if (n <= 0)
		return;
	self[n] = '\0';
	slash = strrchr(self, '/');
	*slash = '\0';
	exe = str_printf("%s/../parbake", self);
	setenv("PARBAKE_LIBDIR", self, 0);
	setenv("PARBAKE_EXE", exe, 0);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"save", required_argument, NULL, 'W'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct peers p = {.memory_fd = -1, .eager_fd = -1, .manifest = &m};
	struct progress *progress = progress_new(PROGRESS_AUTO);
	const char *store_dir = NULL, *save = NULL;
	uint64_t n = 20;
	bool json = false;
	struct err err = {0};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (opt == 'n')
			n = strtoull(optarg, NULL, 10);
		else if (opt == 'j')
			json = true;
		else if (opt == 'W')
			save = optarg;
		else if (opt == 'S')
			store_dir = optarg;
		else
			return 2;
	}
	if (argc - optind != 1 || n < 1 || n > 10000) {
		fprintf(stderr, "usage: %s [-n N] [--json] [--save FILE] [--store DIR] TEMPLATE\n",
			argv[0]);
		return 2;
	}
	find_parbake();
	r = store_open(store_dir, false, &s, &err);
	p.store = s;
	if (r == 0)
		r = store_resolve(s, argv[optind], &m, &err);
	if (r == 0)
		r = template_open(
			s, &m, &(struct template_options){.progress = progress}, &p.template, &err);
	if (r == 0)
		r = run(&p, n, progress, json, save, &err);
	peers_clear(&p);
	progress_free(progress);
	if (r < 0)
		fprintf(stderr, "bench_peers: %s\n", err.text);
	return r < 0;
}
