/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON. jansson does the work; this file adds strictness (bounded, no duplicate keys) and errors in
 * the project's words.
 */
#include "common/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "common/limits.h"
#include "common/utf8.h"

static int parse(
	const char *what, const void *text, size_t len, size_t flags, json_t **ret, struct err *err)
{
	json_error_t why;
	json_t *value;

	if (len > LIMIT_JSON_BYTES)
		return err_set(
			err, EFBIG, "%s: JSON longer than %lu bytes", what, LIMIT_JSON_BYTES);
	value = json_loadb(text, len, JSON_REJECT_DUPLICATES | flags, &why);
	if (!value)
		return err_set(err, EINVAL, "%s:%d: not JSON: %s", what, why.line, why.text);
	*ret = value;
	return 0;
}

int json_parse(const char *what, const void *text, size_t len, json_t **ret, struct err *err)
{
	return parse(what, text, len, 0, ret, err);
}

int json_parse_output(const char *what, const void *text, size_t len, json_t **ret, struct err *err)
{
	return parse(what, text, len, JSON_ALLOW_NUL, ret, err);
}

int json_read_file(int dirfd, const char *path, json_t **ret, struct err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = file_read_all(dirfd, path, LIMIT_JSON_BYTES, &text, &len, err);

	return r < 0 ? r : json_parse(path, text, len, ret, err);
}

int json_get_string(const json_t *obj, const char *key, const char **ret, struct err *err)
{
	json_t *value = json_object_get(obj, key);

	if (!value)
		return err_set(err, ENOENT, "\"%s\" is missing", key);
	if (!json_is_string(value))
		return err_set(err, EINVAL, "\"%s\" is not a string", key);
	*ret = json_string_value(value);
	return 0;
}

int json_get_u64(const json_t *obj, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
	struct err *err)
{
	json_t *value = json_object_get(obj, key);
	json_int_t n;

	if (!value)
		return err_set(err, ENOENT, "\"%s\" is missing", key);
	if (!json_is_integer(value))
		return err_set(err, EINVAL, "\"%s\" is not a whole number", key);
	n = json_integer_value(value);
	if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
		return err_set(err, EINVAL,
			"\"%s\" is %" JSON_INTEGER_FORMAT ", not within %" PRIu64 " to %" PRIu64,
			key, n, min, max);
	*ret = (uint64_t)n;
	return 0;
}

json_t *json_lossy(const void *text, size_t len)
{
	json_t *value = json_stringn(len ? text : "", len);
	cleanup_free uint8_t *clean = NULL;
	const uint8_t *bytes = text;
	size_t n = 0;
	bool whole;

	if (value)
		return value;
	clean = malloc(len * 3 + 1);
	if (!clean)
		abort();
	for (size_t i = 0, step; i < len; i += step) {
		step = utf8_take(bytes + i, len - i, &whole);
		memcpy(clean + n, whole ? bytes + i : (const uint8_t *)"\xef\xbf\xbd",
			whole ? step : 3);
		n += whole ? step : 3;
	}
	value = json_stringn((const char *)clean, n);
	if (!value)
		abort();
	return value;
}

char *json_text(const json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);

	if (!text)
		abort();
	return text;
}

void json_print_line(const json_t *value)
{
	cleanup_free char *text = json_text(value);

	/* one call: lines of several threads do not mix */
	printf("%s\n", text);
	fflush(stdout);
}
