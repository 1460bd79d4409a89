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
/* A number or string as a table's cell. */
void report_cell(struct text *out, const json_t *value);

#endif
