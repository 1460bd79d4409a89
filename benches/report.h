/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_REPORT_H
#define PARBAKE_BENCHES_REPORT_H

#include <stddef.h>

#include "benches/text.h"
#include "common/err.h"
#include "common/json.h"

/*
 * A document as one page: HTML with its pictures inside, no script, no font, nothing fetched;
 * light or dark as the reader's system is. @against: earlier documents that it is compared with
 * (may be none).
 */
void report_page(struct text *out, const json_t *doc, json_t *const *against,
	const char *const *names, size_t n);
/* The same, the earlier documents read from their files, published at @path. */
int report_write(
	const char *path, const json_t *doc, const char *const *against, size_t n, struct err *err);

#endif
