/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scan finds is told by place: in memory the guest-physical address, on the disk the file.
 * The disk that has the file is put together only once there is something to tell.
 */
#include "bake/scan/scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bake/ext4/owner.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"

#define HITS_TOLD 32
#define COPY_BYTES (256 * KIB)
/* Guest memory from LOW_END on lies from HIGH on in the guest's addresses, with every monitor. */
#define LOW_END (3 * GIB)
#define HIGH (4 * GIB)

/* The certificates that a distribution gives to everybody. */
static const char known_certificates[] = "/usr/share/ca-certificates";

enum part { PART_MEMORY, PART_STATE, PART_DELTA, PART_DISK, PARTS };

struct hit {
	enum part part;
	size_t piece;
	uint64_t offset; /* in the part's file */
};

struct scan {
	const struct scan_spec *spec;
	enum part part; /* that is being searched */
	struct hit hits[HITS_TOLD];
	size_t n; /* all of them */
};

/* The first hit of a piece in a part is told: one leak is often in memory many times over. */
static int take_hit(void *user, size_t string, uint64_t offset)
{
	struct scan *s = user;
	size_t told = s->n < HITS_TOLD ? s->n : HITS_TOLD;

	for (size_t i = 0; i < told; i++)
		if (s->hits[i].part == s->part &&
			!strcmp(s->spec->lent->pieces[s->hits[i].piece].label,
				s->spec->lent->pieces[string].label))
			return 0;
	if (s->n < HITS_TOLD)
		s->hits[s->n] = (struct hit){s->part, string, offset};
	s->n++;
	return 0;
}

/* ---- places ------------------------------------------------------------------------------ */

/* Where byte @at of the delta lies on the disk. */
static uint64_t disk_offset(const struct snapshot_ranges *delta, uint64_t at)
{
	for (size_t i = 0; i < delta->n; i++) {
		if (at < delta->ranges[i].bytes)
			return delta->ranges[i].offset + at;
		at -= delta->ranges[i].bytes;
	}
	return 0;
}

static int copy_range(int from, uint64_t at, int to, uint64_t offset, uint64_t bytes)
{
	cleanup_free char *buf = malloc(COPY_BYTES);
	int r = 0;

	if (!buf)
		abort();
	for (uint64_t done = 0, n; !r && done < bytes; done += n) {
		n = bytes - done < COPY_BYTES ? bytes - done : COPY_BYTES;
		r = file_pread_full(from, buf, n, (off_t)(at + done));
		if (!r)
			r = file_pwrite_full(to, buf, n, (off_t)(offset + done));
	}
	return r;
}

/* The disk as the guest has left it, in a file without a name. Returns it, or a negative errno. */
static int whole_disk(const struct scan_spec *spec)
{
	cleanup_fd int fd = file_scratch(spec->scratch_dir, NULL);
	uint64_t at = 0;
	int r = fd < 0 ? fd : file_copy_sparse(spec->disk_fd, fd, spec->disk_bytes, NULL, NULL);

	for (size_t i = 0; !r && spec->delta && i < spec->delta->n; i++) {
		const struct snapshot_range *range = &spec->delta->ranges[i];

		r = copy_range(spec->delta_fd, at, fd, range->offset, range->bytes);
		at += range->bytes;
	}
	return r ? r : steal_fd(&fd);
}

/* "at 0x1000 of …"; @disk: whole_disk(), or -1. Caller frees. */
static char *place(const struct scan *s, const struct hit *hit, int disk)
{
	cleanup_free char *owner = NULL;
	uint64_t at = hit->offset;

	switch (hit->part) {
	case PART_MEMORY:
		return str_printf("in memory, at guest-physical address 0x%" PRIx64,
			at < LOW_END ? at : at - LOW_END + HIGH);
	case PART_STATE:
		return str_printf("in the device state, at offset 0x%" PRIx64, at);
	default:
		if (hit->part == PART_DELTA)
			at = disk_offset(s->spec->delta, at);
		if (disk < 0 || ext4_owner(disk, at, &owner, NULL))
			return str_printf("on the disk, at offset 0x%" PRIx64, at);
		return str_printf("on the disk, at offset 0x%" PRIx64 ": %s", at, owner);
	}
}

