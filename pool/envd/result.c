/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A result or display of code, in the shape that the ecosystem's SDKs read: a field for each kind
 * of content that they know, and the rest under "extra". The interpreter gives it as {mime: text,
 * …}.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/envd/context_private.h"

static const struct {
	const char *mime, *field;
	bool object; /* JSON text that the field holds as a value */
} fields[] = {
	{"text/plain", "text", false},
	{"text/html", "html", false},
	{"text/markdown", "markdown", false},
	{"image/svg+xml", "svg", false},
	{"image/png", "png", false},
	{"image/jpeg", "jpeg", false},
	{"application/pdf", "pdf", false},
	{"text/latex", "latex", false},
	{"application/json", "json", true},
	{"application/javascript", "javascript", false},
	{"e2b/data", "data", true},
	{"e2b/chart", "chart", true},
};

/* {mime: text, …} as the fields of a result. */
json_t *envd_result(const json_t *data, bool main_result)
{
	json_t *r = json_pack("{s:s,s:b}", "type", "result", "is_main_result", main_result), *value;
	json_t *extra = json_object();
	const char *mime;

	if (!r || !extra)
		abort();
	json_object_foreach((json_t *)data, mime, value)
	{
		const char *text = json_string_value(value);
		size_t n = json_string_length(value), i = 0;

		while (i < sizeof(fields) / sizeof(fields[0]) && strcmp(fields[i].mime, mime) != 0)
			i++;
		if (!text || i == sizeof(fields) / sizeof(fields[0])) {
			json_object_set(extra, mime, value);
		} else if (fields[i].object) {
			json_t *parsed =
				json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

			json_object_set_new(
				r, fields[i].field, parsed ? parsed : json_incref(value));
		} else if (!i && n >= 2 && text[0] == text[n - 1] &&
			(*text == '\'' || *text == '"')) {
			/* the representation of a string is shown without its quotes */
			json_object_set_new(r, "text", json_stringn(text + 1, n - 2));
		} else {
			json_object_set(r, fields[i].field, value);
		}
	}
	if (json_object_size(extra))
		json_object_set(r, "extra", extra);
	json_decref(extra);
	return r;
}
