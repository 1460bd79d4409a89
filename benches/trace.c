/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One create taken apart: from samples and the pager's trace, to a waterfall and to JSON and
 * back.
 */
#include "benches/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "restore/pager/limits.h"

const char *const bench_fault_kinds[] = {
	[PAGER_TRACE_ATTACH] = "attach",
	[PAGER_TRACE_DATA] = "data",
	[PAGER_TRACE_HOLE] = "hole",
	[PAGER_TRACE_REMOVED] = "removed",
};
static_assert(sizeof(bench_fault_kinds) / sizeof(bench_fault_kinds[0]) == PAGER_TRACE_KINDS,
	"every kind has a name");
static_assert(BENCH_PARTS <= BENCH_SPANS_MAX, "every part has room");

void bench_trace_clear(struct bench_trace *t)
{
	free(t->faults);
	*t = (struct bench_trace){0};
}

static void add_span(
	struct bench_span *list, size_t *n, const char *name, int64_t begin, int64_t end)
{
	if (*n == BENCH_SPANS_MAX)
		return;
	list[*n] = (struct bench_span){.begin = begin, .end = end};
	snprintf(list[(*n)++].name, sizeof(list->name), "%s", name);
}

static void add_fault(struct bench_trace *t, const struct pager_trace_entry *e, int64_t begin,
	const struct symbols *symbols)
{
	struct bench_fault *f = &t->faults[t->n_faults++];

	*f = (struct bench_fault){
		.begin = e->begin - begin,
		.end = e->end - begin,
		.offset = e->offset,
		.pages = e->pages,
		.kind = e->kind,
		.minor = e->minor,
		.write = e->write,
		.filled = e->filled,
	};
	symbols_name(symbols, e->offset, f->meaning, sizeof(f->meaning));
}

void bench_trace_make(struct bench_trace *ret, const struct bench_sample *one, int64_t begin,
	const struct pager_trace *pager, const struct symbols *symbols)
{
	int64_t at = 0;
	uint32_t machine = 0;

	*ret = (struct bench_trace){.at = one->at, .total = one->total};
	for (int i = 0; i < BENCH_PARTS; i++) {
		if (one->parts[i] == 0)
			continue;
		add_span(ret->parts, &ret->n_parts, bench_part_names[i], at, at + one->parts[i]);
		at += one->parts[i];
	}
	if (!pager)
		return;
	ret->lost = pager->lost;
	ret->faults = calloc(pager->n ?: 1, sizeof(*ret->faults));
	if (!ret->faults)
		abort();
	for (size_t i = 0; i < pager->n; i++)
		machine = pager->entries[i].machine > machine ? pager->entries[i].machine : machine;
	for (size_t i = 0; i < pager->n; i++) {
		const struct pager_trace_entry *e = &pager->entries[i];

		if (e->machine != machine || e->begin - begin > one->total)
			continue;
		if (e->kind == PAGER_TRACE_ATTACH) {
			add_span(ret->pager, &ret->n_pager, "attach, premap", e->begin - begin,
				e->end - begin);
			ret->premapped += e->pages;
		} else if (e->end >= begin) {
			add_fault(ret, e, begin, symbols);
		}
	}
}

size_t bench_trace_part_faults(const struct bench_trace *t, size_t i)
{
	size_t n = 0;

	for (size_t f = 0; f < t->n_faults; f++) {
		int64_t at = t->faults[f].begin;

		n += (at >= t->parts[i].begin || i == 0) && at < t->parts[i].end;
	}
	return n;
}

/* ---- on a terminal ------------------------------------------------------------------------- */

#define NAME_COLUMNS 16
#define NUMBER_COLUMNS 27 /* begin, took, faults */

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

/* One bar: a part of a cell is a whole one, so that nothing that happened is invisible. */
static void print_bar(struct text *out, int64_t total, unsigned width, int64_t begin, int64_t end,
	const char *ink)
{
	unsigned from, to;

	if (end <= 0 || begin >= total) {
		text_add(out, "%s\n", begin >= total ? "(later)" : "(before)");
		return;
	}
	from = begin <= 0 ? 0 : (unsigned)((double)begin / (double)total * width);
	to = end >= total ? width : (unsigned)((double)end / (double)total * width);
	if (from >= width)
		from = width - 1;
	if (to <= from)
		to = from + 1;
	text_add(out, "%*s", (int)from, "");
	for (unsigned i = from; i < to; i++)
		text_add(out, "%s", ink);
	text_add(out, "\n");
}

