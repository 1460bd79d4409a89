/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool's metrics: /metrics and GET /v1/pool.
 *
 * Creates are counted as they end. All other values are collected when the page is requested: the
 * pool is asked for its counts, and the keepers of up to LIMIT_METRICS_SAMPLED sandboxes for their
 * memory. The page waits a little while for the keepers' answers; a keeper that is stuck is left
 * out.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"
#include "pool/api/limits.h"
#include "pool/api/api_private.h"

#define PARTS_MAX 32 /* of a create's trace */

struct api_monitoring {
	struct metrics_family *create, *part, *creates;
	struct metrics_family *sandboxes, *standbys, *shells, *spares, *wanted, *making, *running;
	struct metrics_family *found, *failures, *arrivals;
	struct metrics_family *memory, *sampled, *disk, *faults;
	struct metrics_family *info, *uptime, *cpu, *resident, *fds;
	LIST_HEAD(, scrape) scrapes; /* pages that wait */
};

/* ---- creates -------------------------------------------------------------------------------- */

struct part {
	const char *name;
	json_int_t at_ns;
};

static int by_time(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* The trace says when each part was over; a part is what lies between. */
static void observe_parts(
	struct api_monitoring *n, const struct pool_sandbox_info *f, const json_t *trace)
{
	struct part parts[PARTS_MAX];
	size_t n_parts = 0;
	const char *name;
	json_t *at;

	json_object_foreach((json_t *)trace, name, at)
	{
		if (n_parts < PARTS_MAX && json_is_integer(at))
			parts[n_parts++] = (struct part){name, json_integer_value(at)};
	}
	qsort(parts, n_parts, sizeof(*parts), by_time);
	for (size_t i = 0; i < n_parts; i++)
		metrics_observe(n->part,
			(double)(parts[i].at_ns - (i ? parts[i - 1].at_ns : 0)) / 1e9,
			f->template_name, f->mode, parts[i].name, NULL);
}

static void created(void *user, const struct pool_sandbox_info *f, bool ok, const json_t *trace)
{
	struct api *a = user;
	struct api_monitoring *n = a->monitoring;
	const char *mode = f->mode && *f->mode ? f->mode : "none";

	metrics_add(n->creates, 1, f->template_name, mode, ok ? "ok" : "failed", NULL);
	if (!ok)
		return;
	metrics_observe(n->create, (double)f->create_ns / 1e9, f->template_name, mode, NULL);
	observe_parts(n, f, trace);
}

void api_monitoring_new(struct api *a)
{
	struct api_monitoring *n = calloc(1, sizeof(*n));
	struct metrics *m = a->metrics;

	if (!n)
		abort();
#define FAMILY(kind, name, labels, help)                                                           \
	metrics_family(m, METRICS_##kind, "parbake_" name, help, labels)
	n->create = FAMILY(HISTOGRAM, "create_seconds", "template,mode",
		"Time from a create's request to its sandbox having answered.");
	n->part = FAMILY(HISTOGRAM, "create_part_seconds", "template,mode,part",
		"Time of each part of a create within its keeper.");
	n->creates = FAMILY(
		COUNTER, "creates_total", "template,mode,result", "Creates that have ended.");
	n->sandboxes = FAMILY(GAUGE, "sandboxes", "state", "Sandboxes by their state.");
	n->running = FAMILY(
		GAUGE, "template_sandboxes", "template,tag", "Running sandboxes of a template.");
	n->standbys = FAMILY(
		GAUGE, "template_standbys", "template,tag", "Standbys that wait for a create.");
	n->shells = FAMILY(GAUGE, "template_shells", "template,tag",
		"The same as parbake_template_standbys, by its earlier name.");
	n->spares =
		FAMILY(GAUGE, "template_spares", "template,tag", "Spares that wait for a create.");
	n->wanted = FAMILY(GAUGE, "template_wanted", "template,tag,what",
		"How many are to wait (standbys are called shells here).");
	n->making =
		FAMILY(GAUGE, "template_making", "template,tag", "Standbys and spares being made.");
	n->found = FAMILY(COUNTER, "pool_found_total", "template,tag,found",
		"Creates by what the pool had for them (a standby is called shell here).");
	n->failures = FAMILY(COUNTER, "pool_failures_total", "template,tag",
		"Standbys and spares that could not be made.");
	n->arrivals = FAMILY(GAUGE, "template_arrivals_per_second", "template,tag",
		"Creates a second, smoothed.");
	n->memory = FAMILY(GAUGE, "memory_bytes", "template,kind",
		"Memory of the sampled sandboxes: proportional set sizes, the guests' and the "
		"rest.");
	n->disk = FAMILY(GAUGE, "overlay_bytes", "template",
		"What the sampled sandboxes have written to disk.");
	n->faults = FAMILY(GAUGE, "monitor_faults", "template",
		"Page faults of the sampled sandboxes' monitors since they began.");
	n->sampled =
		FAMILY(GAUGE, "memory_sampled_sandboxes", "", "Sandboxes that memory_bytes is of.");
	n->info = FAMILY(GAUGE, "info", "version", "Which parbake this is.");
	n->uptime = FAMILY(GAUGE, "uptime_seconds", "", "Since the daemon began.");
#undef FAMILY
	n->cpu = metrics_family(
		m, METRICS_COUNTER, "process_cpu_seconds_total", "CPU time of the daemon.", "");
	n->resident = metrics_family(m, METRICS_GAUGE, "process_resident_memory_bytes",
		"Resident memory of the daemon.", "");
	n->fds = metrics_family(
		m, METRICS_GAUGE, "process_open_fds", "Descriptors of the daemon.", "");
	metrics_set(n->info, 1, PARBAKE_VERSION, NULL);
	a->monitoring = n;
	pool_on_create(a->pool, created, a);
}

/* ---- gauges --------------------------------------------------------------------------------- */

static double open_fds(void)
{
	cleanup_dir DIR *dir = opendir("/proc/self/fd");
	int n = -3; /* ., .., and this one */

	while (dir && readdir(dir))
		n++;
	return n;
}

static double resident(void)
{
	cleanup_file FILE *f = fopen("/proc/self/statm", "re");
	unsigned long size, pages = 0;

	if (f && fscanf(f, "%lu %lu", &size, &pages) != 2)
		pages = 0;
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void gather_daemon(struct api *a)
{
	struct api_monitoring *n = a->monitoring;
	struct rusage ru;

	metrics_set(n->uptime, (double)(clock_now_ns() - a->started_ns) / 1e9, NULL);
	if (getrusage(RUSAGE_SELF, &ru) == 0)
		metrics_set(n->cpu,
			(double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
				(double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6,
			NULL);
	metrics_set(n->resident, resident(), NULL);
	metrics_set(n->fds, open_fds(), NULL);
	for (int state = POOL_CREATING; state <= POOL_ENDING; state++)
		metrics_set(n->sandboxes, (double)pool_count(a->pool, state),
			pool_state_name(state), NULL);
}

static void gather_templates(struct api *a)
{
	struct api_monitoring *n = a->monitoring;
	struct metrics_family *gauges[] = {
		n->standbys, n->shells, n->spares, n->wanted, n->making, n->running, n->arrivals};
	struct pool_template_info t;

	for (size_t i = 0; i < sizeof(gauges) / sizeof(*gauges); i++)
		metrics_reset(gauges[i]);
	for (unsigned i = 0; pool_template(a->pool, i, &t); i++) {
		metrics_set(n->standbys, t.standbys, t.name, t.tag, NULL);
		metrics_set(n->shells, t.standbys, t.name, t.tag, NULL);
		metrics_set(n->spares, t.spares, t.name, t.tag, NULL);
		metrics_set(n->wanted, t.want_standbys, t.name, t.tag, "shells", NULL);
		metrics_set(n->wanted, t.want_spares, t.name, t.tag, "spares", NULL);
		metrics_set(n->making, t.making, t.name, t.tag, NULL);
		metrics_set(n->running, t.sandboxes, t.name, t.tag, NULL);
		metrics_set(n->arrivals, t.arrivals_per_s, t.name, t.tag, NULL);
		metrics_set(n->found, (double)t.hits_spare, t.name, t.tag, "spare", NULL);
		metrics_set(n->found, (double)t.hits_standby, t.name, t.tag, "shell", NULL);
		metrics_set(n->found, (double)t.misses, t.name, t.tag, "none", NULL);
		metrics_set(n->failures, (double)t.failures, t.name, t.tag, NULL);
	}
}

/* ---- memory --------------------------------------------------------------------------------- */

/* A page that waits for keepers' answers. It goes when it has been answered and all of them have
 * come. */
struct scrape {
	struct api *api;
	LIST_ENTRY(scrape) link;
	struct http_request *rq; /* NULL: answered */
	struct loop_timer *late;
	unsigned waiting; /* answers, and the asking itself */
	struct sample *samples;
	size_t n_samples;
};

struct sample {
	struct scrape *scrape;
	char template_name[LIMIT_NAME_SIZE];
	bool came;
	double private, shared, monitor, keeper, disk, faults;
};

static double number(const json_t *reply, const char *name)
{
	return json_number_value(json_object_get(reply, name));
}

static void gather_memory(struct scrape *s)
{
	struct api_monitoring *n = s->api->monitoring;
	unsigned sampled = 0;

	metrics_reset(n->memory);
	metrics_reset(n->disk);
	metrics_reset(n->faults);
	for (size_t i = 0; i < s->n_samples; i++) {
		const struct sample *one = &s->samples[i];

		if (!one->came)
			continue;
		sampled++;
		metrics_add(n->memory, one->private, one->template_name, "guest_private", NULL);
		metrics_add(n->memory, one->shared, one->template_name, "guest_shared", NULL);
		metrics_add(n->memory, one->monitor, one->template_name, "monitor", NULL);
		metrics_add(n->memory, one->keeper, one->template_name, "keeper", NULL);
		metrics_add(n->disk, one->disk, one->template_name, NULL);
		metrics_add(n->faults, one->faults, one->template_name, NULL);
	}
	metrics_set(n->sampled, sampled, NULL);
}

static void scrape_free(struct scrape *s)
{
	LIST_REMOVE(s, link);
	loop_timer_cancel(s->late);
	free(s->samples);
	free(s);
}

/* What has come is shown. */
static void show(struct scrape *s)
{
	struct http_request *rq = s->rq;
	cleanup_free char *text = NULL;

	gather_daemon(s->api);
	gather_templates(s->api);
	gather_memory(s);
	text = metrics_text(s->api->metrics);
	s->rq = NULL;
	loop_timer_cancel(s->late);
	s->late = NULL;
	http_reply_text(rq, 200, "text/plain; version=0.0.4; charset=utf-8", text);
}

static void too_late(void *user)
{
	struct scrape *s = user;

	s->late = NULL;
	show(s);
}

static void one_less(struct scrape *s)
{
	if (--s->waiting)
		return;
	if (s->rq)
		show(s);
	scrape_free(s);
}

static void stats_came(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct sample *one = user;

	(void)text;
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (!error) {
		one->private = number(reply, "memory_private");
		one->shared = number(reply, "memory_shared");
		one->monitor = number(reply, "monitor_private");
		one->keeper = number(reply, "keeper_private");
		one->disk = number(reply, "disk_bytes");
		one->faults = number(reply, "faults");
		one->came = true;
	}
	one_less(one->scrape);
}

void api_metrics(struct api *a, struct http_request *rq)
{
	struct scrape *s = calloc(1, sizeof(*s));
	struct pool_sandbox *sb = NULL;
	char ids[LIMIT_METRICS_SAMPLED][LIMIT_NAME_SIZE];

	if (!s)
		abort();
	*s = (struct scrape){.api = a, .rq = rq, .waiting = 1};
	s->samples = calloc(LIMIT_METRICS_SAMPLED, sizeof(*s->samples));
	if (!s->samples)
		abort();
	LIST_INSERT_HEAD(&a->monitoring->scrapes, s, link);
	while (s->n_samples < LIMIT_METRICS_SAMPLED && (sb = pool_next(a->pool, sb))) {
		struct sample *one = &s->samples[s->n_samples];
		struct pool_sandbox_info f;

		pool_sandbox_info(sb, &f);
		if (f.state != POOL_RUNNING)
			continue;
		one->scrape = s;
		snprintf(one->template_name, sizeof(one->template_name), "%s", f.template_name);
		snprintf(ids[s->n_samples++], LIMIT_NAME_SIZE, "%s", f.id);
	}
	s->late = loop_timer(a->loop, clock_deadline(LIMIT_METRICS_WAIT_MS), too_late, s);
	s->waiting += (unsigned)s->n_samples;
	for (size_t i = 0; i < s->n_samples; i++)
		pool_stats(a->pool, ids[i], stats_came, &s->samples[i]);
	one_less(s);
}

void api_monitoring_drop(struct api *a)
{
	while (!LIST_EMPTY(&a->monitoring->scrapes))
		scrape_free(LIST_FIRST(&a->monitoring->scrapes));
}

void api_monitoring_free(struct api *a)
{
	api_monitoring_drop(a);
	free(a->monitoring);
}

/* ---- GET /v1/pool --------------------------------------------------------------------------- */

static json_t *template_json(const struct pool_template_info *t)
{
	json_t *obj = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, "
				"s:o, s:f, s:I, s:i, s:I, s:s}",
		"name", t->name, "tag", t->tag, "digest", t->digest, "standbys", (int)t->standbys,
		"spares", (int)t->spares, "want_standbys", (int)t->want_standbys, "want_spares",
		(int)t->want_spares, "making", (int)t->making, "sandboxes", (int)t->sandboxes,
		"hits_spare", (json_int_t)t->hits_spare, "hits_standby",
		(json_int_t)t->hits_standby, "misses", (json_int_t)t->misses, "failures",
		(json_int_t)t->failures, "error",
		json_lossy(t->error ? t->error : "", t->error ? strlen(t->error) : 0),
		"arrivals_per_s", t->arrivals_per_s, "memory_bytes", (json_int_t)t->memory_bytes,
		"vcpus", (int)t->vcpus, "disk_bytes", (json_int_t)t->disk_bytes, "translations",
		t->translations);

	/* the earlier names of three of them */
	json_object_set(obj, "shells", json_object_get(obj, "standbys"));
	json_object_set(obj, "want_shells", json_object_get(obj, "want_standbys"));
	json_object_set(obj, "hits_shell", json_object_get(obj, "hits_standby"));
	return obj;
}

void api_pool(struct api *a, struct http_request *rq)
{
	json_t *templates = json_array(), *sandboxes = json_object();
	struct pool_template_info t;
	struct err why = {0};
	bool settled = pool_settled(a->pool, &why);

	for (unsigned i = 0; pool_template(a->pool, i, &t); i++)
		json_array_append_new(templates, template_json(&t));
	for (int state = POOL_CREATING; state <= POOL_ENDING; state++)
		json_object_set_new(sandboxes, pool_state_name(state),
			json_integer((json_int_t)pool_count(a->pool, state)));
	http_reply(rq, 200,
		json_pack("{s:s, s:I, s:b, s:b, s:o, s:i, s:I, s:s, s:o, s:o}", "version",
			PARBAKE_VERSION, "uptime_ms",
			(json_int_t)((clock_now_ns() - a->started_ns) / 1000000), "ready",
			settled && !a->draining, "draining", a->draining, "why",
			json_lossy(why.text, strlen(why.text)), "max_sandboxes",
			(int)a->config->max_sandboxes, "memory_budget",
			(json_int_t)pool_memory_budget(a->pool), "domain", a->config->domain,
			"sandboxes", sandboxes, "templates", templates));
}
