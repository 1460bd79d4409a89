/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench load: creates against a running pool, over its API, as its clients see them.
 *
 *   create MODE   from the request (an open loop: from when it was to begin) to its 201, by what the
 *                 pool had for it: a spare, a standby, nothing
 *   exec          with --until exec: from the same begin to the end of a first command
 *   kill          from the request to the answer: the machine is gone
 *
 * A closed loop begins the next create when the kill before it has been answered, with --concurrency as
 * many beside each other. An open loop begins at times that nothing moves. One thread carries all
 * of it (libcurl's multi interface), so that what is measured is the pool, not this program's threads;
 * with --pace it also waits, before each create, until the pool has what it is to have.
 */
#include <string.h>
#include <sys/timerfd.h>

#include "benches/series.h"
#include "cli/bench.h"
#include "cli/client.h"
#include "common/clock.h"
#include "common/progress.h"
#include "common/str.h"
#include "pool/pool.h"
#include "cli/limits.h"

#define KINDS 8 /* of failures that are told apart */
#define CREATE_MS (LIMIT_CREATE_MS + 30000)
#define SETTLE_MS 120000
#define POLL_MS 5

enum { SPARE, STANDBY, COLD, OTHER, EXEC, KILL, N_SERIES };
static const char *const series_names[N_SERIES] = {
	"create spare", "create standby", "create cold", "create", "exec", "kill"};

struct request {
	struct bench_output out;
	const char *template;
	uint64_t n, concurrency;
	double rate;
	bool pace;
	int until_exec; /* 0 or 1 */
};

struct load {
	const struct request *rq;
	struct client *client;
	struct bench_series series[N_SERIES];
	struct {
		char text[200];
		size_t n;
	} kinds[KINDS];
	size_t failed;
	uint64_t begun, ended, open;
	int64_t start;
	struct progress *progress;
};

/* One sandbox: create, exec where asked, a look at how it was made, kill. */
struct chain {
	struct load *load;
	char *id;
	int64_t due; /* when its create was to begin */
	int64_t created; /* was answered */
	int64_t step; /* the request that is open did begin */
};

/* ---- results ------------------------------------------------------------------------------- */

static void fail(
	struct load *l, struct bench_series *s, const char *what, const struct client_answer *a)
{
	char text[200];
	struct err err;
	size_t i;

	snprintf(text, sizeof(text), "%s: %s%.150s", what, a->error ? "" : "not what was expected",
		a->text);
	err_set(&err, EIO, "%s", text);
	bench_series_fail(s, &err);
	l->failed++;
	for (i = 0; i < KINDS - 1 && l->kinds[i].n; i++) {
		if (!strcmp(l->kinds[i].text, text))
			break;
	}
	if (!l->kinds[i].n)
		memcpy(l->kinds[i].text, i == KINDS - 1 ? "others" : text,
			i == KINDS - 1 ? sizeof("others") : sizeof(text));
	l->kinds[i].n++;
}

static void keep(struct load *l, struct bench_series *s, int64_t due, int64_t now)
{
	bench_series_add(s, &(struct bench_sample){.at = due - l->start, .total = now - due});
}

static unsigned series_of(const json_t *sandbox)
{
	const char *mode = client_string(sandbox, "mode");

	return !strcmp(mode, "spare")              ? SPARE
		: !strcmp(mode, POOL_MODE_STANDBY) ? STANDBY
		: !strcmp(mode, "cold")            ? COLD
						   : OTHER;
}

static void chain_end(struct chain *c)
{
	c->load->open--;
	progress_update(c->load->progress, ++c->load->ended);
	free(c->id);
	free(c);
}

/* ---- its steps ----------------------------------------------------------------------------- */

static bool step(struct chain *c, const char *method, const char *path, const json_t *body,
	void (*done)(void *user, const struct client_answer *a))
{
	struct client_spec spec = {.method = method,
		.path = path,
		.json = body,
		.timeout_ms = CREATE_MS,
		.done = done,
		.user = c};

	c->step = clock_now_ns();
	return client_begin(c->load->client, &spec, NULL) != NULL;
}

static void on_killed(void *user, const struct client_answer *a)
{
	struct chain *c = user;

	if (a->error)
		fail(c->load, &c->load->series[KILL], "kill", a);
	else
		keep(c->load, &c->load->series[KILL], c->step, clock_now_ns());
	chain_end(c);
}

static void begin_kill(struct chain *c)
{
	cleanup_free char *path = str_printf("/sandboxes/%s", c->id);

	if (!step(c, "DELETE", path, NULL, on_killed))
		chain_end(c);
}

static void on_looked(void *user, const struct client_answer *a)
{
	struct chain *c = user;
	cleanup_json json_t *sandbox = NULL;

	if (!a->error)
		json_parse("answer", a->body, a->len, &sandbox, NULL);
	keep(c->load, &c->load->series[series_of(sandbox)], c->due, c->created);
	begin_kill(c);
}

static void begin_look(struct chain *c)
{
	cleanup_free char *path = str_printf("/sandboxes/%s", c->id);

	if (!step(c, "GET", path, NULL, on_looked))
		begin_kill(c);
}

static void on_exec(void *user, const struct client_answer *a)
{
	struct chain *c = user;
	int64_t now = clock_now_ns();
	struct bench_series *s = &c->load->series[EXEC];
	cleanup_json json_t *result = NULL;

	if (a->error || json_parse("answer", a->body, a->len, &result, NULL) < 0 ||
		json_integer_value(json_object_get(result, "exit_code")) != 0 ||
		!json_is_integer(json_object_get(result, "exit_code")))
		fail(c->load, s, "exec", a);
	else
		keep(c->load, s, c->due, now);
	begin_look(c);
}

static void begin_exec(struct chain *c)
{
	cleanup_free char *path = str_printf("/sandboxes/%s/exec", c->id);
	cleanup_json json_t *body = json_pack("{s:[s]}", "argv", "/bin/true");

	if (!step(c, "POST", path, body, on_exec))
		begin_look(c);
}

static void on_created(void *user, const struct client_answer *a)
{
	struct chain *c = user;
	cleanup_json json_t *sandbox = NULL;

	c->created = clock_now_ns();
	if (a->error || a->status != 201 ||
		json_parse("answer", a->body, a->len, &sandbox, NULL) < 0 ||
		!*client_string(sandbox, "sandboxID")) {
		fail(c->load, &c->load->series[OTHER], "create", a);
		chain_end(c);
		return;
	}
	c->id = client_escape(client_string(sandbox, "sandboxID"));
	if (c->load->rq->until_exec)
		begin_exec(c);
	else
		begin_look(c);
}

static int begin_create(struct load *l, int64_t due, struct err *err)
{
	cleanup_json json_t *body = json_pack("{s:s, s:{s:s}}", "templateID", l->rq->template,
		"metadata", "made-by", "parbake bench load");
	struct chain *c = calloc(1, sizeof(*c));

	if (!c || !body)
		abort();
	*c = (struct chain){.load = l, .due = due};
	l->begun++;
	l->open++;
	if (step(c, "POST", "/sandboxes", body, on_created))
		return 0;
	chain_end(c);
	return err_set(err, EIO, "cannot begin a request");
}

/* ---- the loops ----------------------------------------------------------------------------- */

/* Does the pool have all that it wants of the template? */
static int settled(struct load *l, bool *ret, struct err *err)
{
	cleanup_json json_t *answer = NULL;
	const char *colon = strpbrk(l->rq->template, ":@");
	size_t len = colon ? (size_t)(colon - l->rq->template) : strlen(l->rq->template), i;
	json_t *t;
	int r = client_call(l->client, "GET", "/v1/pool", NULL, &answer, err);

	*ret = true;
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(answer, "templates"), i, t)
	{
		const char *name = client_string(t, "name");

		if (strlen(name) == len && !strncmp(name, l->rq->template, len))
			*ret &= client_number(t, "spares") >= client_number(t, "want_spares") &&
				client_number(t, "standbys") >= client_number(t, "want_standbys");
	}
	return 0;
}