static void print_faults(struct text *out, const struct bench_trace *t, size_t max)
{
	if (!t->n_faults) {
		text_add(out, "no faults\n");
		return;
	}
	text_add(out, "%zu fault%s%s\n", t->n_faults, t->n_faults == 1 ? "" : "s",
		t->lost ? ", and more that the pager did not keep" : "");
	text_add(out, "  %8s %8s %10s %6s %-7s %-6s %s\n", "at ms", "took us", "address", "pages",
		"kind", "access", "what lies there");
	for (size_t i = 0; i < t->n_faults && i < max; i++) {
		const struct bench_fault *f = &t->faults[i];

		text_add(out, "  %8.2f %8.1f %#10" PRIx64 " %6u %-7s %-6s %s%s\n", ms(f->begin),
			(double)(f->end - f->begin) / 1e3, f->offset, f->pages,
			bench_fault_kinds[f->kind], f->write ? "write" : "read", f->meaning,
			f->filled ? " (decompressed)" : "");
	}
	if (t->n_faults > max)
		text_add(out, "  … and %zu more\n", t->n_faults - max);
}

void bench_trace_print(
	struct text *out, const struct bench_trace *t, unsigned columns, size_t max_faults)
{
	unsigned width = columns > NAME_COLUMNS + NUMBER_COLUMNS + 20
		? columns - NAME_COLUMNS - NUMBER_COLUMNS - 2
		: 20;
	char scale[256];
	int64_t total = t->total > 0 ? t->total : 1;

	if (width > 200)
		width = 200;
	text_add(out, "%s create, sample %" PRIu64 " (the median): %.2f ms\n", t->name,
		t->sample + 1, ms(t->total));
	snprintf(scale, sizeof(scale), "0%*.0f ms", (int)width - 4, ms(total));
	text_add(out, "  %-*s %8s %8s %6s   %s\n", NAME_COLUMNS - 2, "part", "at ms", "took ms",
		"faults", scale);
	for (size_t i = 0; i < t->n_parts; i++) {
		const struct bench_span *s = &t->parts[i];

		text_add(out, "  %-*s %8.2f %8.2f %6zu   ", NAME_COLUMNS - 2, s->name, ms(s->begin),
			ms(s->end - s->begin), bench_trace_part_faults(t, i));
		print_bar(out, total, width, s->begin, s->end, "█");
	}
	for (size_t i = 0; i < t->n_pager; i++) {
		const struct bench_span *s = &t->pager[i];

		text_add(out, "  %-*s %8.2f %8.2f %6s   ", NAME_COLUMNS - 2, s->name, ms(s->begin),
			ms(s->end - s->begin), "");
		print_bar(out, total, width, s->begin, s->end, "░");
	}
	if (t->n_pager)
		text_add(out, "%" PRIu64 " pages were mapped at attach; ", t->premapped);
	print_faults(out, t, max_faults);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *spans_json(const struct bench_span *list, size_t n)
{
	json_t *spans = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(spans,
			json_pack("[s, I, I]", list[i].name, (json_int_t)list[i].begin,
				(json_int_t)list[i].end));
	return spans;
}

json_t *bench_trace_to_json(const struct bench_trace *t)
{
	json_t *faults = json_array(), *obj;

	for (size_t i = 0; i < t->n_faults; i++) {
		const struct bench_fault *f = &t->faults[i];

		json_array_append_new(faults,
			json_pack("{s:I, s:I, s:I, s:I, s:s, s:b, s:b, s:b, s:s}", "begin_ns",
				(json_int_t)f->begin, "end_ns", (json_int_t)f->end, "offset",
				(json_int_t)f->offset, "pages", (json_int_t)f->pages, "kind",
				bench_fault_kinds[f->kind], "minor", f->minor, "write", f->write,
				"filled", f->filled, "meaning", f->meaning));
	}
	obj = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "name", t->name, "sample",
		(json_int_t)t->sample, "at_ns", (json_int_t)t->at, "total_ns", (json_int_t)t->total,
		"premapped", (json_int_t)t->premapped, "lost", (json_int_t)t->lost, "parts",
		spans_json(t->parts, t->n_parts), "pager", spans_json(t->pager, t->n_pager),
		"faults", faults);
	if (!obj)
		abort();
	return obj;
}

