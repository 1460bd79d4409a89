/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The config of a snapshot, to JSON and back. One table names the fields that are numbers, one
 * those that are text and one the digests, so that both directions know the same names and
 * bounds. A config may come from anywhere: its texts end up on command lines and terminals, so
 * they are printable (a recipe has line ends and tabs) and fit, and its numbers are within common/limits.h.
 */
#include "store/snapshot.h"

#include <stddef.h>
#include <string.h>

#include "common/limits.h"
#include "common/str.h"

#define FIELD(f) #f, offsetof(struct snapshot_config, f)
#define FIELD_SIZE(f) sizeof(((struct snapshot_config *)0)->f)

static const struct {
	const char *key;
	size_t offset, size; /* 4 or 8 bytes */
	uint64_t min, max;
} numbers[] = {
	{FIELD(memory_bytes), 8, LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX},
	{FIELD(vcpus), 4, 1, LIMIT_VCPUS},
	{FIELD(tsc_khz), 8, 0, UINT32_MAX},
	{FIELD(page_bytes), 4, 4096, GIB},
	{FIELD(protocol), 4, 0, UINT32_MAX},
	{FIELD(disk_bytes), 8, 0, LIMIT_DISK_MAX},
	{FIELD(exec_timeout_ms), 8, 0, LIMIT_TIMEOUT_MS},
	{FIELD(output_bytes), 8, 0, INT64_MAX},
	{FIELD(exec_memory_bytes), 8, 0, LIMIT_MEMORY_MAX},
	{FIELD(exec_pids), 8, 0, UINT32_MAX},
	{FIELD(memory_data_bytes), 8, 0, LIMIT_MEMORY_MAX},
};

static const struct {
	const char *key;
	size_t offset, size;
} words[] = {
	{FIELD(accel), FIELD_SIZE(accel)},
	{FIELD(monitor), FIELD_SIZE(monitor)},
	{FIELD(monitor_version), FIELD_SIZE(monitor_version)},
	{FIELD(machine), FIELD_SIZE(machine)},
	{FIELD(cpu), FIELD_SIZE(cpu)},
};

static const struct {
	const char *key;
	size_t offset;
	bool required; /* not "" */
} digests[] = {
	{FIELD(cpu_features), false},
	{FIELD(kernel_digest), true},
	{FIELD(agent_digest), false},
	{FIELD(disk_raw_digest), true},
	{FIELD(delta_raw_digest), false},
	{FIELD(memory_raw_digest), true},
	{FIELD(recipe_digest), false},
};

