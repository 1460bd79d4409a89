/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A create taken apart: traces there and back, names of guest pages, what a process has in
 * memory.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "common/smaps.h"
#include "benches/symbols.h"
#include "benches/trace.h"
#include "benches/turns.h"
#include "common/digest.h"
#include "common/file.h"
#include "common/str.h"
#include "restore/pager/pager_private.h"
#include "tests/unit/tap.h"

static const char map[] = "0000000000000000 D __per_cpu_start\n"
			  "0000000000015000 D irq_stack\n"
			  "ffffffff81000000 T _stext\n"
			  "ffffffff81000000 T _text\n"
			  "ffffffff81000040 t do_idle\n"
			  "ffffffff81800000 D runqueues\n"
			  "ffffffff81891000 D __init_begin\n"
			  "ffffffff8194f000 R __init_end\n"
			  "ffffffff81950000 b page_pool\t[module]\n"
			  "ffffffff81a16000 B _end\n";

static const char *name_of(const struct symbols *s, uint64_t offset)
{
	static char name[80];

	symbols_name(s, offset, name, sizeof(name));
	return name;
}

static void test_symbols(void)
{
	static const char *const bad[] = {"", "hello\n", "ffffffff81000000\n",
		"ffffffff81000000 T \n", "0000000000000000 D __per_cpu_start\n",
		"ffffffff81000000  T x\n"};
	cleanup_symbols struct symbols *s = NULL, *none = NULL;
	struct err err;

	is_int(symbols_parse(map, strlen(map), &s, &err), 0, "a System.map");
	is_str(name_of(s, 0x1001000), "kernel text: do_idle",
		"an address of the kernel's text has its name");
	is_str(name_of(s, 0x1900000), "freed init memory",
		"an address of the kernel's init has its name");
	is_str(name_of(s, 0x1950000), "kernel data: page_pool", "data, without the module");
	is_str(name_of(s, 0x1a16000), "user, page cache or slab", "behind the kernel");
	is_str(name_of(s, 0x10000), "user, page cache or slab", "in front of it");
	is_str(name_of(s, 0xf00000000), "user, page cache or slab", "far away");
	is_str(name_of(NULL, 0x1001000), "unknown", "an address has no name without a map");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		is_int(symbols_parse(bad[i], strlen(bad[i]), &none, &err), -EINVAL, "refused: %s",
			err.text);
}

/* A kernel, its map beside it, found by the kernel's digest. */
static void test_symbols_find(void)
{
	char dir[] = "/tmp/parbake-symbols.XXXXXX", digest[DIGEST_TEXT_SIZE];
	cleanup_symbols struct symbols *s = NULL, *other = NULL;
	cleanup_free char *kernel = NULL;
	struct err err;

	ok(mkdtemp(dir) != NULL, "a directory");
	kernel = str_printf("%s/vmlinux", dir);
	digest_buffer("kernel", 6, digest);
	is_int(file_publish(dir, "vmlinux", "kernel", 6, 0644, &err), 0, "a kernel");
	setenv("PARBAKE_KERNEL", kernel, 1);
	is_int(symbols_find(digest, &s, &err), -ENOENT, "a kernel without its map has no symbols");
	is_int(file_publish(dir, "System.map", map, strlen(map), 0644, &err), 0,
		"a kernel's map is written");
	is_int(symbols_find(digest, &s, &err), 0, "a kernel's map is found by the kernel's digest");
	digest_buffer("another", 7, digest);
	is_int(symbols_find(digest, &other, &err), -ENOENT, "another snapshot's map is not found");
	has_str(err.text, "another kernel", "the error says why a map is not found");
	file_remove_tree(AT_FDCWD, dir, NULL);
}

static struct pager_trace_entry entry(
	int64_t begin, int64_t end, uint64_t offset, uint32_t machine, enum pager_trace_kind kind)
{
	return (struct pager_trace_entry){.begin = begin,
		.end = end,
		.offset = offset,
		.pages = 3,
		.machine = machine,
		.kind = kind,
		.write = offset & 0x1000,
		.filled = true};
}

