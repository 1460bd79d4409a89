/* SPDX-License-Identifier: Apache-2.0 */
/* Configs, working sets and deltas: there and back, and every field refused when it is wrong. */
#include "store/snapshot.h"

#include "common/str.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/tap.h"

static struct err err;

static struct snapshot_config full_config(void)
{
	struct snapshot_config c = fixture_config(7);

	digest_buffer("m", 1, c.memory_raw_digest);
	digest_buffer("d", 1, c.disk_raw_digest);
	digest_buffer("e", 1, c.delta_raw_digest);
	digest_buffer("f", 1, c.cpu_features);
	c.description = str_dup("Ein Käse, and \"quotes\"");
	c.ready = str_dup("python: import numpy");
	c.user = str_dup("app");
	c.recipe = str_dup("[template]\nname = base\n");
	c.env.items = calloc(2, sizeof(char *));
	c.env.items[0] = str_dup("PATH=/usr/bin");
	c.env.items[1] = str_dup("EMPTY=");
	c.env.n = 2;
	c.exec_timeout_ms = 30000;
	c.output_bytes = 1 * MIB;
	c.exec_memory_bytes = 128 * MIB;
	c.exec_pids = 77;
	c.extra = json_pack("{s:i}", "packages", 210);
	return c;
}

static void test_there_and_back(void)
{
	cleanup_snapshot_config struct snapshot_config c = full_config(), back = {0};
	cleanup_json json_t *obj = snapshot_config_to_json(&c), *again = NULL;
	cleanup_free char *text = json_text(obj), *text_again = NULL;

	if (!is_int(snapshot_config_from_json(obj, &back, &err), 0, "a config comes back"))
		printf("# %s\n", err.text);
	again = snapshot_config_to_json(&back);
	text_again = json_text(again);
	is_str(text_again, text, "… the same");
	is_int((int64_t)back.memory_bytes, LIMIT_MEMORY_MIN, "memory_bytes comes back");
	is_str(back.description, c.description, "description comes back");
	is_str(back.env.items[1], "EMPTY=", "env comes back");
	ok(!memcmp(back.boot_nonce, c.boot_nonce, sizeof(c.boot_nonce)), "boot_nonce comes back");
	ok(back.context, "context comes back");
	is_int(json_integer_value(json_object_get(back.extra, "packages")), 210,
		"extra comes back");
	ok(back.extra != c.extra, "extra is a copy");
}

