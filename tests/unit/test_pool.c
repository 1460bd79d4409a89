/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's pure parts: rates and targets, token buckets, ids, records. */
#include <stdlib.h>

#include "egress/proxy.h"
#include "pool/egress_private.h"
#include "pool/limits_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/stock_private.h"
#include "tests/unit/tap.h"
#include "pool/keeper/limits.h"

#define DIGEST "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define SECOND 1000000000LL

static void rates(void)
{
	double rate = 0;

	for (int i = 0; i < 600; i++)
		rate = pool_rate_next(rate, 0.1, 1);
	ok(rate > 9 && rate < 11, "ten a second for a minute are a rate of ten (%g)", rate);
	ok(pool_rate_next(rate, 100, 0) < 0.01, "a hundred seconds without are a rate of none");
	ok(pool_rate_next(3, -5, 0) <= 3, "a clock that seems to go back does no harm");
	is_int(pool_rate_target(0, 0.2, 8), 1, "a pool without arrivals keeps one machine");
	is_int(pool_rate_target(0, 0.2, 0), 0, "a pool that may keep none keeps none");
	is_int(pool_rate_target(10, 0.4, 100), 8,
		"four arrive while one is made: four and a margin");
	is_int(pool_rate_target(1000, 1, 16), 16, "never more than the bound");
}

static void tokens(void)
{
	double n = 3;
	int64_t at = 5 * SECOND;
	int taken = 0;

	while (pool_tokens_take(&n, &at, 5 * SECOND, 2, 3))
		taken++;
	is_int(taken, 3, "a full bucket of three gives three at once");
	ok(!pool_tokens_take(&n, &at, 5 * SECOND + SECOND / 4, 2, 3), "half a token is none");
	ok(pool_tokens_take(&n, &at, 5 * SECOND + SECOND / 2, 2, 3),
		"after half a second there is one");
	ok(!pool_tokens_take(&n, &at, 5 * SECOND + SECOND / 2, 2, 3),
		"a bucket that refilled once lets no second request pass");
	for (taken = 0; pool_tokens_take(&n, &at, 1000 * SECOND, 2, 3);)
		taken++;
	is_int(taken, 3, "however long it waits, it holds three");
}

static void ids(void)
{
	char a[POOL_ID_SIZE], b[POOL_ID_SIZE];
	unsigned seen[256] = {0}, kinds = 0;

	pool_id_make(a);
	pool_id_make(b);
	ok(pool_id_valid(a) && pool_id_valid(b), "ids are valid (%s)", a);
	ok(strcmp(a, b), "two ids differ");
	for (int i = 0; i < 500; i++) {
		pool_id_make(a);
		for (int k = 0; k < POOL_ID_LEN; k++)
			seen[(unsigned char)a[k]]++;
	}
	for (int i = 0; i < 256; i++)
		kinds += seen[i] > 0;
	is_int(kinds, 36, "ids are made of all the 36 characters, and of no others");
	ok(!pool_id_valid("short") && !pool_id_valid("../../../../etc/passw") &&
			!pool_id_valid("ABCDEFGHIJKLMNOPQRST") && !pool_id_valid(""),
		"what is no id is none");
}

static struct pool_record sample(json_t *metadata, json_t *env, json_t *template_env)
{
	return (struct pool_record){.id = "abcdefghijklmnopqrst",
		.name = "base",
		.tag = "v2",
		.digest = DIGEST,
		.key = "ci",
		.mode = "spare",
		.started_ms = 1790000000123,
		.metadata = metadata,
		.env = env,
		.auto_pause = true,
		.generation = 7,
		.vcpus = 2,
		.memory_bytes = 256 * MIB,
		.disk_bytes = GIB,
		.exec_timeout_ms = 5000,
		.output_bytes = MIB,
		.exec_memory_bytes = 64 * MIB,
		.exec_pids = 30,
		.context = true,
		.user = "app",
		.template_env = template_env};
}

static void records(void)
{
	cleanup_json json_t *metadata = json_pack("{s:s, s:s}", "user", "ö", "empty", "");
	cleanup_json json_t *env = json_pack("{s:s}", "A", "1");
	cleanup_json json_t *template_env = json_pack("[s, s]", "PATH=/bin", "LANG=C");
	struct pool_record n = sample(metadata, env, template_env), back = {0};
	cleanup_json json_t *record = pool_record_write(&n), *again = NULL;
	struct err err = {0};

	is_int(pool_record_read(record, &back, &err), 0, "a record is read (%s)", err.text);
	again = pool_record_write(&back);
	ok(json_equal(record, again), "a record that was read is written the same");
	is_str(back.id, n.id, "a record has its id");
	is_str(back.user, "app", "a record keeps its template's user");
	is_int(back.started_ms, n.started_ms, "a record has its beginning");
	is_int((int64_t)back.generation, 7, "a record has its generation");
	ok(back.auto_pause && back.context && !back.allow,
		"a record has its flags, and no network");
	is_int((int64_t)back.memory_bytes, 256 * MIB, "a record has its memory");
	ok(json_equal(back.metadata, metadata) && json_equal(back.env, env) &&
			json_equal(back.template_env, template_env),
		"a record has its metadata, its variables and its template's");
	is_int(pool_record_check(record, &err), 0, "a record is short enough for a message");
}