static void test_pager_trace(void)
{
	struct pager_trace_entry list[] = {entry(10, 20, 0, 1, PAGER_TRACE_ATTACH),
		entry(30, 45, 0x5000, 1, PAGER_TRACE_HOLE),
		entry(50, 55, 0x6000, 2, PAGER_TRACE_REMOVED)};
	struct pager_trace t = {.entries = list, .n = 3, .lost = 7}, bad = {0};
	cleanup_pager_trace struct pager_trace back = {0};
	cleanup_json json_t *obj = pager_trace_to_json(&t), *again = NULL;
	struct err err;

	is_int(pager_trace_from_json(obj, &back, &err), 0, "a pager's trace comes back");
	again = pager_trace_to_json(&back);
	ok(json_equal(obj, again), "a pager's trace comes back as it was");
	json_array_set_new(json_array_get(json_object_get(obj, "entries"), 1), 5,
		json_integer(PAGER_TRACE_KINDS));
	is_int(pager_trace_from_json(obj, &bad, &err), -EPROTO, "a kind that is none");
	json_array_set_new(
		json_array_get(json_object_get(obj, "entries"), 1), 5, json_string("hole"));
	is_int(pager_trace_from_json(obj, &bad, &err), -EPROTO, "a string");
	json_array_remove(json_array_get(json_object_get(obj, "entries"), 1), 5);
	is_int(pager_trace_from_json(obj, &bad, &err), -EPROTO, "a number too few");
	json_object_set_new(obj, "entries", json_integer(1));
	is_int(pager_trace_from_json(obj, &bad, &err), -EPROTO, "no list");
}

/*
 * A create from 1000 to 2000: attached at 1100, faults before, within and after, and one of
 * another machine.
 */
static void make_trace(struct bench_trace *t, const struct symbols *s)
{
	struct pager_trace_entry list[] = {entry(500, 600, 0x2000, 4, PAGER_TRACE_DATA),
		entry(1100, 1150, 0, 5, PAGER_TRACE_ATTACH),
		entry(1200, 1210, 0x1001000, 5, PAGER_TRACE_DATA),
		entry(1650, 1690, 0x9000000, 5, PAGER_TRACE_HOLE),
		entry(2500, 2600, 0x3000, 5, PAGER_TRACE_DATA)};
	const struct pager_trace pager = {.entries = list, .n = 5};
	struct bench_sample one = {.at = 5000, .total = 1000};

	one.parts[PART_MONITOR] = 600;
	one.parts[PART_HELLO] = 400;
	bench_trace_make(t, &one, 1000, &pager, s);
	snprintf(t->name, sizeof(t->name), "cold");
}

