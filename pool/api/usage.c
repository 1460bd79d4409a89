/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox uses, and what its console said. Usage is the host's view, which the keeper has,
 * so that it can be shown even of a guest that does not answer. Of memory the guest's own view is
 * better, and is shown where the guest answers in time.
 */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/rfc3339.h"
#include "pool/api/control_private.h"

static int64_t number(const json_t *reply, const char *name)
{
	return (int64_t)json_integer_value(json_object_get(reply, name));
}

static json_t *metrics_json(const struct pool_sandbox_info *f, const json_t *reply)
{
	int64_t now_ms = clock_realtime_ns() / 1000000, private = number(reply, "memory_private"),
		shared = number(reply, "memory_shared");
	char at[RFC3339_SIZE];

	rfc3339_text(now_ms * 1000000, 3, at);
	/* memPrivate, memShared and memMonitor are ours, beside what SDKs know */
	return json_pack("{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"timestamp", at, "timestampUnix", (json_int_t)(now_ms / 1000), "cpuCount",
		(json_int_t)f->vcpus, "cpuUsedPct",
		json_number_value(json_object_get(reply, "cpu_pct")), "memUsed",
		(json_int_t)(private + shared), "memTotal", (json_int_t)f->memory_bytes, "memCache",
		(json_int_t)0, "diskUsed", (json_int_t)number(reply, "disk_bytes"), "diskTotal",
		(json_int_t)f->disk_bytes, "memPrivate", (json_int_t) private, "memShared",
		(json_int_t)shared, "memMonitor",
		(json_int_t)(number(reply, "monitor_private") + number(reply, "keeper_private")));
}

/* The end of a look into a running sandbox: its info, or false where the answer has been given. */
static bool looked(struct control_call *c, int error, const char *text, int *fds, unsigned n_fds,
	struct pool_sandbox_info *ret)
{
	struct pool_sandbox *sb = pool_find(c->api->pool, c->id);

	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (error == ENOENT || !sb) {
		control_not_found(c->rq, c->id);
		return false;
	}
	if (error) {
		api_error(c->rq, api_status(error), "%s", text);
		return false;
	}
	pool_sandbox_info(sb, ret);
	return true;
}

static void measured(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct control_call *c = user;
	struct pool_sandbox_info f;

	if (looked(c, error, text, fds, n_fds, &f)) {
		http_reply(c->rq, 200, json_pack("[o]", metrics_json(&f, reply)));
	}
	control_call_free(c);
}

void control_metrics(struct api *a, struct http_request *rq, const char *id)
{
	struct pool_sandbox *sb = pool_find(a->pool, id);
	struct api_caller none = {0};
	struct pool_sandbox_info f;

	pool_sandbox_info(sb, &f);
	if (f.state != POOL_RUNNING) /* it uses nothing */
		http_reply(rq, 200, json_array());
	else
		pool_stats(a->pool, id, measured, control_call_new(a, &none, rq, id));
}

/* A line as E2B's clients parse it: an object as text. */
static json_t *log_line(const char *text, size_t len, const char *at)
{
	cleanup_json json_t *line = json_pack("{s:s, s:s, s:s, s:o}", "timestamp", at, "level",
		"info", "logger", "console", "message", json_lossy(text, len));
	cleanup_free char *dump = json_text(line);

	return json_string(dump);
}

/* The console's lines. When each was written is not known: they are dated by the sandbox's beginning. */
static json_t *log_lines(const char *text, const char *at, bool entries)
{
	json_t *list = json_array();

	while (*text) {
		size_t len = strcspn(text, "\n"), shown = len;

		while (shown && text[shown - 1] == '\r')
			shown--;
		if (shown && entries)
			json_array_append_new(list,
				json_pack("{s:s, s:s, s:o, s:{}}", "timestamp", at, "level", "info",
					"message", json_lossy(text, shown), "fields"));
		else if (shown)
			json_array_append_new(list,
				json_pack("{s:s, s:o}", "timestamp", at, "line",
					log_line(text, shown, at)));
		text += len + (text[len] == '\n');
	}
	return list;
}

static void console_read(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct control_call *c = user;
	const char *console = json_string_value(json_object_get(reply, "text"));
	struct pool_sandbox_info f;
	char at[RFC3339_SIZE];

	if (looked(c, error, text, fds, n_fds, &f)) {
		rfc3339_text(f.started_ms * 1000000, 3, at);
		console = console ? console : "";
		http_reply(c->rq, 200,
			c->v2 ? json_pack("{s:o}", "logs", log_lines(console, at, true))
			      : json_pack("{s:o, s:o}", "logs", log_lines(console, at, false),
					"logEntries", log_lines(console, at, true)));
	}
	control_call_free(c);
}

void control_logs(struct api *a, struct http_request *rq, const char *id, bool v2)
{
	struct pool_sandbox *sb = pool_find(a->pool, id);
	struct api_caller none = {0};
	struct control_call *c;
	struct pool_sandbox_info f;

	pool_sandbox_info(sb, &f);
	if (f.state != POOL_RUNNING) {
		http_reply(rq, 200,
			v2 ? json_pack("{s:[]}", "logs")
			   : json_pack("{s:[], s:[]}", "logs", "logEntries"));
		return;
	}
	c = control_call_new(a, &none, rq, id);
	c->v2 = v2;
	pool_console(a->pool, id, console_read, c);
}
