/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and text on the wire: base64, UTF-8, envelopes, results. */
#include <stdlib.h>

#include "common/base64.h"
#include "common/buffer.h"
#include "common/utf8.h"
#include "pool/envd/context_private.h"
#include "pool/envd/text.h"
#include "tests/unit/tap.h"

static void test_base64(void)
{
	static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
		{"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"}, {"\xff\xfe\xfb", "//77"}};
	static const char *const wrong[] = {
		"Z", "Zg=", "Zm9vY", "Zm 8=", "Zg==Zg==", "=", "====", "Zm9v="};
	uint8_t *bytes;
	size_t len;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		const char *plain = pairs[i][0];
		char *text = base64_encode(plain, strlen(plain));

		is_str(text, pairs[i][1], "base64 of %s", plain);
		if (ok(envd_base64_decode(text, strlen(text), &bytes, &len), "and back")) {
			ok(len == strlen(plain) && !memcmp(bytes, plain, len), "the same");
			free(bytes);
		}
		free(text);
	}
	ok(envd_base64_decode("_-8", 3, &bytes, &len) && len == 2, "URL alphabet, not padded");
	free(bytes);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		bool good = envd_base64_decode(wrong[i], strlen(wrong[i]), &bytes, &len);

		ok(!good, "'%s' is none", wrong[i]);
		if (good)
			free(bytes);
	}
}

static void is_lossy(const char *text, size_t len, const char *want)
{
	json_t *v = json_lossy(text, len);

	is_str(json_string_value(v), want, "shown as %s", want);
	json_decref(v);
}

static void test_utf8(void)
{
	static const struct {
		const char *text;
		size_t whole;
	} cases[] = {
		{"", 0},
		{"abc", 3},
		{"a\xc3\xa4", 3},
		{"a\xc3", 1},
		{"a\xe2\x82\xac", 4},
		{"a\xe2\x82", 1},
		{"a\xe2", 1},
		{"a\xf0\x9f\x98\x80", 5},
		{"a\xf0\x9f\x98", 1},
		{"a\xf0\x9f", 1},
		{"a\xf0", 1},
		/* what nothing can complete goes out */
		{"a\xff", 2},
		{"a\x80", 2},
		{"a\x80\x80\x80\x80", 5},
		{"a\xc0", 2},
		{"a\xed\xa0", 3},
		{"a\xe2\x28", 3},
		{"a\xf4\x90", 3},
		{"\xf5", 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int((int64_t)utf8_whole((const uint8_t *)cases[i].text, strlen(cases[i].text)),
			(int64_t)cases[i].whole, "case %zu: what may go out", i);
	is_lossy("a\xc3\xa4z", 4, "a\xc3\xa4z");
	is_lossy("a\xc3z", 3, "a\xef\xbf\xbdz");
	is_lossy("\xff\xfe", 2, "\xef\xbf\xbd\xef\xbf\xbd");
	is_lossy("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	is_lossy("\xf0\x9f\x98", 3, "\xef\xbf\xbd");
	is_lossy("x\xe2\x82", 3, "x\xef\xbf\xbd");
	is_lossy("", 0, "");
}

/* A text, cut at any two places, is the same when its whole parts are put together. */
static void test_held_back(void)
{
	static const char text[] =
		"a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xff\xf0\x9f\xc3\xa4z\xe2\x82";
	size_t n = sizeof(text) - 1, bad = 0;
	json_t *whole = json_lossy(text, n);

	for (size_t i = 0; i <= n; i++) {
		for (size_t j = i; j <= n; j++) {
			size_t cuts[4] = {0, i, j, n};
			struct buffer rest = {0}, all = {0};

			for (int k = 0; k < 3; k++) {
				size_t w;
				json_t *v;

				buffer_append(&rest, text + cuts[k], cuts[k + 1] - cuts[k]);
				if (!rest.len)
					continue;
				w = k == 2 ? rest.len
					   : utf8_whole(rest.bytes + rest.head, rest.len);
				v = json_lossy(rest.bytes + rest.head, w);
				buffer_append(&all, json_string_value(v), json_string_length(v));
				json_decref(v);
				buffer_consume(&rest, w);
			}
			bad += all.len != json_string_length(whole) ||
				memcmp(all.bytes + all.head, json_string_value(whole), all.len) !=
					0;
			buffer_free(&all);
			buffer_free(&rest);
		}
	}
	is_int((int64_t)bad, 0, "a text that is cut anywhere stays what it is");
	json_decref(whole);
}

static void test_envelope(void)
{
	uint8_t head[ENVD_ENVELOPE_HEAD];
	const char *body;
	size_t len;

	envd_envelope_head(head, 2, 0x01020304);
	ok(!memcmp(head, "\2\1\2\3\4", 5), "an envelope's head");
	ok(!envd_envelope_single("\0\0\0\0\2{}", 7, &body, &len) && len == 2 &&
			!memcmp(body, "{}", 2),
		"one message");
	ok(!envd_envelope_single("\0\0\0\0\0", 5, &body, &len) && len == 0, "an empty one");
	has_str(envd_envelope_single("\0\0\0", 3, &body, &len), "shorter", "too short");
	has_str(envd_envelope_single("\0\0\0\0\3{}", 7, &body, &len), "longer", "cut");
	has_str(envd_envelope_single("\0\0\0\0\1{}", 7, &body, &len), "more than one", "more");
	has_str(envd_envelope_single("\1\0\0\0\2{}", 7, &body, &len), "compressed", "compressed");
	has_str(envd_envelope_single("\2\0\0\0\2{}", 7, &body, &len), "flags", "an end");
	has_str(envd_envelope_single("\0\xff\xff\xff\xff{}", 7, &body, &len), "longer", "huge");
}

static void is_result(const char *data, bool main_result, const char *want)
{
	json_t *v = json_loads(data, 0, NULL), *r = envd_result(v, main_result);
	char *text = json_text(r);

	is_str(text, want, "the result of %s", data);
	free(text);
	json_decref(r);
	json_decref(v);
}

static void test_result(void)
{
	is_result("{\"text/plain\":\"42\"}", true,
		"{\"is_main_result\":true,\"text\":\"42\",\"type\":\"result\"}");
	is_result("{\"text/plain\":\"'it'\",\"text/html\":\"<b>\"}", false,
		"{\"html\":\"<b>\",\"is_main_result\":false,\"text\":\"it\",\"type\":\"result\"}");
	is_result("{\"image/png\":\"iVBO\",\"application/json\":\"{\\\"a\\\":1}\"}", true,
		"{\"is_main_result\":true,\"json\":{\"a\":1},\"png\":\"iVBO\",\"type\":"
		"\"result\"}");
	is_result("{\"application/json\":\"{broken\"}", true,
		"{\"is_main_result\":true,\"json\":\"{broken\",\"type\":\"result\"}");
	is_result("{\"x/y\":\"z\",\"n\":1}", true,
		"{\"extra\":{\"n\":1,\"x/y\":\"z\"},\"is_main_result\":true,\"type\":\"result\"}");
}

int main(void)
{
	test_base64();
	test_utf8();
	test_held_back();
	test_envelope();
	test_result();
	return tap_done();
}
