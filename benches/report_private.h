/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_REPORT_PRIVATE_H
#define PARBAKE_BENCHES_REPORT_PRIVATE_H

/*
 * What report*.c share. Documents come from files: what does not fit is left out, never believed.
 */
#include "benches/report.h"
#include "benches/report_style.h"

/* One run's section. @number makes its anchor. */
void report_run(struct text *out, const json_t *run, size_t number);
/* A table of name and value for each of the object's scalars. */
void report_facts(struct text *out, const json_t *facts);

/* Comparisons of @doc with earlier documents. */
void report_comparisons(struct text *out, const json_t *doc, json_t *const *against,
	const char *const *names, size_t n);
/* The verdict and the comparison of a document of `bench ab`; of another: nothing. */
void report_in_turn(struct text *out, const json_t *doc);
/* @doc with the runs of one measurement put together. New reference. */
json_t *report_join(const json_t *doc);

#endif