static const struct {
	const char *key;
	size_t offset;
} texts[] = {
	{FIELD(description)},
	{FIELD(ready)},
	{FIELD(user)},
	{FIELD(recipe)},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

void snapshot_config_clear(struct snapshot_config *c)
{
	for (size_t i = 0; i < COUNT(texts); i++)
		free(*(char **)((char *)c + texts[i].offset));
	for (size_t i = 0; i < c->env.n; i++)
		free(c->env.items[i]);
	free(c->env.items);
	json_decref(c->extra);
	*c = (struct snapshot_config){0};
}

static void set(json_t *obj, const char *key, json_t *value)
{
	/* a NULL value is one without memory, or text that is not UTF-8: our own bug */
	if (json_object_set_new(obj, key, value) < 0)
		abort();
}

static uint64_t number_get(const struct snapshot_config *c, size_t i)
{
	const char *at = (const char *)c + numbers[i].offset;
	uint32_t narrow;
	uint64_t wide;

	if (numbers[i].size == 4) {
		memcpy(&narrow, at, 4);
		return narrow;
	}
	memcpy(&wide, at, 8);
	return wide;
}

static void number_set(struct snapshot_config *c, size_t i, uint64_t value)
{
	char *at = (char *)c + numbers[i].offset;
	uint32_t narrow = (uint32_t)value;

	if (numbers[i].size == 4)
		memcpy(at, &narrow, 4);
	else
		memcpy(at, &value, 8);
}

json_t *snapshot_config_to_json(const struct snapshot_config *c)
{
	json_t *obj = json_object(), *env = json_array();
	char nonce[2 * sizeof(c->boot_nonce) + 1];

	set(obj, "format", json_integer(SNAPSHOT_FORMAT));
	for (size_t i = 0; i < COUNT(numbers); i++)
		set(obj, numbers[i].key, json_integer((json_int_t)number_get(c, i)));
	for (size_t i = 0; i < COUNT(words); i++)
		set(obj, words[i].key, json_string((const char *)c + words[i].offset));
	for (size_t i = 0; i < COUNT(digests); i++)
		set(obj, digests[i].key, json_string((const char *)c + digests[i].offset));
	for (size_t i = 0; i < COUNT(texts); i++) {
		const char *text = *(char *const *)((const char *)c + texts[i].offset);

		if (text)
			set(obj, texts[i].key, json_string(text));
	}
	for (size_t i = 0; i < sizeof(c->boot_nonce); i++)
		snprintf(nonce + 2 * i, 3, "%02x", c->boot_nonce[i]);
	set(obj, "boot_nonce", json_string(nonce));
	for (size_t i = 0; i < c->env.n; i++)
		if (json_array_append_new(env, json_string(c->env.items[i])) < 0)
			abort();
	set(obj, "env", env);
	set(obj, "context", json_boolean(c->context));
	if (c->extra)
		set(obj, "extra", json_deep_copy(c->extra));
	return obj;
}

/* ---- reading ---- */

static int bad(struct err *err, const char *key, const char *what)
{
	return err_set(err, EINVAL, "\"%s\" %s", key, what);
}

/* Absent is an error of the field, not of a file that is not there. */
static int field_error(int r)
{
	return r == -ENOENT ? -EINVAL : r;
}

static int read_numbers(const json_t *obj, struct snapshot_config *c, struct err *err)
{
	for (size_t i = 0; i < COUNT(numbers); i++) {
		uint64_t value;
		int r = json_get_u64(
			obj, numbers[i].key, numbers[i].min, numbers[i].max, &value, err);

		if (r < 0)
			return field_error(r);
		number_set(c, i, value);
	}
	if (c->memory_bytes % 4096)
		return bad(err, "memory_bytes", "is not a multiple of 4096");
	if (c->page_bytes & (c->page_bytes - 1))
		return bad(err, "page_bytes", "is not a power of two");
	if (c->memory_data_bytes > c->memory_bytes)
		return bad(err, "memory_data_bytes", "is more than \"memory_bytes\"");
	return 0;
}

/* No control characters but those of @allowed. (C1 as UTF-8, too: terminals obey them.) */
static bool printable(const char *text, const char *allowed)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];

		if ((c < ' ' && !strchr(allowed, c)) || c == 0x7f || (c == 0xc2 && next < 0xa0))
			return false;
	}
	return true;
}

bool snapshot_user_good(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	return n && n <= LIMIT_ACCOUNT && !name[n] && *name != '-' && (*name < '0' || *name > '9');
}

static int read_words(const json_t *obj, struct snapshot_config *c, struct err *err)
{
	const char *text;
	int r;

	for (size_t i = 0; i < COUNT(words); i++) {
		r = json_get_string(obj, words[i].key, &text, err);
		if (r < 0)
			return field_error(r);
		if (strlen(text) >= words[i].size)
			return bad(err, words[i].key, "is too long");
		if (!printable(text, ""))
			return bad(err, words[i].key, "has control characters");
		memcpy((char *)c + words[i].offset, text, strlen(text) + 1);
	}
	for (size_t i = 0; i < COUNT(digests); i++) {
		r = json_get_string(obj, digests[i].key, &text, err);
		if (r < 0)
			return field_error(r);
		if (!digest_valid(text) && (*text || digests[i].required))
			return bad(err, digests[i].key, "is not a digest");
		memcpy((char *)c + digests[i].offset, text, strlen(text) + 1);
	}
	for (size_t i = 0; i < COUNT(texts); i++) {
		if (!json_object_get(obj, texts[i].key))
			continue;
		r = json_get_string(obj, texts[i].key, &text, err);
		if (r < 0)
			return r;
		if (!printable(text, "\n\t"))
			return bad(err, texts[i].key, "has control characters");
		*(char **)((char *)c + texts[i].offset) = str_dup(text);
	}
	return c->user && !snapshot_user_good(c->user) ? bad(err, "user", "is no user's name") : 0;
}

