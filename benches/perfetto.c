/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates for ui.perfetto.dev and chrome://tracing: the Trace Event Format's JSON. Each mode is a
 * process, with three threads: the create's parts under one slice that is the whole create, what
 * the pager did, and the faults. Times are microseconds from the run's begin.
 */
#include <inttypes.h>
#include <string.h>

#include "benches/trace.h"

enum track { TRACK_CREATE = 1, TRACK_PAGER, TRACK_FAULTS };

static double us(int64_t ns)
{
	return (double)ns / 1e3;
}

static json_t *slice(
	int pid, int track, const char *category, const char *name, int64_t begin, int64_t end)
{
	return json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i}", "name", name, "cat", category, "ph",
		"X", "ts", us(begin), "dur", us(end - begin), "pid", pid, "tid", track);
}

static void name_tracks(json_t *events, int pid, const char *mode)
{
	static const char *const names[] = {NULL, "create", "pager", "faults"};

	json_array_append_new(events,
		json_pack("{s:s, s:s, s:i, s:{s:s+}}", "name", "process_name", "ph", "M", "pid",
			pid, "args", "name", mode, " creates"));
	for (int track = TRACK_CREATE; track <= TRACK_FAULTS; track++) {
		json_array_append_new(events,
			json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M",
				"pid", pid, "tid", track, "args", "name", names[track]));
		json_array_append_new(events,
			json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", "thread_sort_index",
				"ph", "M", "pid", pid, "tid", track, "args", "sort_index", track));
	}
}

static void add_create(json_t *events, int pid, const struct bench_trace *t)
{
	char name[64];
	json_t *whole;

	snprintf(name, sizeof(name), "%s create %" PRIu64, t->name, t->sample + 1);
	whole = slice(pid, TRACK_CREATE, "create", name, t->at, t->at + t->total);
	json_object_set_new(whole, "args",
		json_pack("{s:I, s:I}", "faults", (json_int_t)t->n_faults, "premapped_pages",
			(json_int_t)t->premapped));
	json_array_append_new(events, whole);
	for (size_t i = 0; i < t->n_parts; i++)
		json_array_append_new(events,
			slice(pid, TRACK_CREATE, "part", t->parts[i].name,
				t->at + t->parts[i].begin, t->at + t->parts[i].end));
	for (size_t i = 0; i < t->n_pager; i++)
		json_array_append_new(events,
			slice(pid, TRACK_PAGER, "pager", t->pager[i].name,
				t->at + t->pager[i].begin, t->at + t->pager[i].end));
	for (size_t i = 0; i < t->n_faults; i++) {
		const struct bench_fault *f = &t->faults[i];
		json_t *one = slice(pid, TRACK_FAULTS, "fault", bench_fault_kinds[f->kind],
			t->at + f->begin, t->at + f->end);
		char address[32];

		snprintf(address, sizeof(address), "%#" PRIx64, f->offset);
		json_object_set_new(one, "args",
			json_pack("{s:s, s:s, s:I, s:b, s:b, s:b}", "address", address, "meaning",
				f->meaning, "pages", (json_int_t)f->pages, "write", f->write,
				"minor", f->minor, "decompressed", f->filled));
		json_array_append_new(events, one);
	}
}

json_t *bench_traces_perfetto(const struct bench_trace *traces, size_t n)
{
	json_t *events = json_array();
	int pid = 0;

	for (size_t i = 0; i < n; i++) {
		/* traces of one mode stand together */
		if (i == 0 || strcmp(traces[i].name, traces[i - 1].name))
			name_tracks(events, ++pid, traces[i].name);
		add_create(events, pid, &traces[i]);
	}
	return json_pack("{s:o, s:s, s:{s:s}}", "traceEvents", events, "displayTimeUnit", "ms",
		"otherData", "program", "parbake " PARBAKE_VERSION);
}
