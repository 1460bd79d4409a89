/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every page begins and ends with. What is wider than a telephone scrolls in a box of its own that the keyboard
 * reaches too, so that text stays as large as it is elsewhere.
 */
#include "benches/report_style.h"

static const char style[] =
	":root{--bg:#ffffff;--fg:#1b1f24;--soft:#5b6570;--line:#d5dae0;--card:#f5f7f9;--bad:#"
	"c62828;\n"
	"--s0:#2563eb;--s1:#d97706;--s2:#0f8a5f;--s3:#d02f4b;--s4:#7c3aed;--s5:#0e7f9b;--s6:#"
	"b83280;--s7:#6b7280}\n"
	"@media "
	"(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ec;--soft:#9aa5b1;--line:#343b44;"
	"\n"
	"--card:#1c2127;--bad:#ff7b72;--s0:#6ea8fe;--s1:#f0b429;--s2:#4cc38a;--s3:#ff7a90;--s4:#"
	"b292f0;\n"
	"--s5:#4fc3dc;--s6:#ee7ab8;--s7:#a3acb8}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0 auto;max-width:1040px;padding:24px 20px "
	"60px;background:var(--bg);color:var(--fg);\n"
	"font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
	"h1{font-size:26px;margin:0}h2{font-size:20px;margin:0 0 "
	"12px}h3{font-size:16px;margin:20px 0 8px}\n"
	".sub{color:var(--soft);margin:4px 0 20px}\n"
	"nav{margin:18px 0;display:flex;flex-wrap:wrap;gap:4px "
	"16px;font-size:14px}a{color:var(--s0);text-decoration:none}\n"
	"section{background:var(--card);border:1px solid "
	"var(--line);border-radius:10px;padding:20px;margin:20px 0}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}\n"
	".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px "
	"14px}\n"
	".tile b{display:block;font-size:24px;line-height:1.2;font-weight:600}.tile "
	"span{color:var(--soft);font-size:13px}\n"
	"figure{margin:0 0 20px}figcaption{font-weight:600;margin-bottom:4px}\n"
	"svg{display:block;width:100%;height:auto;overflow:visible}\n"
	".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:"
	"20px}\n"
	".single{max-width:600px}.wide td{white-space:nowrap}\n"
	"text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
	"Sans',sans-serif;fill:var(--fg)}\n"
	"text.label,text.value{fill:var(--soft)}text.inside{fill:var(--card)}text.head{font-weight:"
	"600}\n"
	".grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}\n"
	".mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}\n"
	".line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{stroke:var(--card);stroke-width:"
	"1}\n"
	".faint{stroke:var(--soft)}.dot.faint{fill:var(--soft)}.bar{rx:2px}\n"
	".s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}\n"
	".s4{stroke:var(--s4)}.s5{stroke:var(--s5)}.s6{stroke:var(--s6)}.s7{stroke:var(--s7)}\n"
	".f0{fill:var(--s0)}.f1{fill:var(--s1)}.f2{fill:var(--s2)}.f3{fill:var(--s3)}\n"
	".f4{fill:var(--s4)}.f5{fill:var(--s5)}.f6{fill:var(--s6)}.f7{fill:var(--s7)}\n"
	".legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:6px 0 "
	"0;padding:0;font-size:13px}\n"
	".key{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;"
	"vertical-align:-1px}\n"
	".k0{background:var(--s0)}.k1{background:var(--s1)}.k2{background:var(--s2)}.k3{background:"
	"var(--s3)}\n"
	".k4{background:var(--s4)}.k5{background:var(--s5)}.k6{background:var(--s6)}.k7{background:"
	"var(--s7)}\n"
	"table{border-collapse:collapse;width:100%;margin:0 0 "
	"20px;font-size:14px;font-variant-numeric:tabular-nums}\n"
	"th,td{padding:5px 10px;border-bottom:1px solid "
	"var(--line);text-align:left;vertical-align:top}\n"
	"th{font-weight:600}th.n,td.n{text-align:right;white-space:nowrap}tr:last-child>*{border-"
	"bottom:0}\n"
	".facts td.n{text-align:left}.facts th{width:12em;color:var(--soft);font-weight:400}\n"
	".facts td{overflow-wrap:anywhere}\n"
	".wide{overflow-x:auto}.bad{color:var(--bad);font-weight:600}.note{color:var(--soft);font-"
	"size:14px}\n"
	".wide:focus-visible,a:focus-visible,summary:focus-visible{outline:2px solid "
	"var(--s0);outline-offset:2px}\n"
	".chart "
	"svg{min-width:600px}.band{fill:var(--s0);opacity:.13}.step{stroke:var(--bad);stroke-width:"
	"1;"
	"stroke-dasharray:2 3}\n"
	".good{color:var(--s2);font-weight:600}.told{font-size:14px;padding-left:18px}code{font-"
	"size:13px}\n"
	"@media (max-width:600px){body{padding:16px 10px 40px}section{padding:14px "
	"12px}h1{font-size:22px}"
	"th,td{padding:5px 7px}.facts th{width:8em}}\n"
	"details{margin-top:14px}summary{cursor:pointer;color:var(--soft)}\n";

void report_begin(struct text *out, const char *title)
{
	text_add(out,
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
		"<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>");
	text_escape(out, title);
	text_add(out, "</title>\n<style>\n");
	text_add(out, "%s", style);
	text_add(out, "</style></head><body>\n");
}

void report_end(struct text *out)
{
	text_add(out, "</body></html>\n");
}

void report_scroller(struct text *out, const char *label)
{
	text_add(out, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"");
	text_escape(out, label);
	text_add(out, "\">");
}
