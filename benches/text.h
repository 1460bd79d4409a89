/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_TEXT_H
#define PARBAKE_BENCHES_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/* A text that grows, for pages and tables. Zeroed is empty; aborts where memory is out. */
struct text {
	char *s; /* NUL-terminated once something was added; NULL before */
	size_t len, room;
};

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_v(struct text *t, const char *fmt, va_list args);
/*
 * @s as the content of an XML or HTML element or of a quoted attribute; what XML forbids becomes
 * U+FFFD.
 */
void text_escape(struct text *t, const char *s);
void text_clear(struct text *t);
#define cleanup_text __attribute__((__cleanup__(text_clear)))

#endif
