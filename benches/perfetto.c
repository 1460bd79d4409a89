/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates for ui.perfetto.dev and chrome://tracing: the Trace Event Format's JSON. Each mode is a
 * process. Each client is up to three threads of it: the create's parts under one slice that is the
 * whole create, what the pager did, and the faults. Slices of one thread may not overlap, which is
 * why clients have their own. Times are microseconds from the run's begin.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "benches/trace.h"

enum track { TRACK_CREATE = 1, TRACK_PAGER, TRACK_FAULTS, TRACKS = TRACK_FAULTS };
#define MODES_MAX 16

/* One mode's traces. */
struct mode {
	const char *name;
	unsigned lanes;
	bool traced; /* the pager's work is known */
};

static int track_of(unsigned lane, enum track track)
{
	return (int)lane * TRACKS + (int)track;
}

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

static void name_track(json_t *events, int pid, unsigned lane, enum track track, bool alone)
{
	static const char *const names[] = {NULL, "create", "pager", "faults"};
	char name[32];

	snprintf(name, sizeof(name), alone ? "%s" : "%s %u", names[track], lane + 1);
	json_array_append_new(events,
		json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M", "pid",
			pid, "tid", track_of(lane, track), "args", "name", name));
	json_array_append_new(events,
		json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", "thread_sort_index", "ph", "M",
			"pid", pid, "tid", track_of(lane, track), "args", "sort_index",
			track_of(lane, track)));
}

static void name_tracks(json_t *events, int pid, const struct mode *mode)
{
	json_array_append_new(events,
		json_pack("{s:s, s:s, s:i, s:{s:s+}}", "name", "process_name", "ph", "M", "pid",
			pid, "args", "name", mode->name, " creates"));
	for (unsigned lane = 0; lane < mode->lanes; lane++) {
		for (int track = TRACK_CREATE; track <= (mode->traced ? TRACKS : TRACK_CREATE);
			track++)
			name_track(events, pid, lane, (enum track)track, mode->lanes == 1);
	}
}

static void add_create(json_t *events, int pid, const struct bench_trace *t)
{
	char name[64];
	json_t *whole;

	snprintf(name, sizeof(name), "%s create %" PRIu64, t->name, t->sample + 1);
	whole = slice(
		pid, track_of(t->lane, TRACK_CREATE), "create", name, t->at, t->at + t->total);
	json_object_set_new(whole, "args",
		json_pack("{s:I, s:I}", "faults", (json_int_t)t->n_faults, "premapped_pages",
			(json_int_t)t->premapped));
	json_array_append_new(events, whole);
	for (size_t i = 0; i < t->n_parts; i++)
		json_array_append_new(events,
			slice(pid, track_of(t->lane, TRACK_CREATE), "part", t->parts[i].name,
				t->at + t->parts[i].begin, t->at + t->parts[i].end));
	for (size_t i = 0; i < t->n_pager; i++)
		json_array_append_new(events,
			slice(pid, track_of(t->lane, TRACK_PAGER), "pager", t->pager[i].name,
				t->at + t->pager[i].begin, t->at + t->pager[i].end));
	for (size_t i = 0; i < t->n_faults; i++) {
		const struct bench_fault *f = &t->faults[i];
		json_t *one = slice(pid, track_of(t->lane, TRACK_FAULTS), "fault",
			bench_fault_kinds[f->kind], t->at + f->begin, t->at + f->end);
		char address[32];

		snprintf(address, sizeof(address), "%#" PRIx64, f->offset);
		json_object_set_new(one, "args",
			json_pack("{s:s, s:s, s:I, s:b, s:b, s:b}", "address", address, "meaning",
				f->meaning, "pages", (json_int_t)f->pages, "write", f->write,
				"minor", f->minor, "decompressed", f->filled));
		json_array_append_new(events, one);
	}
}

/* The mode of @t, made where it is new; -1: there are too many. */
static int mode_of(struct mode *modes, int *n, const struct bench_trace *t)
{
	int i = 0;

	while (i < *n && strcmp(modes[i].name, t->name))
		i++;
	if (i == MODES_MAX)
		return -1;
	if (i == *n)
		modes[(*n)++] = (struct mode){.name = t->name};
	if (t->lane >= modes[i].lanes)
		modes[i].lanes = t->lane + 1;
	modes[i].traced |= t->n_pager > 0 || t->n_faults > 0;
	return i;
}

json_t *bench_traces_perfetto(const struct bench_trace *traces, size_t n)
{
	json_t *events = json_array();
	struct mode modes[MODES_MAX];
	int n_modes = 0;

	for (size_t i = 0; i < n; i++)
		mode_of(modes, &n_modes, &traces[i]);
	for (int i = 0; i < n_modes; i++)
		name_tracks(events, i + 1, &modes[i]);
	for (size_t i = 0; i < n; i++) {
		int mode = mode_of(modes, &n_modes, &traces[i]);

		if (mode >= 0)
			add_create(events, mode + 1, &traces[i]);
	}
	return json_pack("{s:o, s:s, s:{s:s}}", "traceEvents", events, "displayTimeUnit", "ms",
		"otherData", "program", "parbake " PARBAKE_VERSION);
}
