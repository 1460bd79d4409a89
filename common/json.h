/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_JSON_H
#define PARBAKE_COMMON_JSON_H

/*
 * JSON is jansson's json_t, the project's one tree type; this header is the one
 * place that includes it and adds what parbake needs around it: bounded
 * parsing, errors that name the field, stable output.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"

DEFINE_CLEANUP(json_t *, json_decref)
#define cleanup_json cleanup_with(json_decref_p_)

/*
 * Parse @len bytes (at most LIMIT_JSON_BYTES; duplicate keys refused). @what
 * names the document in errors. Caller json_decref()s *@ret.
 */
int json_parse(const char *what, const void *text, size_t len, json_t **ret, struct err *err);

/*
 * The same where strings hold what a program has printed: NUL, too. So measure them by
 * json_string_length().
 */
int json_parse_output(
	const char *what, const void *text, size_t len, json_t **ret, struct err *err);

/* json_parse() of a file. -ENOENT where there is none. */
int json_read_file(int dirfd, const char *path, json_t **ret, struct err *err);

/*
 * Fields of an object by name: -ENOENT where absent, -EINVAL where of another
 * type or out of [@min, @max]; both with an error that names @key. The string
 * is borrowed from @obj.
 */
int json_get_string(const json_t *obj, const char *key, const char **ret, struct err *err);
int json_get_u64(const json_t *obj, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
	struct err *err);

/*
 * Text from anywhere (a guest, a file name, a line cut in the middle of a character) as a string:
 * what is not UTF-8 becomes U+FFFD, in linear time. New reference; aborts without memory.
 */
json_t *json_lossy(const void *text, size_t len);
/* Compact text with sorted keys (same tree, same bytes). Caller frees. Aborts without memory. */
char *json_text(const json_t *value);
/* One line to standard output: an event or a result of --json. */
void json_print_line(const json_t *value);

#endif
