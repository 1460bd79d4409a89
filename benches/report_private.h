/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_REPORT_PRIVATE_H
#define PARBAKE_BENCHES_REPORT_PRIVATE_H

/*
 * What report*.c share. Documents come from files: what does not fit is left out, never believed.
 */
#include "benches/report.h"

/* One run's section. @number makes its anchor. */
void report_run(struct text *out, const json_t *run, size_t number);
/* A table of name and value for each of the object's scalars. */
void report_facts(struct text *out, const json_t *facts);

/* A page's begin, up to <body>, and its end. */
void report_begin(struct text *out, const char *title);
void report_end(struct text *out);
/* A box that scrolls where what is in it is wider than the page, for keys too; the caller writes its </div>. */
void report_scroller(struct text *out, const char *label);
/* Comparisons of @doc with earlier documents. */
void report_comparisons(struct text *out, const json_t *doc, json_t *const *against,
	const char *const *names, size_t n);
/* The verdict and the comparison of a document of `bench ab`; of another: nothing. */
void report_in_turn(struct text *out, const json_t *doc);
/* @doc with the runs of one measurement put together. New reference. */
json_t *report_join(const json_t *doc);

#endif
