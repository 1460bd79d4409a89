/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page: well-formed by two parsers that are not ours, whatever the document says. Documents,
 * there and back.
 */
#include <math.h>
#include <fcntl.h>
#include <stdlib.h>

#include "benches/chart.h"
#include "benches/document.h"
#include "benches/report.h"
#include "benches/series.h"
#include "benches/svg.h"
#include "common/file.h"
#include "common/proc.h"
#include "common/str.h"
#include "tests/unit/tap.h"

#define HOSTILE "<script>alert('x')</script> & \"q\" ]]> \xe2\x80\xae"

static char dir[] = "/tmp/parbake-report.XXXXXX";

/*
 * XML's parser, and HTML's with a stack of its own; both must see as many <svg> as @svgs, no
 * script and no link out.
 */
static const char judge[] =
	"import sys, xml.etree.ElementTree as E, html.parser\n"
	"text = open(sys.argv[1], encoding='utf-8').read()\n"
	"root = E.fromstring(text)\n"
	"tags = [e.tag for e in root.iter()]\n"
	"class P(html.parser.HTMLParser):\n"
	"    stack, svgs = [], 0\n"
	"    def handle_starttag(self, tag, attrs):\n"
	"        assert tag != 'script', 'a script'\n"
	"        for k, v in attrs:\n"
	"            assert not k.startswith('on'), k\n"
	"            assert k not in ('src', 'srcset') and not (k == 'href' and not "
	"v.startswith('#')), v\n"
	"        self.svgs += tag == 'svg'\n"
	"        self.stack.append(tag)\n"
	"    def handle_startendtag(self, tag, attrs):\n"
	"        self.handle_starttag(tag, attrs); self.stack.pop()\n"
	"    def handle_endtag(self, tag):\n"
	"        assert self.stack.pop() == tag, tag\n"
	"p = P(); p.feed(text); p.close()\n"
	"assert not p.stack, p.stack\n"
	"assert 'http' not in text and 'url(' not in text and '@import' not in text, 'a link'\n"
	"assert 'nan' not in text.lower().replace('nanum', ''), 'not a number'\n"
	"for e in root.iter():\n"
	"    for k in ('x', 'y', 'x1', 'x2', 'y1', 'y2', 'cx', 'cy', 'width', 'height', 'r'):\n"
	"        if e.tag in ('line', 'rect', 'circle', 'text') and k in e.attrib:\n"
	"            assert -50 <= float(e.attrib[k]) <= 5000, (e.tag, k, e.attrib[k])\n"
	"print(p.svgs, tags.count('svg'), tags.count('section'))\n";

/* What the judge prints about the page. */
static char *judged(const struct text *page)
{
	cleanup_free char *path = str_printf("%s/page.html", dir);
	const char *const argv[] = {"python3", "-c", judge, path, NULL};
	struct proc_spec spec = {.argv = argv};
	struct err err;
	char *out;

	if (bench_publish(path, page->s, page->len, &err) < 0 ||
		proc_output(&spec, 60000, 1 << 20, &out, &err) < 0) {
		printf("# %s\n", err.text);
		return NULL;
	}
	return out;
}

static json_t *series(const char *name, size_t n, int64_t base, bool parts)
{
	cleanup_series struct bench_series s = {0};

	bench_series_init(&s, name, parts, parts);
	for (size_t i = 0; i < n; i++) {
		struct bench_sample one = {
			.total = base + (int64_t)(i * 7919 % 1000) * 20000, .faults = i};

		one.parts[PART_MONITOR] = one.total;
		bench_series_add(&s, &one);
	}
	if (!n)
		bench_series_fail(&s, &(struct err){.text = HOSTILE});
	return bench_series_to_json(&s);
}

static json_t *trace(void)
{
	struct bench_fault faults[2] = {
		{.begin = 100000, .end = 130000, .offset = 1 << 20, .meaning = HOSTILE},
		{.begin = 99000000,
			.end = 99100000,
			.offset = 200 << 20,
			.kind = PAGER_TRACE_HOLE}};
	struct bench_trace t = {
		.name = "cold", .total = 100000000, .n_parts = 2, .n_pager = 1, .n_faults = 2};

	faults[0].kind = PAGER_TRACE_DATA;
	t.parts[0] = (struct bench_span){.name = "monitor", .begin = 0, .end = 70000000};
	t.parts[1] = (struct bench_span){.name = "hello", .begin = 70000000, .end = 100000000};
	t.pager[0] = (struct bench_span){.name = "attach, premap", .begin = -20, .end = -10};
	t.faults = faults;
	return bench_trace_to_json(&t);
}