static int spans_from_json(
	const json_t *list, struct bench_span *ret, size_t *ret_n, struct err *err)
{
	const json_t *one;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > BENCH_SPANS_MAX)
		return err_set(
			err, EINVAL, "a trace: not a list of at most %d spans", BENCH_SPANS_MAX);
	json_array_foreach(list, i, one)
	{
		const char *name = json_string_value(json_array_get(one, 0));

		if (!name || !json_is_integer(json_array_get(one, 1)) ||
			!json_is_integer(json_array_get(one, 2)))
			return err_set(err, EINVAL, "a trace: a span is not [name, begin, end]");
		add_span(ret, ret_n, name, json_integer_value(json_array_get(one, 1)),
			json_integer_value(json_array_get(one, 2)));
	}
	return 0;
}

static int fault_from_json(const json_t *obj, struct bench_fault *ret, struct err *err)
{
	const json_t *begin = json_object_get(obj, "begin_ns"),
		     *end = json_object_get(obj, "end_ns");
	const char *kind, *meaning;
	uint64_t pages;
	int r;

	if (!json_is_integer(begin) || !json_is_integer(end))
		return err_set(err, EINVAL, "a trace: a fault without its times");
	if ((r = json_get_u64(obj, "offset", 0, LIMIT_MEMORY_MAX, &ret->offset, err)) < 0 ||
		(r = json_get_u64(obj, "pages", 0, UINT32_MAX, &pages, err)) < 0 ||
		(r = json_get_string(obj, "kind", &kind, err)) < 0 ||
		(r = json_get_string(obj, "meaning", &meaning, err)) < 0)
		return r;
	ret->begin = json_integer_value(begin);
	ret->end = json_integer_value(end);
	ret->pages = (uint32_t)pages;
	ret->kind = PAGER_TRACE_KINDS;
	for (int i = 0; i < PAGER_TRACE_KINDS; i++) {
		if (!strcmp(kind, bench_fault_kinds[i]))
			ret->kind = (enum pager_trace_kind)i;
	}
	if (ret->kind == PAGER_TRACE_KINDS)
		return err_set(err, EINVAL, "a trace: a fault of kind \"%s\"", kind);
	ret->minor = json_is_true(json_object_get(obj, "minor"));
	ret->write = json_is_true(json_object_get(obj, "write"));
	ret->filled = json_is_true(json_object_get(obj, "filled"));
	snprintf(ret->meaning, sizeof(ret->meaning), "%s", meaning);
	return 0;
}

int bench_trace_from_json(const json_t *obj, struct bench_trace *ret, struct err *err)
{
	cleanup_trace struct bench_trace t = {0};
	const json_t *faults = json_object_get(obj, "faults");
	uint64_t at, total;
	const char *name;
	size_t n = json_array_size(faults);
	int r;

	if ((r = json_get_string(obj, "name", &name, err)) < 0 ||
		(r = json_get_u64(obj, "sample", 0, LIMIT_SAMPLES, &t.sample, err)) < 0 ||
		(r = json_get_u64(obj, "at_ns", 0, INT64_MAX, &at, err)) < 0 ||
		(r = json_get_u64(obj, "total_ns", 0, INT64_MAX, &total, err)) < 0 ||
		(r = json_get_u64(obj, "premapped", 0, INT64_MAX, &t.premapped, err)) < 0 ||
		(r = json_get_u64(obj, "lost", 0, INT64_MAX, &t.lost, err)) < 0 ||
		(r = spans_from_json(json_object_get(obj, "parts"), t.parts, &t.n_parts, err)) <
			0 ||
		(r = spans_from_json(json_object_get(obj, "pager"), t.pager, &t.n_pager, err)) < 0)
		return r;
	if (!json_is_array(faults) || n > LIMIT_PAGER_TRACE)
		return err_set(
			err, EINVAL, "a trace: not a list of at most %d faults", LIMIT_PAGER_TRACE);
	snprintf(t.name, sizeof(t.name), "%s", bench_series_name(name));
	t.at = (int64_t)at;
	t.total = (int64_t)total;
	t.faults = calloc(n ?: 1, sizeof(*t.faults));
	if (!t.faults)
		abort();
	for (; t.n_faults < n; t.n_faults++) {
		r = fault_from_json(json_array_get(faults, t.n_faults), &t.faults[t.n_faults], err);
		if (r < 0)
			return r;
	}
	*ret = t;
	t = (struct bench_trace){0};
	return 0;
}
