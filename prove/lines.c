/* SPDX-License-Identifier: Apache-2.0 */
/* The difference of two small texts, line by line: a longest common subsequence, by the book's table. */
#include <string.h>

#include "prove/limits.h"
#include "prove/tree.h"

struct text {
	struct line {
		const char *at;
		size_t len;
	} lines[LIMIT_DIFF_LINES];
	size_t n;
};

static bool split(struct text *t, const char *text, size_t len)
{
	t->n = 0;
	for (const char *p = text, *end = text + len, *next; p < end; p = next + 1) {
		next = memchr(p, '\n', (size_t)(end - p));
		if (!next)
			next = end;
		if (t->n == LIMIT_DIFF_LINES)
			return false;
		t->lines[t->n++] = (struct line){p, (size_t)(next - p)};
	}
	return true;
}

static bool same(const struct line *a, const struct line *b)
{
	return a->len == b->len && !memcmp(a->at, b->at, a->len);
}

static void put(json_t *list, char sign, const struct line *l)
{
	cleanup_free char *text = NULL;

	if (json_array_size(list) >= TREE_LINES)
		return;
	text = malloc(l->len + 1);
	if (!text)
		abort();
	text[0] = sign;
	memcpy(text + 1, l->at, l->len);
	json_array_append_new(list, json_lossy(text, l->len + 1));
}

json_t *tree_lines(const char *a_text, size_t a_len, const char *b_text, size_t b_len)
{
	cleanup_free struct text *texts = calloc(2, sizeof(*texts));
	struct text *a = texts, *b = texts + 1;
	cleanup_free uint16_t *common = NULL; /* of a's lines from i on and b's from j on */
	json_t *list = json_array();
	size_t wide, i = 0, j = 0;

	if (!texts || !list)
		abort();
	if (!split(a, a_text, a_len) || !split(b, b_text, b_len)) {
		json_decref(list);
		return NULL;
	}
	wide = b->n + 1;
	common = calloc((a->n + 1) * wide, sizeof(*common));
	if (!common)
		abort();
	for (size_t x = a->n; x-- > 0;) {
		for (size_t y = b->n; y-- > 0;) {
			uint16_t down = common[(x + 1) * wide + y],
				 right = common[x * wide + y + 1];

			common[x * wide + y] = same(&a->lines[x], &b->lines[y])
				? (uint16_t)(common[(x + 1) * wide + y + 1] + 1)
				: down > right ? down
					       : right;
		}
	}
	while (i < a->n || j < b->n) {
		if (i < a->n && j < b->n && same(&a->lines[i], &b->lines[j])) {
			i++;
			j++;
		} else if (j == b->n ||
			(i < a->n && common[(i + 1) * wide + j] >= common[i * wide + j + 1])) {
			put(list, '-', &a->lines[i++]);
		} else {
			put(list, '+', &b->lines[j++]);
		}
	}
	return list;
}
