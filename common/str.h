/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_STR_H
#define PARBAKE_COMMON_STR_H

#include <stddef.h>

/* Text in memory of its own, and lists of it. Every function aborts where memory is out. Any thread. */

/* printf into fresh memory, the caller's. */
char *str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A copy of @s, the caller's. NULL stays NULL. */
char *str_dup(const char *s);

/* A list that owns its texts. All zero is an empty one. */
struct strings {
	char **items;
	size_t n;
};

/* Append a copy of @text. */
void strings_add(struct strings *s, const char *text);
/* By their bytes. */
void strings_sort(struct strings *s);
/* Free all texts; what is left is an empty list. */
void strings_clear(struct strings *s);

#endif