static int explain(const struct scan *s, struct err *err)
{
	size_t told = s->n < HITS_TOLD ? s->n : HITS_TOLD;
	bool memory = false, on_disk = false;
	cleanup_fd int disk = -1;

	for (size_t i = 0; i < told; i++) {
		memory |= s->hits[i].part < PART_DELTA;
		on_disk |= s->hits[i].part >= PART_DELTA;
	}
	if (on_disk)
		disk = whole_disk(s->spec);
	err_set(err, EPERM,
		"the snapshot would hold what was lent to its bake, so it was not published:");
	for (size_t i = 0; i < told; i++) {
		cleanup_free char *where = place(s, &s->hits[i], disk);

		err_append(err, "\n  %s, %s", s->spec->lent->pieces[s->hits[i].piece].label, where);
	}
	if (s->n > told)
		err_append(err, "\n  and %zu more", s->n - told);
	if (on_disk)
		err_append(err,
			"\nwhat a step writes to the disk stays on it, also when the file is "
			"removed: "
			"write to /run, or leave it out");
	if (memory)
		err_append(err,
			"\nmemory keeps what a process that goes on running was given (its "
			"environment, "
			"its arguments) and what lies in /run, /tmp or /dev/shm: end it, remove "
			"it, or "
			"start it without");
	return -EPERM;
}

/* ---- the search -------------------------------------------------------------------------- */

int scan_snapshot(const struct scan_spec *spec, json_t **ret, struct err *err)
{
	const struct {
		int fd;
		uint64_t bytes;
		const char *name;
	} parts[PARTS] = {
		[PART_MEMORY] = {spec->memory_fd, spec->memory_bytes, "the guest's memory"},
		[PART_STATE] = {spec->state_fd, spec->state_bytes, "the device state"},
		[PART_DELTA] = {spec->delta_fd, spec->delta_bytes, "what was written to the disk"},
		[PART_DISK] = {spec->disk_fd, spec->disk_bytes, "the root disk"},
	};
	cleanup_free struct search_string *strings = NULL;
	struct scan s = {.spec = spec};
	uint64_t looked[PARTS] = {0}, all = 0;
	struct search *search;
	char size[16];
	int r;

	*ret = NULL;
	if (!spec->lent->n)
		return 0;
	progress_stage(spec->progress, "scan", NULL, 0);
	lent_drop_known_below(spec->lent, known_certificates);
	r = lent_drop_known(spec->lent, spec->disk_fd, spec->disk_bytes, "the root disk", err);
	if (r)
		return r;
	search = lent_search(spec->lent, &strings);
	for (unsigned i = 0; !r && i < PARTS; i++) {
		s.part = (enum part)i;
		if (parts[i].fd >= 0 && parts[i].bytes)
			r = search_fd(search, parts[i].fd, parts[i].bytes, parts[i].name, take_hit,
				&s, &looked[i], err);
		all += looked[i];
	}
	search_free(search);
	if (!r && s.n)
		r = explain(&s, err);
	if (r)
		return r;
	progress_done(spec->progress, "%s searched for %zu pieces of what was lent: none is there",
		progress_bytes(all, size), spec->lent->n);
	*ret = json_pack("{s:I, s:I, s:I, s:I}", "pieces", (json_int_t)spec->lent->n,
		"memory_bytes", (json_int_t)looked[PART_MEMORY], "state_bytes",
		(json_int_t)looked[PART_STATE], "disk_bytes",
		(json_int_t)(looked[PART_DELTA] + looked[PART_DISK]));
	if (!*ret)
		abort();
	return 0;
}