static json_t *document(void)
{
	static const char *const density[] = {"clones", "state", "a", "b", "c", "d", "e", "f"};
	static const char *const peers[] = {"peer", "until", "n", "failed", "p50", "p99", "ratio"};
	json_t *doc = bench_document_new(),
	       *run = bench_run_new("create", "create " HOSTILE, "Create " HOSTILE);

	bench_run_append(run, "series", series("first", 1, 200000000, true));
	bench_run_append(run, "series", series("cold", 500, 80000000, true));
	bench_run_append(run, "series", series("spare", 20, 2000000, true));
	bench_run_append(run, "series", series("broken", 0, 0, true));
	bench_run_append(run, "traces", trace());
	bench_run_fact(run, "template", json_string(HOSTILE));
	bench_run_note(run, "a note: %s \xff\xfe", HOSTILE);
	bench_document_add(doc, run);
	run = bench_run_new("density", "density", "Density");
	bench_run_columns(run, density, 8);
	bench_run_fact(run, "boot_pss_mib", json_real(80));
	for (int n = 1; n <= 20; n *= 2)
		bench_run_row(run,
			json_pack("[i, s, f, f, f, f, f, f]", n, "idle", 1.5, 1.6, 2.0, 30.0, 10.0,
				30.0 * n + 10));
	bench_document_add(doc, run);
	run = bench_run_new("peers", "peers", "Peers");
	bench_run_columns(run, peers, 7);
	bench_run_row(
		run, json_pack("[s, s, i, i, f, f, f]", HOSTILE, "answer", 20, 0, 50.0, 60.0, 1.0));
	bench_run_row(run,
		json_pack("[s, s, i, i, f, f, f]", "boot", "answer", 4, 0, 1000.0, 1200.0, 20.0));
	bench_document_add(doc, run);
	return doc;
}

static void test_page(void)
{
	cleanup_json json_t *doc = document(), *old = document();
	cleanup_text struct text page = {0}, with = {0};
	const char *names[] = {HOSTILE};
	cleanup_free char *alone = NULL, *compared = NULL;

	report_page(&page, doc, NULL, NULL, 0);
	alone = judged(&page);
	/* the distribution, the waterfall, the faults; two of density; one of peers */
	is_str(alone, "6 6 4\n", "well-formed, no script, nothing from outside, all pictures");
	report_page(&with, doc, &old, names, 1);
	compared = judged(&with);
	is_str(compared, "6 6 5\n", "a page with a comparison of one run has no intervals");
	has_str(with.s, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;q&quot;",
		"names are escaped");
	has_str(with.s, "prefers-color-scheme:dark", "light and dark");
	has_str(with.s, "first failure: &lt;script", "failures are told");
}

/* Documents from anywhere: every member gone, or of another type, in turn. */
static size_t break_one(json_t *doc, json_t *at, size_t *countdown)
{
	void *next;
	const char *key;
	json_t *value;
	size_t i;

	if (json_is_object(at)) {
		json_object_foreach_safe(at, next, key, value)
		{
			if ((*countdown)-- == 0)
				return json_object_set_new(at, key, json_string("odd")) == 0;
			if (break_one(doc, value, countdown))
				return 1;
		}
	} else if (json_is_array(at)) {
		json_array_foreach(at, i, value)
		{
			if (i > 3)
				break;
			if ((*countdown)-- == 0)
				return json_array_set_new(at, i, json_null()) == 0;
			if (break_one(doc, value, countdown))
				return 1;
		}
	}
	return 0;
}

static void test_hostile_documents(void)
{
	cleanup_json json_t *sound = document();
	size_t tries = 0;

	for (;; tries++) {
		cleanup_json json_t *doc = json_deep_copy(sound);
		cleanup_text struct text page = {0};
		const char *names[] = {"old"};
		size_t countdown = tries;

		if (!break_one(doc, doc, &countdown))
			break;
		report_page(&page, doc, &doc, names, 1);
		if (!page.len)
			break;
	}
	ok(tries > 100, "%zu broken documents still make pages", tries);
}