static int read_nonce(const json_t *obj, struct snapshot_config *c, struct err *err)
{
	const char *text;
	int r = json_get_string(obj, "boot_nonce", &text, err);

	if (r < 0)
		return field_error(r);
	if (strlen(text) != 2 * sizeof(c->boot_nonce) ||
		strspn(text, "0123456789abcdef") != 2 * sizeof(c->boot_nonce))
		return bad(err, "boot_nonce", "is not 32 hexadecimal digits");
	for (size_t i = 0; i < sizeof(c->boot_nonce); i++) {
		unsigned byte;

		sscanf(text + 2 * i, "%2x", &byte);
		c->boot_nonce[i] = (uint8_t)byte;
	}
	return 0;
}

static int read_env(const json_t *obj, struct snapshot_config *c, struct err *err)
{
	json_t *env = json_object_get(obj, "env"), *item;
	size_t i;

	if (!json_is_array(env))
		return bad(err, "env", "is not an array");
	if (json_array_size(env) > LIMIT_CONFIG_ENV)
		return bad(err, "env", "has too many entries");
	c->env.items = calloc(json_array_size(env) + 1, sizeof(*c->env.items));
	if (!c->env.items)
		return err_sys(err, ENOMEM, "read a config");
	json_array_foreach(env, i, item)
	{
		const char *text = json_string_value(item);

		if (!text || !strchr(text, '=') || *text == '=')
			return bad(err, "env", "has an entry that is not NAME=value");
		c->env.items[c->env.n++] = str_dup(text);
	}
	return 0;
}

static int read_rest(const json_t *obj, struct snapshot_config *c, struct err *err)
{
	json_t *context = json_object_get(obj, "context"), *extra = json_object_get(obj, "extra");

	if (!json_is_boolean(context))
		return bad(err, "context", "is not true or false");
	c->context = json_is_true(context);
	if (!extra)
		return 0;
	if (!json_is_object(extra))
		return bad(err, "extra", "is not an object");
	c->extra = json_deep_copy(extra);
	return c->extra ? 0 : err_sys(err, ENOMEM, "read a config");
}

int snapshot_config_from_json(const json_t *obj, struct snapshot_config *ret, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config c = {0};
	uint64_t format;
	int r;

	if (!json_is_object(obj))
		return err_set(err, EINVAL, "the snapshot's config is not an object");
	r = field_error(json_get_u64(obj, "format", 0, INT64_MAX, &format, err));
	if (r == 0 && format != SNAPSHOT_FORMAT)
		return err_set(err, EINVAL,
			"the snapshot's config has format %llu, this parbake reads "
			"format %d: bake the template again, or use the parbake that made it",
			(unsigned long long)format, SNAPSHOT_FORMAT);
	if (r == 0)
		r = read_numbers(obj, &c, err);
	if (r == 0)
		r = read_words(obj, &c, err);
	if (r == 0)
		r = read_nonce(obj, &c, err);
	if (r == 0)
		r = read_env(obj, &c, err);
	if (r == 0)
		r = read_rest(obj, &c, err);
	if (r < 0) {
		err_prefix(err, "the snapshot's config");
		return r;
	}
	*ret = c;
	c = (struct snapshot_config){0};
	return 0;
}

/* ---- ranges ---- */

void snapshot_ranges_clear(struct snapshot_ranges *w)
{
	free(w->ranges);
	*w = (struct snapshot_ranges){0};
}

int snapshot_ranges_copy(
	const struct snapshot_ranges *w, struct snapshot_ranges *ret, struct err *err)
{
	struct snapshot_range *ranges = calloc(w->n + 1, sizeof(*ranges));

	if (!ranges)
		return err_sys(err, ENOMEM, "copy ranges");
	if (w->n)
		memcpy(ranges, w->ranges, w->n * sizeof(*ranges));
	*ret = (struct snapshot_ranges){ranges, w->n};
	return 0;
}

static json_t *ranges_to_json(const struct snapshot_range *ranges, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_array_append_new(array,
			    json_pack("[I, I]", (json_int_t)ranges[i].offset,
				    (json_int_t)ranges[i].bytes)) < 0)
			abort();
	return array;
}

