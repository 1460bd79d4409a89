/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_PROGRESS_H
#define PARBAKE_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Progress of long work, for whoever watches: on a terminal one line that is
 * redrawn (stage, bytes or counts, time); otherwise a plain line when a stage
 * begins and ends and every 10 s between; with JSON, one event a line on standard
 * output: {"event":"stage"|"progress"|"done"|"note", "stage":…, "bytes":…, …}.
 * All functions may be called from any thread; stages do not nest. @p may be NULL
 * (silent).
 */
enum progress_style { PROGRESS_AUTO, PROGRESS_PLAIN, PROGRESS_JSON, PROGRESS_SILENT };

struct progress;

struct progress *progress_new(enum progress_style style);
void progress_free(struct progress *p); /* ends an open stage as failed */

/* A stage begins; @total in @unit ("bytes", "entries", "frames", …), 0: not known. */
void progress_stage(struct progress *p, const char *stage, const char *unit, uint64_t total);
/* So far @now of the total (absolute). */
void progress_update(struct progress *p, uint64_t now);
/* A new total for the stage. */
void progress_total(struct progress *p, uint64_t total);
/* The stage is done; @fmt (or NULL) says what came of it ("cached", "1,204 files"). */
void progress_done(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line of its own between (a guest's output, a warning). */
void progress_note(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "1.5 GiB" in @ret. */
const char *progress_bytes(uint64_t bytes, char ret[static 16]);

#endif