static void test_each_field(void)
{
	static const struct {
		const char *key, *value; /* JSON; NULL: without the key */
	} cases[] = {
		{"format", "2"},
		{"format", NULL},
		{"format", "\"1\""},
		{"memory_bytes", "0"},
		{"memory_bytes", "-1"},
		{"memory_bytes", "67108865"},
		{"memory_bytes", "9223372036854775807"},
		{"memory_bytes", "1e9"},
		{"memory_bytes", NULL},
		{"vcpus", "0"},
		{"vcpus", "9"},
		{"page_bytes", "4097"},
		{"page_bytes", "0"},
		{"protocol", "4294967296"},
		{"disk_bytes", "1099511627777"},
		{"memory_data_bytes", "67112960"},
		{"exec_pids", "-5"},
		{"accel", "\"kvmkvmkv\""},
		{"accel", "7"},
		{"machine", "\"micro\\u001bvm\""},
		{"cpu", NULL},
		{"kernel_digest", "\"\""},
		{"disk_raw_digest", "\"\""},
		{"memory_raw_digest", "\"sha256:../../../../etc/passwd\""},
		{"delta_raw_digest", "\"sha256:00\""},
		{"recipe_digest", NULL},
		{"boot_nonce", "\"00\""},
		{"boot_nonce", "\"0000000000000000000000000000000g\""},
		{"env", "{}"},
		{"env", "[1]"},
		{"env", "[\"novalue\"]"},
		{"env", "[\"=x\"]"},
		{"env", NULL},
		{"description", "[]"},
		{"description", "\"\\u001b[2J\""},
		{"recipe", "\"[template]\\n\\u009b2J\""},
		{"ready", "\"true\\r\""},
		{"exec_timeout_ms", "31536000001"},
		{"ready", "null"},
		{"user", "\"../etc\""},
		{"user", "\"9\""},
		{"user", "\"\""},
		{"context", "1"},
		{"extra", "[]"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_snapshot_config struct snapshot_config c = full_config(), back = {0};
		cleanup_json json_t *obj = snapshot_config_to_json(&c);
		char quoted[64];

		if (cases[i].value)
			json_object_set_new(obj, cases[i].key,
				json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
		else
			json_object_del(obj, cases[i].key);
		is_int(snapshot_config_from_json(obj, &back, &err), -EINVAL, "%s = %s is refused",
			cases[i].key, cases[i].value ? cases[i].value : "(absent)");
		snprintf(quoted, sizeof(quoted), strcmp(cases[i].key, "format") ? "\"%s\"" : "%s",
			cases[i].key);
		has_str(err.text, quoted, "… and named");
	}
	{
		cleanup_snapshot_config struct snapshot_config back = {0};
		cleanup_json json_t *array = json_array(), *obj = json_pack("{s:i}", "format", 9);

		is_int(snapshot_config_from_json(array, &back, &err), -EINVAL,
			"an array is no config");
		snapshot_config_from_json(obj, &back, &err);
		has_str(err.text, "bake the template again", "an unknown format says the way out");
	}
}

static int read_wset(const char *text, uint64_t memory, struct snapshot_ranges *ret)
{
	cleanup_json json_t *obj = json_loads(text, 0, NULL);

	return snapshot_ranges_from_json(obj, memory, ret, &err);
}

static void test_working_set(void)
{
	static const char *const wrong[] = {
		"{}",
		"{\"version\":2,\"ranges\":[]}",
		"{\"version\":1}",
		"{\"version\":1,\"ranges\":{}}",
		"{\"version\":1,\"ranges\":[1]}",
		"{\"version\":1,\"ranges\":[[0]]}",
		"{\"version\":1,\"ranges\":[[0,4096,1]]}",
		"{\"version\":1,\"ranges\":[[0,0]]}",
		"{\"version\":1,\"ranges\":[[1,4096]]}",
		"{\"version\":1,\"ranges\":[[0,100]]}",
		"{\"version\":1,\"ranges\":[[-4096,4096]]}",
		"{\"version\":1,\"ranges\":[[65536,4096]]}",
		"{\"version\":1,\"ranges\":[[4096,65536]]}",
		"{\"version\":1,\"ranges\":[[4096,9223372036854771712]]}",
		"{\"version\":1,\"ranges\":[[0,65536],[0,4096]]}",
		"{\"version\":1,\"ranges\":[[0,4096.0]]}",
	};
	struct snapshot_range ranges[] = {{8192, 4096}, {0, 8192}, {61440, 4096}};
	struct snapshot_ranges w = {ranges, 3}, back = {0};
	cleanup_json json_t *obj = snapshot_ranges_to_json(&w);
	cleanup_free char *text = json_text(obj);

	is_str(text, "{\"ranges\":[[8192,4096],[0,8192],[61440,4096]],\"version\":1}",
		"a working set as JSON, in its order");
	is_int(snapshot_ranges_from_json(obj, 65536, &back, &err), 0,
		"a working set comes back from JSON");
	ok(back.n == 3 && !memcmp(back.ranges, ranges, sizeof(ranges)), "… the same");
	snapshot_ranges_clear(&back);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		is_int(read_wset(wrong[i], 65536, &back), -EINVAL, "%s is refused", wrong[i]);
	ok(back.ranges == NULL, "a working set that is refused returns nothing");
	is_int(read_wset("{\"version\":1,\"ranges\":[]}", 65536, &back), 0,
		"an empty one is right");
	snapshot_ranges_clear(&back);
}

static void test_delta(void)
{
	cleanup_snapshot_config struct snapshot_config c = full_config(), back = {0};
	struct snapshot_range ranges[] = {{0, 512}, {4096, 1024}};
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges got = {0};
	cleanup_json json_t *obj = NULL;

	is_int(snapshot_delta_get(&c, &got, &err), 0, "no delta");
	is_int((int64_t)got.n, 0, "… no ranges");
	snapshot_delta_set(&c, ranges, 2);
	obj = snapshot_config_to_json(&c);
	is_int(snapshot_config_from_json(obj, &back, &err), 0, "a config with a delta");
	is_int(snapshot_delta_get(&back, &got, &err), 0, "a config has its delta");
	ok(got.n == 2 && !memcmp(got.ranges, ranges, sizeof(ranges)), "… the same");
	snapshot_ranges_clear(&got);
	ranges[1].offset = 0;
	snapshot_delta_set(&back, ranges, 2);
	is_int(snapshot_delta_get(&back, &got, &err), -EINVAL, "overlapping ranges are refused");
	ranges[1].offset = 1 * MIB;
	snapshot_delta_set(&back, ranges, 2);
	is_int(snapshot_delta_get(&back, &got, &err), -EINVAL, "… and those past the disk");
}

int main(void)
{
	test_there_and_back();
	test_each_field();
	test_working_set();
	test_delta();
	return tap_done();
}
