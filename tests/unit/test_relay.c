/* SPDX-License-Identifier: Apache-2.0 */
/* What a server in a sandbox may say, and what it may not: heads, and bodies in chunks. */
#include "pool/relay/relay_private.h"

#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "tests/unit/tap.h"
#include "pool/relay/limits.h"

/* Of a head, what is wrong with it; NULL: nothing, and *@ret borrows from what the next call frees. */
static const char *parse(const char *text, bool head, struct relay_head *ret)
{
	static char *copy;
	size_t len = strlen(text);

	free(copy);
	copy = str_dup(text);
	is_int((int64_t)relay_head_length(copy, len), (int64_t)len, "a whole head");
	return relay_head_parse(copy, len, head, ret);
}

static void heads(void)
{
	struct relay_head h;

	ok(!parse("HTTP/1.1 200 OK\r\nA: b \r\nContent-Length: 12\r\nX: y\r\nConnection: close, "
		  "x\r\n\r\n",
		   false, &h),
		"an answer's head is read");
	ok(h.status == 200 && h.framing == RELAY_LENGTH && h.length == 12,
		"an answer with a Content-Length has a body of that length");
	ok(h.n_headers == 1 && !strcmp(h.headers[0].name, "A") && !strcmp(h.headers[0].value, "b"),
		"what is for the connection is left out, also what is named behind it");
	ok(!parse("HTTP/1.0 404\n\n", false, &h) && h.framing == RELAY_UNTIL_EOF,
		"without a length it ends with the connection, and bare line ends will do");
	ok(!parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, &h) &&
			h.framing == RELAY_CHUNKED,
		"in chunks");
	ok(!parse("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", true, &h) &&
			h.framing == RELAY_NO_BODY && h.length == 7,
		"to a HEAD there is none, and its length is told");
	ok(!parse("HTTP/1.1 304 N\r\nContent-Length: 7\r\n\r\n", false, &h) &&
			h.framing == RELAY_NO_BODY,
		"an answer 304 has no body, whatever its head says");
	is_int((int64_t)relay_head_length("HTTP/1.1 200 OK\r\nA: b\r\n", 23), 0, "half a head");
}

static void refused(void)
{
	static const char *const heads[] = {"SSH-2.0\r\n\r\n", "\r\n\r\n", "HTTP/2 200\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"};
	cleanup_free char *many = str_dup("HTTP/1.1 200 OK\r\n");
	struct relay_head h;

	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
		ok(parse(heads[i], false, &h) != NULL, "refused: %.20s…, %zu", heads[i], i);
	for (int i = 0; i <= LIMIT_RELAY_HEADERS; i++) {
		char *more = str_printf("%sX-%d: y\r\n", many, i);

		free(many);
		many = more;
	}
	{
		cleanup_free char *whole = str_printf("%s\r\n", many);

		ok(parse(whole, false, &h) != NULL, "refused: too many headers");
	}
	{
		char nul[] = "HTTP/1.1 200 OK\r\nA: \0b\r\n\r\n";

		ok(relay_head_parse(nul, sizeof(nul) - 1, false, &h) != NULL, "refused: a NUL");
	}
}

/* What comes out of @text, given @step bytes at a time; NULL: no chunks. */
static char *unchunk(const char *text, size_t step, bool *ret_over)
{
	static char out[256];
	struct relay_chunks c = {0};
	size_t len = strlen(text), n_out = 0;

	for (size_t at = 0; at < len && c.state != CHUNKS_OVER;) {
		const char *data = NULL;
		size_t n = 0, give = len - at < step ? len - at : step;
		ssize_t used = relay_chunks_read(&c, text + at, give, &data, &n);

		if (used < 0)
			return NULL;
		memcpy(out + n_out, data ? data : "", n);
		n_out += n;
		at += (size_t)used;
	}
	out[n_out] = '\0';
	*ret_over = c.state == CHUNKS_OVER;
	return out;
}

static void chunks(void)
{
	static const char text[] = "5;a=\"b\"\r\nhello\r\nB\r\n world, all\r\n0\r\nT: x\r\n\r\n";
	bool over = false;

	for (size_t step = 1; step < sizeof(text); step += 3) {
		const char *got = unchunk(text, step, &over);

		is_str(got ? got : "none", "hello world, all", "chunks, %zu bytes at a time", step);
		ok(over, "to their end");
	}
	ok(unchunk("5\r\nhel", 4, &over) && !over, "half of them have no end");
	ok(!unchunk("x\r\n", 9, &over), "no size");
	ok(!unchunk("\r\n", 9, &over), "an empty one");
	ok(!unchunk("2\r\nabc\r\n", 9, &over), "more than it said");
	ok(!unchunk("1000000000000000\r\n", 99, &over), "more than there is");
}

int main(void)
{
	heads();
	refused();
	chunks();
	return tap_done();
}