static void test_documents(void)
{
	cleanup_free char *path = str_printf("%s/doc.json", dir),
			  *bad = str_printf("%s/bad.json", dir);
	cleanup_json json_t *doc = document(), *back = NULL, *all = NULL;
	json_t *none = NULL, *two[2];
	struct err err;

	is_int(bench_document_write(doc, path, &err), 0, "a document is written");
	is_int(bench_document_read(path, &back, &err), 0, "a document is read");
	ok(json_equal(doc, back), "a document comes back as it was written");
	two[0] = doc;
	two[1] = back;
	all = bench_documents_join(two, 2);
	is_int((int64_t)json_array_size(json_object_get(all, "runs")), 6, "two become one");
	is_int((int64_t)json_array_size(json_object_get(doc, "runs")), 3,
		"documents that were joined stay what they were");
	file_publish(dir, "bad.json", "{\"format\":2}", 12, 0644, &err);
	is_int(bench_document_read(bad, &none, &err), -EINVAL,
		"a document of another format is refused: %s", err.text);
	file_publish(dir, "bad.json", "{\"format\":1,\"host\":{},\"runs\":[1]}", 33, 0644, &err);
	is_int(bench_document_read(bad, &none, &err), -EINVAL, "a run that is none: %s", err.text);
	is_int(bench_document_read("/nowhere/doc.json", &none, &err), -ENOENT, "no file: %s",
		err.text);
	is_int(bench_publish("/tmp/", "x", 1, &err), -EISDIR, "a directory is no name");
}

static void test_text(void)
{
	cleanup_text struct text t = {0};
	char number[32];

	text_escape(&t, "a\xff\x01<\xed\xa0\x80\xc0\x80\xf4\x90\x80\x80\xe2\x82");
	ok(t.s && !strchr(t.s, '\x01') && strstr(t.s, "&lt;"), "what XML forbids is replaced");
	ok(t.s && !strstr(t.s, "\xed\xa0\x80") && !strstr(t.s, "\xc0\x80"),
		"surrogates and overlong forms too");
	text_clear(&t);
	text_escape(&t, "µs ≤ 5 😀");
	is_str(t.s, "µs ≤ 5 😀", "what it allows stays");
	is_str(svg_number(-0.0, number), "0", "no negative zero");
	is_str(svg_number(12449.4, number), "12,449", "thousands are written in groups");
	is_str(svg_number(0.25, number), "0.25", "quarters are written with two digits");
	is_str(svg_number(3, number), "3", "whole numbers");
}

static void test_scales(void)
{
	struct svg_scale lin = {.min = 0, .max = 10, .from = 100, .to = 200};
	struct svg_scale lg = {.min = 1, .max = 100, .log = true, .from = 0, .to = 100};
	struct svg_scale flat = {.min = 5, .max = 5, .from = 0, .to = 10};

	ok(fabs(svg_at(&lin, 5) - 150) < 1e-9, "the middle of a linear scale");
	ok(fabs(svg_at(&lg, 10) - 50) < 1e-9, "the middle of a logarithmic scale has its place");
	ok(svg_at(&lg, 0) == 0 && svg_at(&lin, 99) == 200, "beyond the ends is at the ends");
	ok(svg_at(&flat, 5) == 5, "a scale of one value");
}

/* Samples at the edges of what charts expect. */
static void test_odd_charts(void)
{
	cleanup_series struct bench_series zero = {0}, same = {0}, many = {0};
	const struct bench_series *all[] = {&zero, &same, &many};
	cleanup_text struct text out = {0}, page = {0};
	cleanup_free char *said = NULL;

	bench_series_init(&zero, "zero", false, false);
	bench_series_add_time(&zero, 0);
	bench_series_init(&same, "same", false, false);
	bench_series_init(&many, "many", false, false);
	for (int i = 0; i < 20000; i++) {
		bench_series_add_time(&many, 1000 + i * 1000);
		bench_series_add_time(&same, 5000000);
	}
	chart_ecdf(&out, "odd", all, 3);
	chart_ecdf(&out, "one", &all[1], 1);
	chart_lines(&out, "none", "x", "y", true, NULL, 0);
	chart_bars(&out, "none", "x", NULL, 0);
	chart_intervals(&out, "none", NULL, 0);
	text_add(&page, "<html>%s</html>", out.s);
	said = judged(&page);
	is_str(said, "2 2 0\n", "zero, equal and many samples can be drawn");
	ok(out.len < 200000, "many samples make no great picture (%zu bytes)", out.len);
}

int main(void)
{
	struct err err;

	if (!mkdtemp(dir))
		return 1;
	test_page();
	test_hostile_documents();
	test_documents();
	test_text();
	test_scales();
	test_odd_charts();
	file_remove_tree(AT_FDCWD, dir, &err);
	return tap_done();
}