/* One [offset, bytes], both multiples of @unit, within @limit. */
static int range_from_json(
	const json_t *pair, uint64_t unit, uint64_t limit, struct snapshot_range *ret)
{
	json_t *offset = json_array_get(pair, 0), *bytes = json_array_get(pair, 1);
	json_int_t o, b;

	if (json_array_size(pair) != 2 || !json_is_integer(offset) || !json_is_integer(bytes))
		return -EINVAL;
	o = json_integer_value(offset);
	b = json_integer_value(bytes);
	if (o < 0 || b <= 0 || (uint64_t)o > limit || (uint64_t)b > limit - (uint64_t)o)
		return -EINVAL;
	if ((uint64_t)o % unit || (uint64_t)b % unit)
		return -EINVAL;
	*ret = (struct snapshot_range){(uint64_t)o, (uint64_t)b};
	return 0;
}

/* All of them: together not more than @limit, @sorted: ascending and apart. */
static int ranges_from_json(const json_t *array, uint64_t unit, uint64_t limit, bool sorted,
	struct snapshot_ranges *ret, struct err *err)
{
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges w = {0};
	uint64_t total = 0, end = 0;
	json_t *item;
	size_t i;

	if (!json_is_array(array))
		return err_set(err, EINVAL, "its ranges are not an array");
	if (json_array_size(array) > LIMIT_RANGES)
		return err_set(err, EINVAL, "it has more than %d ranges", LIMIT_RANGES);
	w.ranges = calloc(json_array_size(array) + 1, sizeof(*w.ranges));
	if (!w.ranges)
		return err_sys(err, ENOMEM, "read ranges");
	json_array_foreach(array, i, item)
	{
		struct snapshot_range *range = &w.ranges[i];

		if (range_from_json(item, unit, limit, range) < 0)
			return err_set(err, EINVAL,
				"range %zu is not [offset, bytes] in multiples of %llu "
				"within %llu",
				i, (unsigned long long)unit, (unsigned long long)limit);
		if (sorted && range->offset < end)
			return err_set(
				err, EINVAL, "range %zu overlaps or precedes the one before", i);
		end = range->offset + range->bytes;
		total += range->bytes;
		if (total > limit)
			return err_set(err, EINVAL, "its ranges hold more than there is");
		w.n++;
	}
	*ret = w;
	w = (struct snapshot_ranges){0};
	return 0;
}

json_t *snapshot_ranges_to_json(const struct snapshot_ranges *w)
{
	json_t *obj =
		json_pack("{s:i, s:o}", "version", 1, "ranges", ranges_to_json(w->ranges, w->n));

	if (!obj)
		abort();
	return obj;
}

int snapshot_ranges_from_json(
	const json_t *obj, uint64_t memory_bytes, struct snapshot_ranges *ret, struct err *err)
{
	uint64_t version;
	int r = field_error(json_get_u64(obj, "version", 1, 1, &version, err));

	if (r == 0)
		r = ranges_from_json(
			json_object_get(obj, "ranges"), 4096, memory_bytes, false, ret, err);
	if (r < 0)
		err_prefix(err, "the working set");
	return r;
}

void snapshot_aliases_set(json_t *extra, char *const *names, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_string(names[i]));
	if (n)
		set(extra, "aliases", list);
	else {
		json_object_del(extra, "aliases");
		json_decref(list);
	}
}

bool snapshot_aliases_have(const json_t *config, const char *name)
{
	const json_t *list = json_object_get(json_object_get(config, "extra"), "aliases");

	for (size_t i = 0; i < json_array_size(list) && i < LIMIT_ALIASES; i++) {
		const char *one = json_string_value(json_array_get(list, i));

		if (one && !strcmp(one, name))
			return true;
	}
	return false;
}

int snapshot_delta_get(
	const struct snapshot_config *c, struct snapshot_ranges *ret, struct err *err)
{
	json_t *delta = json_object_get(c->extra, "delta");
	int r;

	if (!delta) {
		*ret = (struct snapshot_ranges){0};
		return 0;
	}
	r = ranges_from_json(delta, 512, c->disk_bytes, true, ret, err);
	if (r < 0)
		err_prefix(err, "the disk delta");
	return r;
}

void snapshot_delta_set(struct snapshot_config *c, const struct snapshot_range *ranges, size_t n)
{
	if (!c->extra)
		c->extra = json_object();
	set(c->extra, "delta", ranges_to_json(ranges, n));
}