static int settle(struct load *l, struct err *err)
{
	int64_t deadline = clock_deadline(SETTLE_MS);
	bool is = false;
	int r = settled(l, &is, err);

	while (r == 0 && !is) {
		if (clock_left_ms(deadline) == 0)
			return err_set(err, ETIMEDOUT,
				"the pool does not have what it is to have of %s after %d s; see "
				"`parbake pool status`",
				l->rq->template, SETTLE_MS / 1000);
		r = client_turn(l->client, NULL, 0, clock_deadline(POLL_MS), err);
		if (r == 0)
			r = settled(l, &is, err);
	}
	return r;
}

static int closed_loop(struct load *l, struct err *err)
{
	int r = 0;

	while (r == 0 && l->ended < l->rq->n) {
		if (l->rq->pace && !l->open && l->begun < l->rq->n)
			r = settle(l, err);
		while (r == 0 && l->begun < l->rq->n && l->open < l->rq->concurrency)
			r = begin_create(l, clock_now_ns(), err);
		if (r == 0)
			r = client_turn(l->client, NULL, 0, CLOCK_NEVER, err);
	}
	return r;
}

/* A timer to the nanosecond, for poll's are to the millisecond: that much would be counted as the pool's. */
static int open_loop(struct load *l, struct err *err)
{
	cleanup_fd int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int r = timer < 0 ? err_sys(err, errno, "make a timer") : 0;

	while (r == 0 && l->ended < l->rq->n) {
		struct pollfd fd = {.fd = timer, .events = POLLIN};
		struct itimerspec at = {0};
		int64_t due = 0;

		while (r == 0 && l->begun < l->rq->n && l->open < LIMIT_BENCH_OPEN) {
			due = l->start + (int64_t)((double)l->begun * 1e9 / l->rq->rate);
			if (due > clock_now_ns())
				break;
			r = begin_create(l, due, err);
			due = 0;
		}
		/* 0: it rests until a request ends */
		at.it_value.tv_sec = due / 1000000000;
		at.it_value.tv_nsec = due % 1000000000;
		timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
		if (r == 0)
			r = client_turn(l->client, &fd, 1, CLOCK_NEVER, err);
	}
	return r;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void report(struct load *l, json_t *run, struct text *text)
{
	double seconds = (double)(clock_now_ns() - l->start) / 1e9;

	bench_print_head(text, "", "");
	for (unsigned i = 0; i < N_SERIES; i++) {
		if (!l->series[i].n && !l->series[i].failed)
			continue;
		bench_print_series(text, &l->series[i], 1e6);
		bench_run_append(run, "series", bench_series_to_json(&l->series[i]));
	}
	text_add(text, "%zu failed of %llu, in %.1f s: %.1f sandboxes a second\n", l->failed,
		(unsigned long long)l->rq->n, seconds, (double)l->ended / seconds);
	for (unsigned i = 0; i < KINDS && l->kinds[i].n; i++) {
		text_add(text, "  %zu × %s\n", l->kinds[i].n, l->kinds[i].text);
		bench_run_note(run, "%zu × %s", l->kinds[i].n, l->kinds[i].text);
	}
}

static json_t *new_run(const struct request *rq, char **ret_title)
{
	cleanup_free char *how = rq->rate > 0
		? str_printf("%g a second", rq->rate)
		: str_printf("%llu at once", (unsigned long long)rq->concurrency);
	cleanup_free char *id = str_printf("load %s, %s%s%s", rq->template, how,
		rq->until_exec ? ", to the first command" : "", rq->pace ? ", paced" : "");
	json_t *run;

	*ret_title = str_printf("Creates of %s through the pool, %s%s", rq->template, how,
		rq->pace ? ", each when the pool is full" : "");
	run = bench_run_new("load", id, *ret_title);
	bench_run_fact(run, "template", json_string(rq->template));
	bench_run_fact(run, "loop", json_string(rq->rate > 0 ? "open" : "closed"));
	return run;
}

static int run_load(const struct request *rq, struct err *err)
{
	cleanup_client struct client *client = NULL;
	cleanup_free char *title = NULL;
	cleanup_text struct text text = {0};
	cleanup_json json_t *run = NULL;
	struct load l = {.rq = rq};
	int r = client_new(&client, err);

	l.client = client;
	for (unsigned i = 0; i < N_SERIES; i++)
		bench_series_init(&l.series[i], series_names[i], false, false);
	/* is there a pool, and a connection to it? */
	if (r == 0)
		r = settled(&l, &(bool){false}, err);
	if (r == 0) {
		l.progress = progress_new(PROGRESS_AUTO);
		progress_stage(l.progress, "load", "sandboxes", rq->n);
		run = new_run(rq, &title);
		text_add(&text, "%s; times in ms\n", title);
		l.start = clock_now_ns();
		r = rq->rate > 0 ? open_loop(&l, err) : closed_loop(&l, err);
		for (unsigned i = 0; i < N_SERIES; i++)
			l.series[i].span = clock_now_ns() - l.start;
		progress_done(l.progress, "%zu failed", l.failed);
		progress_free(l.progress);
	}
	if (r == 0) {
		report(&l, run, &text);
		r = bench_finish(&rq->out, json_incref(run), &text, err);
	}
	if (r == 0 && l.failed)
		r = err_set(err, EIO, "%zu requests failed: %s", l.failed, l.kinds[0].text);
	if (client)
		client_drop_all(client); /* before what they write to goes */
	for (unsigned i = 0; i < N_SERIES; i++)
		bench_series_clear(&l.series[i]);
	return r;
}

static int run(void *args)
{
	const struct request *rq = args;
	struct err err = {0};

	if (rq->rate > 0 && (rq->concurrency > 1 || rq->pace))
		return command_usage(&command_bench_load,
			"--rate begins creates at their times: no --concurrency, no --pace");
	return run_load(rq, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	BENCH_COUNT(struct request, n, LIMIT_SAMPLES, "sandboxes (100)"),
	{"concurrency", .kind = OPTION_NUMBER, .min = 1, .max = LIMIT_BENCH_CLIENTS,
		.offset = offsetof(struct request, concurrency), .value = "N",
		.help = "that many at once (1)"},
	{"rate", .kind = OPTION_REAL, .least = 0.01, .most = 100000,
		.offset = offsetof(struct request, rate), .value = "R",
		.help = "open loop: R creates a second begin on time"},
	{"until", .kind = OPTION_CHOICE, .choices = (const char *const[]){"created", "exec", NULL},
		.offset = offsetof(struct request, until_exec),
		.help = "exec: also to the end of a first command (created)"},
	{"pace", .offset = offsetof(struct request, pace),
		.help = "each create waits until the pool has refilled"},
	BENCH_OUTPUT(struct request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", .names = NAMES_TEMPLATE, .offset = offsetof(struct request, template)},
	{0},
};

const struct command command_bench_load = {
	.name = "bench load",
	.summary = "creates and kills through a running pool",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.defaults = &(const struct request){.n = 100, .concurrency = 1},
	.run = run,
};