/* What may be reached comes back as it was; records of the version before have it as text. */
static void rules(void)
{
	static const struct {
		const char *text;
		bool private_ok;
	} t[] = {{"example.org", false}, {"*.example.org:8443", false}, {"[2001:db8::1]:80", true},
		{"10.0.0.0/8", true}, {"10.0.0.8", false}, {"private", false}};
	struct proxy_rule rule, back;
	struct err err;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		cleanup_json json_t *obj = NULL;

		proxy_rule_parse(t[i].text, &rule, NULL);
		rule.private_ok = t[i].private_ok;
		obj = pool_rule_write(&rule);
		is_int(pool_rule_read(obj, &back, &err), 0, "%s is read from a record", t[i].text);
		ok(!strcmp(rule.host, back.host) && rule.port == back.port &&
				rule.subdomains == back.subdomains &&
				rule.literal == back.literal && rule.network == back.network &&
				rule.prefix_bits == back.prefix_bits &&
				rule.private_ok == back.private_ok,
			"a record's way out is what it was");
	}
	for (int old = 0; old < 4; old++) {
		static const char *const texts[] = {
			"db.example.org:99", "db.example.org:99 private", "private", "a b"};
		cleanup_json json_t *text = json_string(texts[old]);

		is_int(pool_rule_read(text, &back, &err), old == 3 ? -EINVAL : 0,
			"version 1's \"%s\" (%s)", texts[old], old == 3 ? "refused" : "read");
		if (old < 3)
			ok(back.private_ok == (old == 1), "opens what it opened");
	}
}

/* A record with one field replaced (@value is taken), of the record or of its template. */
static int damaged(const char *in, const char *key, json_t *value, struct err *err)
{
	cleanup_json json_t *metadata = json_object(), *env = json_object(), *list = json_array();
	struct pool_record n = sample(metadata, env, list), back;
	cleanup_json json_t *record = pool_record_write(&n);

	json_object_set_new(in ? json_object_get(record, in) : record, key, value);
	return pool_record_read(record, &back, err);
}

static void damage(void)
{
	cleanup_json json_t *long_value = json_object(), *record = NULL;
	cleanup_free char *text = calloc(1, LIMIT_KEEPER_RECORD + 1);
	struct pool_record n;
	struct err err = {0};

	is_int(damaged(NULL, "version", json_integer(99), &err), -EPROTONOSUPPORT,
		"a record of another version is told apart from a broken one");
	has_str(err.text, "version 99", "the error says which");
	is_int(damaged(NULL, "id", json_string("../../etc"), &err), -EINVAL, "a path is no id");
	is_int(damaged(NULL, "metadata", json_pack("{s:i}", "a", 1), &err), -EINVAL,
		"metadata that is no string is refused");
	has_str(err.text, "metadata", "the error names it");
	is_int(damaged("template", "digest", json_string("sha256:zz"), &err), -EINVAL,
		"a digest that is none is refused");
	is_int(damaged("template", "memory_bytes", json_integer(-1), &err), -EINVAL,
		"negative memory is refused");
	is_int(damaged("template", "env", json_pack("[i]", 3), &err), -EINVAL,
		"variables that are no strings are refused");
	memset(text, 'x', LIMIT_KEEPER_RECORD);
	json_object_set_new(long_value, "a", json_string(text));
	n = sample(long_value, long_value, NULL);
	record = pool_record_write(&n);
	is_int(pool_record_check(record, &err), -E2BIG, "a record may only be so long");
	has_str(err.text, "metadata", "the error says what is");
}

static void egress(void)
{
	cleanup_json json_t *env = json_pack("{s:s, s:s}", "A", "1", "no_proxy", "mine");
	struct pool_record n = {.env = env};
	cleanup_json json_t *with = pool_egress_env(&n);

	is_str(json_string_value(json_object_get(with, "https_proxy")), "http://127.0.0.1:3128",
		"a sandbox with a way out is told of it");
	is_str(json_string_value(json_object_get(with, "A")), "1", "beside its own variables");
	is_str(json_string_value(json_object_get(with, "no_proxy")), "mine", "which go first");
}

int main(void)
{
	rates();
	tokens();
	ids();
	records();
	rules();
	damage();
	egress();
	return tap_done();
}