static void test_trace(void)
{
	cleanup_trace struct bench_trace t = {0}, back = {0}, plain = {0};
	cleanup_symbols struct symbols *s = NULL;
	cleanup_json json_t *obj = NULL, *again = NULL;
	cleanup_text struct text out = {0};
	struct bench_sample one = {.total = 5};
	struct err err;

	symbols_parse(map, strlen(map), &s, &err);
	make_trace(&t, s);
	is_int((int64_t)t.n_parts, 2, "parts that took time");
	is_int(t.parts[1].begin, 600, "follow each other");
	is_int((int64_t)t.n_faults, 2, "faults of this machine and this create alone");
	is_int((int64_t)t.n_pager, 1, "a create's trace has one attach");
	is_int((int64_t)t.premapped, 3, "an attach tells what it mapped");
	is_int((int64_t)bench_trace_part_faults(&t, 0), 1,
		"a create's trace has one fault in its first part");
	is_int((int64_t)bench_trace_part_faults(&t, 1), 1,
		"a create's trace has one fault in its second part");
	is_str(t.faults[0].meaning, "kernel text: do_idle", "a fault's page has a name");
	bench_trace_print(&out, &t, 100, 1);
	has_str(out.s, "monitor", "the waterfall names parts");
	has_str(out.s, "2 faults", "counts faults");
	has_str(out.s, "and 1 more", "a waterfall shows as many faults as were asked for");
	obj = bench_trace_to_json(&t);
	is_int(bench_trace_from_json(obj, &back, &err), 0, "a create's trace comes back from JSON");
	again = bench_trace_to_json(&back);
	ok(json_equal(obj, again), "a create's trace comes back as it was");
	bench_trace_clear(&back);
	json_object_set_new(
		json_array_get(json_object_get(obj, "faults"), 0), "kind", json_string("odd"));
	is_int(bench_trace_from_json(obj, &back, &err), -EINVAL, "a fault of no kind");
	json_object_set_new(obj, "parts", json_pack("[[s, i]]", "x", 1));
	is_int(bench_trace_from_json(obj, &back, &err), -EINVAL, "a span without an end");
	bench_trace_make(&plain, &one, 0, NULL, NULL);
	bench_trace_print(&out, &plain, 10, 10);
	has_str(out.s, "no faults", "an untraced one of 5 ns, on a narrow terminal");
}

static void test_perfetto(void)
{
	struct bench_trace t[3] = {0};
	cleanup_json json_t *obj = NULL;
	const json_t *events, *e;
	size_t i, slices = 0, processes = 0, whole = 0, wrong = 0;

	for (i = 0; i < 3; i++)
		make_trace(&t[i], NULL);
	snprintf(t[2].name, sizeof(t[2].name), "spare");
	obj = bench_traces_perfetto(t, 3);
	events = json_object_get(obj, "traceEvents");
	json_array_foreach(events, i, e)
	{
		const char *ph = json_string_value(json_object_get(e, "ph"));

		if (!ph || !json_is_integer(json_object_get(e, "pid")) ||
			!json_object_get(e, "name"))
			wrong++;
		else if (!strcmp(ph, "X")) {
			slices++;
			wrong += !json_is_number(json_object_get(e, "ts")) ||
				json_number_value(json_object_get(e, "dur")) < 0;
			whole += !strcmp(json_string_value(json_object_get(e, "cat")), "create");
		} else if (!strcmp(json_string_value(json_object_get(e, "name")), "process_name"))
			processes++;
	}
	is_int((int64_t)wrong, 0, "every event has what the format asks for");
	is_int((int64_t)processes, 2, "a process for each mode");
	is_int((int64_t)whole, 3, "a slice for each create");
	is_int((int64_t)slices, 3 * (1 + 2 + 1 + 2),
		"a trace has slices for a create's parts, attach and faults");
	for (i = 0; i < 3; i++)
		bench_trace_clear(&t[i]);
}

static void test_smaps(void)
{
	static const char text[] =
		"7f00-7f10 rw-p 00000000 00:01 5   /memfd:parbake-memory (deleted)\n"
		"Size:  64 kB\nRss:  40 kB\nPss:  22 kB\nShared_Clean: 30 kB\n"
		"Private_Clean: 2 kB\nPrivate_Dirty:  8 kB\nVmFlags: rd wr\n"
		"8000-9000 r-xp 00000000 08:01 6   /usr/bin/x\n"
		"Rss:  100 kB\nPss:  60 kB\nPrivate_Dirty:  5 kB\n";
	struct smaps s, own;
	struct err err;

	is_int(smaps_parse(text, &s, &err), 0, "smaps of another process are read");
	is_int((int64_t)s.rss, 140 * 1024, "RSS of all");
	is_int((int64_t)s.pss, 82 * 1024, "PSS of all");
	is_int((int64_t)s.private_bytes, 15 * 1024, "private of all");
	is_int((int64_t)s.guest_rss, 40 * 1024, "RSS of guest memory");
	is_int((int64_t)s.guest_pss, 22 * 1024, "PSS of guest memory");
	is_int((int64_t)s.guest_private, 10 * 1024, "private of guest memory");
	is_int(smaps_parse("Rss: 1 kB\n", &s, &err), -EINVAL, "no mapping in front");
	is_int(smaps_read(getpid(), &own, &err), 0, "our own");
	is_int(smaps_read_rough(getpid(), &s, &err), 0, "smaps of our own process are read");
	ok(s.private_bytes > 0 && s.private_bytes <= s.rss, "what is ours is part of it");
	ok(own.rss >= own.pss && own.pss >= own.private_bytes && own.private_bytes > 0,
		"RSS ≥ PSS ≥ private > 0");
}

