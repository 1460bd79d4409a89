/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_DOCUMENT_H
#define PARBAKE_BENCHES_DOCUMENT_H

#include <sys/types.h>

#include "common/err.h"
#include "common/json.h"

/*
 * What a measurement leaves: one JSON document, written by --json, read by `bench report` and
 * `bench compare`.
 *
 *     {"format":1, "parbake":VERSION, "created":TIME, "host":{…facts…}, "runs":[…]}
 *
 * A run is one command's work: {"bench":"create", "id":…, "title":…, "facts":{…}, "series":[…],
 * "traces":[…], "table":{"columns":[…],"rows":[[…],…]}, "notes":[…]}; all but the first three may
 * be missing. "id" says what was measured, so that the same measurement of another day is found
 * by it; "facts" what it was measured on.
 */
#define BENCH_FORMAT 1

/* With this host's facts and no runs. New reference. */
json_t *bench_document_new(void);
/* @run (taken) is appended. */
void bench_document_add(json_t *doc, json_t *run);
/* Read and check a document's shape: format, "host" and "runs". New reference. */
int bench_document_read(const char *path, json_t **ret, struct err *err);
/* Publish it at @path (by rename). */
int bench_document_write(const json_t *doc, const char *path, struct err *err);
/* One document with the runs of all, in order; host and time are the first's. New reference. */
json_t *bench_documents_join(json_t *const *docs, size_t n);

/* A run without series. New reference; facts has the load before it. */
json_t *bench_run_new(const char *bench, const char *id, const char *title);
/* A fact of the run; @value is taken. */
void bench_run_fact(json_t *run, const char *name, json_t *value);
/* {"columns":[names]}; rows are added as arrays of numbers and strings. */
void bench_run_columns(json_t *run, const char *const *names, size_t n);
void bench_run_row(json_t *run, json_t *row);
void bench_run_note(json_t *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Append to the array @key of @run, made where absent; @value is taken. */
void bench_run_append(json_t *run, const char *key, json_t *value);

/*
 * Publish @text at @path, which may be in any directory, with the mode bench_file_mode (0644
 * unless set).
 */
extern mode_t bench_file_mode;
int bench_publish(const char *path, const char *text, size_t len, struct err *err);

#endif
