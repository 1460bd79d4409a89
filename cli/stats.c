/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake stats: what sandboxes of the pool take, each second anew on a terminal, once otherwise. The
 * metrics of all are asked for at the same time, so that one that does not answer holds up
 * no other: it has no numbers in that round.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/progress.h"
#include "common/str.h"

#define ROUND_MS 1000
#define METRICS_MS 2000 /* that one sandbox's may take */

struct row {
	struct args *stats;
	json_t *sandbox; /* as listed; a reference */
	json_t *metrics; /* the newest; NULL: not told */
};

struct args {
	struct client *client;
	char **ids; /* of the command line, resolved; none: all that run */
	size_t n_ids;
	struct row *rows;
	size_t n, open;
	bool json, once, live;
	struct words words; /* as written */
};

static bool wanted(const struct args *s, const char *id)
{
	for (size_t i = 0; i < s->n_ids; i++) {
		if (!strcmp(s->ids[i], id))
			return true;
	}
	return s->n_ids == 0;
}

static void on_metrics(void *user, const struct client_answer *a)
{
	struct row *row = user;
	json_t *list = NULL;

	row->stats->open--;
	if (a->error || json_parse("metrics", a->body, a->len, &list, NULL) < 0)
		return;
	row->metrics = json_incref(json_array_get(list, json_array_size(list) - 1));
	json_decref(list);
}

static int ask(struct args *s, struct row *row, struct err *err)
{
	cleanup_free char *id = client_escape(client_string(row->sandbox, "sandboxID"));
	cleanup_free char *path = str_printf("/sandboxes/%s/metrics", id);
	const struct client_spec spec = {.method = "GET",
		.path = path,
		.timeout_ms = METRICS_MS,
		.done = on_metrics,
		.user = row};

	if (!client_begin(s->client, &spec, err))
		return -EIO;
	s->open++;
	return 0;
}

static void clear_rows(struct args *s)
{
	for (size_t i = 0; i < s->n; i++) {
		json_decref(s->rows[i].sandbox);
		json_decref(s->rows[i].metrics);
	}
	free(s->rows);
	s->rows = NULL;
	s->n = 0;
}

static int collect(struct args *s, struct err *err)
{
	cleanup_json json_t *list = NULL;
	json_t *sandbox;
	size_t i;
	int r = client_list(s->client, s->n_ids ? NULL : "running", &list, err);

	if (r < 0)
		return r;
	s->rows = calloc(json_array_size(list) + 1, sizeof(*s->rows));
	if (!s->rows)
		abort();
	json_array_foreach(list, i, sandbox)
	{
		if (!wanted(s, client_string(sandbox, "sandboxID")))
			continue;
		s->rows[s->n] = (struct row){.stats = s, .sandbox = json_incref(sandbox)};
		if (r == 0 && !strcmp(client_string(sandbox, "state"), "running"))
			r = ask(s, &s->rows[s->n], err);
		s->n++;
	}
	while (r == 0 && s->open)
		r = client_turn(s->client, NULL, 0, CLOCK_NEVER, err);
	return r;
}

static const char *bytes_of(const json_t *obj, const char *key, char ret[static 16])
{
	if (!json_is_number(json_object_get(obj, key)))
		return "-";
	return progress_bytes((uint64_t)client_number(obj, key), ret);
}

static void print_row(const struct row *row, int64_t now_ms)
{
	const json_t *sb = row->sandbox, *m = row->metrics;
	const char *alias = client_string(sb, "alias");
	char age[16], left[16], private[16], shared[16], disk[16], cpu[16] = "-";
	int64_t started, end;

	if (json_is_number(json_object_get(m, "cpuUsedPct")))
		snprintf(cpu, sizeof(cpu), "%.1f%%", client_number(m, "cpuUsedPct"));
	printf("%-20s %-20s %-8s %7s %10s %10s %10s %7s %7s\n", client_string(sb, "sandboxID"),
		*alias ? alias : client_string(sb, "templateID"), client_string(sb, "state"), cpu,
		bytes_of(m, "memPrivate", private), bytes_of(m, "memShared", shared),
		bytes_of(m, "diskUsed", disk),
		client_time(sb, "startedAt", &started) ? client_age(now_ms - started, age) : "-",
		client_time(sb, "endAt", &end) && m ? client_age(end - now_ms, left) : "-");
}

static void print_all(const struct args *s)
{
	int64_t now_ms = clock_realtime_ns() / 1000000;

	if (s->live)
		printf("\033[H\033[J");
	if (!s->json)
		printf("%-20s %-20s %-8s %7s %10s %10s %10s %7s %7s\n", "SANDBOX", "TEMPLATE",
			"STATE", "CPU", "PRIVATE", "SHARED", "DISK", "AGE", "LEASE");
	for (size_t i = 0; i < s->n; i++) {
		if (s->json) {
			cleanup_json json_t *obj = json_copy(s->rows[i].sandbox);

			json_object_set(obj, "metrics", s->rows[i].metrics ?: json_null());
			json_print_line(obj);
		} else {
			print_row(&s->rows[i], now_ms);
		}
	}
	fflush(stdout);
}

static int show(struct args *s, struct err *err)
{
	int r;

	do {
		int64_t next = clock_deadline(ROUND_MS);

		r = collect(s, err);
		if (r == 0)
			print_all(s);
		client_drop_all(s->client);
		s->open = 0;
		clear_rows(s);
		while (r == 0 && s->live && clock_left_ms(next) > 0)
			r = client_turn(s->client, NULL, 0, next, err);
	} while (r == 0 && s->live && !ferror(stdout));
	return r;
}

static int run(void *user)
{
	struct args *s = user;
	cleanup_client struct client *c = NULL;
	struct err err = {0};
	int r = client_new(&c, &err);

	s->live = !s->json && !s->once && isatty(STDOUT_FILENO);
	s->ids = calloc(s->words.n + 1, sizeof(*s->ids));
	if (!s->ids)
		abort();
	s->client = c;
	while (r == 0 && s->n_ids < s->words.n) {
		r = client_resolve(c, s->words.items[s->n_ids], &s->ids[s->n_ids], &err);
		s->n_ids += r == 0;
	}
	if (r == 0)
		r = show(s, &err);
	for (size_t i = 0; i < s->n_ids; i++)
		free(s->ids[i]);
	free(s->ids);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"once", AT(once), "once, also on a terminal"},
	OPTION_JSON(struct args, json),
	{0},
};

static const struct operand_entry operands[] = {
	{"ID", AT(words), NAMES_SANDBOX, .optional = true, .many = true}, {0}};

const struct command command_stats = {"stats", "show what sandboxes take, live on a terminal",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
