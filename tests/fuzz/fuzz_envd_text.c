/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes and text of the wire: an envelope, base64, text cut anywhere, a result's line. What must
 * hold: what is given out as text is UTF-8 and the same however it was cut; base64 is undone.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "common/buffer.h"
#include "common/utf8.h"
#include "pool/envd/context_private.h"
#include "pool/envd/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const uint8_t *data, size_t size)
{
	json_t *whole = json_lossy(data, size), *strict;
	struct buffer rest = {0}, all = {0};

	strict = json_stringn(json_string_value(whole), json_string_length(whole));
	if (!strict)
		abort();
	for (size_t i = 0; i < size; i++) {
		size_t n;
		json_t *part;

		buffer_append(&rest, data + i, 1);
		n = i + 1 < size ? utf8_whole(rest.bytes + rest.head, rest.len) : rest.len;
		if (rest.len - n > 3)
			abort();
		part = json_lossy(rest.bytes + rest.head, n);
		buffer_append(&all, json_string_value(part), json_string_length(part));
		json_decref(part);
		buffer_consume(&rest, n);
	}
	if (all.len != json_string_length(whole) ||
		(all.len && memcmp(all.bytes + all.head, json_string_value(whole), all.len) != 0))
		abort();
	json_decref(strict);
	json_decref(whole);
	buffer_free(&all);
	buffer_free(&rest);
}

static void check_base64(const uint8_t *data, size_t size)
{
	char *text = base64_encode(data, size);
	uint8_t *back;
	size_t len;

	if (!envd_base64_decode(text, strlen(text), &back, &len) || len != size ||
		(len && memcmp(back, data, len) != 0))
		abort();
	free(back);
	free(text);
	if (envd_base64_decode((const char *)data, size, &back, &len))
		free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *body;
	json_t *value, *result;
	size_t len;

	if (!envd_envelope_single((const char *)data, size, &body, &len) && len > size)
		abort();
	check_base64(data, size);
	check_text(data, size);
	value = json_loadb((const char *)data, size, 0, NULL);
	result = envd_result(value, true);
	json_decref(result);
	json_decref(value);
	return 0;
}
