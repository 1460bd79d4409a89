/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text in memory of its own. No caller can go on without the few bytes that it asks for here, so
 * these functions abort where memory is out.
 */
#include "common/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *str_printf(const char *fmt, ...)
{
	va_list args;
	char *text;
	int r;

	va_start(args, fmt);
	r = vasprintf(&text, fmt, args);
	va_end(args);
	if (r < 0)
		abort();
	return text;
}

char *str_dup(const char *s)
{
	char *copy;

	if (!s)
		return NULL;
	copy = strdup(s);
	if (!copy)
		abort();
	return copy;
}

void strings_add(struct strings *s, const char *text)
{
	s->items = reallocarray(s->items, s->n + 1, sizeof(*s->items));
	if (!s->items)
		abort();
	s->items[s->n++] = str_dup(text);
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void strings_sort(struct strings *s)
{
	if (s->n)
		qsort(s->items, s->n, sizeof(*s->items), by_bytes);
}

void strings_clear(struct strings *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i]);
	free(s->items);
	*s = (struct strings){0};
}
