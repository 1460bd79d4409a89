/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading from a request which command is to run: its words, its variables, its directory. Each of
 * them is given as text or, where it is not valid text, as bytes in base 64. A command gets byte
 * for byte what the request said.
 */
#include "pool/envd/envd_private.h"

#include <stdlib.h>
#include <string.h>

void envd_words_clear(struct envd_words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->items[i]);
	free(w->items);
	*w = (struct envd_words){0};
}

/* @word is taken. */
static void words_push(struct envd_words *w, char *word)
{
	w->items = reallocarray(w->items, w->n + 2, sizeof(*w->items));
	if (!w->items || !word)
		abort();
	w->items[w->n++] = word;
	w->items[w->n] = NULL;
}

/* The string, decoded where it is @coded; NULL: it is none, or has a NUL. Caller frees. */
static char *word_of(const json_t *value, bool coded)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);
	uint8_t *bytes;
	char *word;

	if (!text)
		return NULL;
	if (!coded)
		return strlen(text) == len ? strdup(text) : NULL;
	if (!envd_base64_decode(text, len, &bytes, &len))
		return NULL;
	word = memchr(bytes, 0, len) ? NULL : strndup((const char *)bytes, len);
	free(bytes);
	return word;
}

int envd_words_add(
	struct envd_call *c, const char *key, const json_t *list, bool coded, struct envd_words *w)
{
	const json_t *value;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) + w->n > LIMIT_EXEC_ARGS) {
		envd_fail(c, ENVD_INVALID, "%s: must be an array of at most %d strings", key,
			LIMIT_EXEC_ARGS - 1);
		return -EINVAL;
	}
	json_array_foreach(list, i, value)
	{
		char *word = word_of(value, coded);

		if (!word) {
			envd_fail(c, ENVD_INVALID, "%s: strings are needed, %s", key,
				coded ? "of base 64, without a NUL in what they mean"
				      : "without a NUL");
			return -EINVAL;
		}
		words_push(w, word);
	}
	return 0;
}

void envd_words_put(struct envd_words *w, const char *word)
{
	words_push(w, strdup(word));
}

int envd_env_bytes(struct envd_call *c, const char *key, const json_t *list, struct envd_words *w)
{
	if (envd_words_add(c, key, list, true, w) < 0)
		return -EINVAL;
	for (size_t i = 0; i < w->n; i++) {
		if (strchr(w->items[i], '=') && w->items[i][0] != '=')
			continue;
		envd_fail(c, ENVD_INVALID, "%s: each must mean NAME=VALUE", key);
		return -EINVAL;
	}
	return 0;
}

int envd_cwd(struct envd_call *c, const json_t *obj, const char *key, const char *key_bytes,
	const char *user, char ret[PROTO_PATH_MAX + 1])
{
	const json_t *coded = json_object_get(obj, key_bytes);
	cleanup_free char *bytes = NULL;
	const char *text;

	ret[0] = '\0';
	if (envd_string(c, obj, key, &text) < 0)
		return -EINVAL;
	if (coded && !json_is_null(coded)) {
		bytes = word_of(coded, true);
		if (!bytes || *text) {
			envd_fail(c, ENVD_INVALID,
				"%s: must be base 64, without a NUL, in place of %s", key_bytes,
				key);
			return -EINVAL;
		}
		text = bytes;
	}
	return *text ? envd_path(c, text, user, ret) : 0;
}
