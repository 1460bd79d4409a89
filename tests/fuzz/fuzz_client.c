/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pool answers in parts, to the commands that read it: lines of JSON (the first byte even) or the
 * Connect protocol's frames (odd), in pieces as the network has them. However it is cut, the same parts must
 * come of it, and base 64 must decode to what encodes to it again.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/client_stream.h"
#include "common/base64.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	size_t parts;
	uint64_t sum; /* of all their text */
};

static void try_base64(const char *text)
{
	size_t len = strlen(text);
	uint8_t *bytes = malloc(len + 2);
	ssize_t n = base64_decode(text, len, bytes);

	if (n >= 0) {
		char *again = base64_encode(bytes, (size_t)n);
		uint8_t *twice = malloc(strlen(again) + 2);

		/* unused bits and padding may differ in the text, never in the bytes */
		if (base64_decode(again, strlen(again), twice) != n ||
			memcmp(bytes, twice, (size_t)n) != 0)
			abort();
		free(again);
		free(twice);
	}
	free(bytes);
}

static int part(void *user, const json_t *obj, unsigned flags, struct err *err)
{
	struct seen *seen = user;
	char *text = json_text(obj);

	seen->parts++;
	for (const char *at = text; *at; at++)
		seen->sum = seen->sum * 31 + (uint8_t)*at;
	seen->sum += flags;
	free(text);
	try_base64(client_string(obj, "data"));
	client_errno(obj);
	return seen->parts > 1000 ? err_set(err, E2BIG, "enough") : 0;
}

static int read_all(bool framed, const uint8_t *data, size_t size, size_t step, struct seen *seen)
{
	struct client_parts p = {.part = part, .user = seen, .framed = framed};
	int r = 0;

	for (size_t at = 0; at < size && r == 0; at += step)
		r = client_parts_feed(
			&p, (const char *)data + at, size - at < step ? size - at : step);
	if (r == 0)
		r = client_parts_end(&p);
	if ((r < 0) != (p.err.text[0] != '\0'))
		abort(); /* an error has a text, success none */
	client_parts_clear(&p);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole = {0}, cut = {0};
	int r, again;

	if (size == 0)
		return 0;
	r = read_all(data[0] & 1, data + 1, size - 1, size, &whole);
	again = read_all(data[0] & 1, data + 1, size - 1, 1 + (data[0] >> 1) % 7, &cut);
	if (r != again || whole.parts != cut.parts || whole.sum != cut.sum)
		abort();
	return 0;
}
