/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing text, and its escaping for pages: whatever a template is called, the page stays
 * well-formed.
 */
#include "benches/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

static void make_room(struct text *t, size_t more)
{
	if (t->room - t->len > more)
		return;
	t->room = (t->room ? t->room * 2 : 4096) + more;
	t->s = realloc(t->s, t->room);
	if (!t->s)
		abort();
}

void text_add_v(struct text *t, const char *fmt, va_list args)
{
	va_list again;
	int n;

	va_copy(again, args);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		abort(); /* a format of ours */
	make_room(t, (size_t)n);
	vsnprintf(t->s + t->len, (size_t)n + 1, fmt, args);
	t->len += (size_t)n;
}

void text_add(struct text *t, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	text_add_v(t, fmt, args);
	va_end(args);
}

/*
 * The length of the UTF-8 character at @s, 0 where it is none, or one that XML 1.0 (2.2) forbids.
 */
static size_t character(const unsigned char *s)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = s[0] < 0x80  ? 1
		: s[0] >> 5 == 6  ? 2
		: s[0] >> 4 == 14 ? 3
		: s[0] >> 3 == 30 ? 4
				  : 0;
	uint32_t c;

	if (len == 0)
		return 0;
	c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[len] || (c < ' ' && c != '\t' && c != '\n') || c > 0x10ffff ||
		(c >= 0xd800 && c < 0xe000) || c == 0xfffe || c == 0xffff || c == 0x7f)
		return 0;
	return len;
}

void text_escape(struct text *t, const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	while (*p) {
		size_t len = character(p);

		if (len == 0) {
			text_add(t, REPLACEMENT);
			p++;
			continue;
		}
		if (*p == '&')
			text_add(t, "&amp;");
		else if (*p == '<')
			text_add(t, "&lt;");
		else if (*p == '>')
			text_add(t, "&gt;");
		else if (*p == '"')
			text_add(t, "&quot;");
		else if (*p == '\'')
			text_add(t, "&#39;");
		else
			text_add(t, "%.*s", (int)len, (const char *)p);
		p += len;
	}
}

void text_clear(struct text *t)
{
	free(t->s);
	*t = (struct text){0};
}
