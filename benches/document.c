/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of measurements, and the facts of the host they were made on. */
#include "benches/document.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "benches/series.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/rfc3339.h"
#include "common/str.h"
#include "vmm/monitor.h"

/* ---- the host ------------------------------------------------------------------------------ */

/* The value behind "KEY : " in a file of /proc. Caller frees; NULL: not there. */
static char *proc_value(const char *path, const char *key)
{
	cleanup_file FILE *f = fopen(path, "re");
	cleanup_free char *line = NULL;
	size_t room = 0, len = strlen(key);

	while (f && getline(&line, &room, f) > 0) {
		const char *colon = strchr(line, ':');

		if (strncmp(line, key, len) || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		return str_printf("%.*s", (int)strcspn(colon, "\n"), colon);
	}
	return NULL;
}

static json_t *text_or_null(const char *s)
{
	return s ? json_lossy(s, strlen(s)) : json_null();
}

static double load_now(void)
{
	double load[1] = {0};

	return getloadavg(load, 1) == 1 ? load[0] : 0;
}

static json_t *host_facts(void)
{
	cleanup_free char *cpu = proc_value("/proc/cpuinfo", "model name");
	cleanup_free char *memory = proc_value("/proc/meminfo", "MemTotal");
	const struct monitor_facts *facts;
	enum machine_accel accel;
	struct utsname un;
	struct err err;
	json_t *host;

	uname(&un);
	host = json_pack("{s:s, s:s, s:i, s:o, s:o, s:f}", "kernel", un.release, "machine",
		un.machine, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "cpu", text_or_null(cpu),
		"memory", text_or_null(memory), "load", load_now());
	if (monitor_probe(&facts, &err) == 0) {
		json_object_set_new(host, "monitor", text_or_null(facts->name));
		json_object_set_new(host, "monitor_version", text_or_null(facts->version));
		json_object_set_new(host, "accel",
			text_or_null(monitor_default_accel(&accel, &err) == 0
					? machine_accel_name(accel)
					: NULL));
	}
	return host;
}

/* ---- documents ----------------------------------------------------------------------------- */

json_t *bench_document_new(void)
{
	char when[RFC3339_SIZE];
	json_t *doc;

	rfc3339_text(clock_realtime_ns(), 0, when);
	doc = json_pack("{s:i, s:s, s:s, s:o, s:[]}", "format", BENCH_FORMAT, "parbake",
		PARBAKE_VERSION, "created", when, "host", host_facts(), "runs");
	if (!doc)
		abort();
	return doc;
}

void bench_document_add(json_t *doc, json_t *run)
{
	if (json_array_append_new(json_object_get(doc, "runs"), run) < 0)
		abort(); /* no memory, or no document */
}

/* Every series has samples that can be believed: whole numbers ≥ 0, as many as it says. */
static int check_series(const json_t *run, struct err *err)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(run, "series"), i, one)
	{
		cleanup_series struct bench_series s = {0};
		int r = bench_series_from_json(one, &s, err);

		if (r < 0) {
			err_prefix(err, "series %zu", i + 1);
			return r;
		}
	}
	return 0;
}

int bench_document_read(const char *path, json_t **ret, struct err *err)
{
	cleanup_json json_t *doc = NULL;
	const json_t *run;
	uint64_t format;
	size_t i;
	int r = json_read_file(AT_FDCWD, path, &doc, err);

	if (r == 0)
		r = json_get_u64(doc, "format", BENCH_FORMAT, BENCH_FORMAT, &format, err);
	if (r < 0) {
		err_prefix(err, "%s", path);
		return r;
	}
	if (!json_is_object(json_object_get(doc, "host")) ||
		!json_is_array(json_object_get(doc, "runs")))
		return err_set(err, EINVAL, "%s: not a document of `parbake bench --json`", path);
	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		const char *text;

		if (json_get_string(run, "bench", &text, err) < 0 ||
			json_get_string(run, "id", &text, err) < 0 ||
			json_get_string(run, "title", &text, err) < 0 ||
			check_series(run, err) < 0) {
			err_prefix(err, "%s: run %zu", path, i);
			return -EINVAL;
		}
	}
	*ret = steal_ptr(&doc);
	return 0;
}

mode_t bench_file_mode = 0644;

int bench_publish(const char *path, const char *text, size_t len, struct err *err)
{
	cleanup_free char *copy = str_dup(path);
	char *slash = strrchr(copy, '/');
	const char *name = slash ? slash + 1 : copy,
		   *dir = slash == copy ? "/"
		: slash                 ? copy
					: ".";
	int r;

	if (slash)
		*slash = '\0';
	if (!*name)
		return err_set(err, EISDIR, "%s: name a file", path);
	r = file_publish(dir, name, text, len, bench_file_mode, err);
	if (r < 0)
		err_prefix(err, "write %s", path);
	return r;
}

int bench_document_write(const json_t *doc, const char *path, struct err *err)
{
	cleanup_free char *text = json_text(doc);
	cleanup_free char *line = str_printf("%s\n", text);

	return bench_publish(path, line, strlen(line), err);
}

json_t *bench_documents_join(json_t *const *docs, size_t n)
{
	json_t *all = json_copy(docs[0]);

	if (!all || json_object_set_new(all, "runs", json_array()) < 0)
		abort();
	for (size_t i = 0; i < n; i++)
		json_array_extend(json_object_get(all, "runs"), json_object_get(docs[i], "runs"));
	return all;
}

/* ---- runs ---------------------------------------------------------------------------------- */

json_t *bench_run_new(const char *bench, const char *id, const char *title)
{
	json_t *run = json_pack("{s:s, s:s, s:s, s:{s:f}}", "bench", bench, "id", id, "title",
		title, "facts", "load", load_now());

	if (!run)
		abort();
	return run;
}

void bench_run_fact(json_t *run, const char *name, json_t *value)
{
	if (json_object_set_new(json_object_get(run, "facts"), name, value) < 0)
		abort();
}

void bench_run_append(json_t *run, const char *key, json_t *value)
{
	if (!json_object_get(run, key))
		json_object_set_new(run, key, json_array());
	if (json_array_append_new(json_object_get(run, key), value) < 0)
		abort();
}

void bench_run_columns(json_t *run, const char *const *names, size_t n)
{
	json_t *columns = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(columns, json_string(names[i]));
	json_object_set_new(run, "table", json_pack("{s:o, s:[]}", "columns", columns, "rows"));
}

void bench_run_row(json_t *run, json_t *row)
{
	if (json_array_append_new(json_object_get(json_object_get(run, "table"), "rows"), row) < 0)
		abort();
}

void bench_run_note(json_t *run, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	bench_run_append(run, "notes", json_lossy(text, strlen(text)));
}
