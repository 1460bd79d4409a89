/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_REPORT_STYLE_H
#define PARBAKE_BENCHES_REPORT_STYLE_H

#include "benches/text.h"

/* What all pages have in common: no script, no font, nothing fetched; light or dark as the reader's system is. */

/* A page's begin, up to <body>, and its end. */
void report_begin(struct text *out, const char *title);
void report_end(struct text *out);
/* A box that scrolls where what is in it is wider than the page, for keys too; the caller writes its </div>. */
void report_scroller(struct text *out, const char *label);

#endif