/* Two modes in turn, of two clients each: no two slices of one track overlap, and each track has a name. */
static void test_perfetto_lanes(void)
{
	struct bench_trace t[4] = {0};
	cleanup_json json_t *obj = NULL;
	const json_t *events, *e;
	int64_t free_at[8][8] = {0};
	size_t i, overlaps = 0, names = 0, seen = 0;

	for (i = 0; i < 4; i++) {
		t[i] = (struct bench_trace){
			.lane = i % 2, .at = 1000 * (int64_t)(i / 2), .total = 900};
		snprintf(t[i].name, sizeof(t[i].name), i / 2 ? "spare" : "cold");
	}
	obj = bench_traces_perfetto(t, 4);
	events = json_object_get(obj, "traceEvents");
	json_array_foreach(events, i, e)
	{
		int pid = (int)json_integer_value(json_object_get(e, "pid"));
		int tid = (int)json_integer_value(json_object_get(e, "tid"));
		double at = json_number_value(json_object_get(e, "ts")) * 1000;

		names += !strcmp(json_string_value(json_object_get(e, "name")), "thread_name");
		if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0)
			continue;
		seen++;
		overlaps += at < (double)free_at[pid & 7][tid & 7];
		free_at[pid & 7][tid & 7] =
			(int64_t)(at + json_number_value(json_object_get(e, "dur")) * 1000);
	}
	is_int((int64_t)seen, 4, "a slice for each create");
	is_int((int64_t)overlaps, 0, "creates of several clients lie on tracks of their own");
	is_int((int64_t)names, 4, "each of which has a name");
}

static void test_turns(void)
{
	struct turns t = {.n = 10};
	uint64_t late = 0;

	ok(turns_more(&t, 9, 0) && !turns_more(&t, 10, 0),
		"there are as many turns as are asked for");
	is_int((int64_t)turns_due(&t, 2, 0, 0), 0, "nothing rare before the first turn");
	is_int((int64_t)turns_due(&t, 2, 5, 0), 1, "half of it in the middle");
	is_int((int64_t)turns_due(&t, 2, 10, 0), 2, "all of it after the last");
	is_int((int64_t)turns_due(&t, 100, 3, 0), 30, "more of it than turns is spread too");
	for (uint64_t done = 1, last = 0; done <= 10; done++) {
		uint64_t due = turns_due(&t, 3, done, 0);

		late += due < last || due > last + 1;
		last = due;
	}
	is_int((int64_t)late, 0, "one at a time, and none is taken back");
	t = (struct turns){.n = 1000, .begun = 500, .duration = 100};
	ok(turns_more(&t, 3, 599) && !turns_more(&t, 3, 600), "a duration ends it");
	is_int((int64_t)turns_due(&t, 4, 1, 575), 3, "what is rare is spread over the duration");
	is_int((int64_t)turns_mode(0, 0, 3), 0, "modes go there");
	is_int((int64_t)turns_mode(1, 0, 3), 2, "modes come in turn, there and back");
}

int main(void)
{
	test_symbols();
	test_symbols_find();
	test_pager_trace();
	test_trace();
	test_perfetto();
	test_perfetto_lanes();
	test_turns();
	test_smaps();
	return tap_done();
}
