/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recipes: what they mean, from chains, canonical text, and every bad one of
 * tests/hostile/recipes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "bake/recipe/recipe.h"
#include "common/inifile.h"
#include "common/file.h"
#include "common/limits.h"
#include "bake/recipe/limits.h"
#include "common/str.h"
#include "common/units.h"
#include "tests/unit/tap.h"

#define HOSTILE "tests/hostile/recipes"
#define ROOT "[root]\nsource = debian\nsuite = bookworm\n"

static const char *const no_dirs[] = {NULL};

static struct recipe *parse(const char *text)
{
	struct recipe *r = NULL;
	struct err err = {0};
	int rc = recipe_parse("dir/one.ini", text, strlen(text), no_dirs, &r, &err);

	ok(rc == 0, "a recipe is read%s%s", rc ? ": " : "", rc ? err.text : "");
	return r;
}

static void test_hostile(void)
{
	cleanup_dir DIR *dir = opendir(HOSTILE);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir))) {
		size_t len = strlen(e->d_name);
		cleanup_free char *path = str_printf(HOSTILE "/%s", e->d_name), *want = NULL;
		cleanup_free char *beside = NULL;
		struct recipe *r = NULL;
		struct err err = {0};

		if (len < 4 || strcmp(e->d_name + len - 4, ".ini"))
			continue;
		n++;
		beside = str_printf("%.*s.error", (int)(strlen(path) - 4), path);
		if (file_read_all(AT_FDCWD, beside, 4096, &want, &len, &err)) {
			ok(0, "%s: has a .error beside it", path);
			continue;
		}
		want[strcspn(want, "\n")] = '\0';
		ok(recipe_read(path, no_dirs, &r, &err) < 0, "%s is refused", e->d_name);
		has_str(err.text, want, "%s: the error", e->d_name);
		ok(!r, "%s: no recipe comes back", e->d_name);
	}
	ok(n >= 55, "%d hostile recipes", n);
}

static void test_meaning(void)
{
	struct recipe *r = parse(
		"\xef\xbb\xbf; comment\n[template]\nname = two\ndescription = d; e # "
		"f\naliases = two-v1\n  zwei\n"
		"[machine]\r\nmemory = 64M\nvcpus = 8\ndisk = 1G\nrandomize_addresses = yes\n" ROOT
		"packages = curl\n\tgit curl\n  bash\n"
		"[files]\n/etc/a = sub/a 0755\n/b c = /abs/b\n"
		"[env]\nB = x = y\nA = 'q'\n"
		"[network]\nallow = example.org example.net:8080\n"
		"[install]\n10 = echo ten; # not a comment\n2 = for i in 1; do\n    if "
		"true\n      then :\n    done\n"
		"pip = six==1.0 a[b]>=2\n"
		"[start]\ncommand = sleep 1\nready = python: assert True\nuser = _a-9\n"
		"[warm]\n1 = python:\n\tfor i in x:\n\t    pass\n2 = true\ncaches = keep\n"
		"programs =\n\tmake -v\n\n\tcc --version | head\n"
		"[limits]\ntimeout = 2m\noutput = 3M\nmemory = 64M\npids = 10\n");

	if (!r)
		return;
	is_str(r->name, "two", "a recipe's name is read");
	is_str(r->description, "d; e # f", "comments are for lines of their own");
	ok(r->aliases.n == 2 && !strcmp(r->aliases.items[1], "zwei"), "other names");
	is_int((int64_t)r->memory_bytes, 64 << 20, "a recipe's memory is read");
	is_int(r->vcpus, 8, "a recipe's number of processors is read");
	is_int((int64_t)r->disk_bytes, 1 << 30, "a recipe's disk is read");
	ok(!recipe_settles_addresses(r, true), "addresses are random where the recipe says so");
	is_int((int64_t)r->packages.n, 3, "packages once each");
	is_str(r->packages.items[0], "bash", "packages are sorted");
	is_int((int64_t)r->n_files, 2, "a recipe's files are read");
	is_str(r->files[0].guest, "/b c", "files are sorted");
	is_str(r->files[0].host, "/abs/b", "an absolute path stays");
	is_int(r->files[0].mode, 0644, "mode by default");
	is_str(r->files[1].host, "dir/sub/a", "a relative one is beside the recipe");
	is_int(r->files[1].mode, 0755, "a file's mode is read");
	is_str(r->env.items[0], "A='q'", "env is sorted");
	is_str(r->env.items[1], "B=x = y", "env keeps what follows the first =");
	is_int((int64_t)r->install.n, 2, "install steps");
	is_str(r->install.items[0].text, "for i in 1; do\nif true\n  then :\ndone",
		"a continued step keeps its inner indent");
	is_int(r->install.items[0].line, 28, "steps know their line");
	is_str(r->install.items[0].file, "dir/one.ini", "steps know their file");
	is_str(r->install.items[1].text, "echo ten; # not a comment",
		"steps in the order of numbers");
	is_int((int64_t)r->pip.n, 2, "pip's requirements are read");
	is_str(r->start_command, "sleep 1", "the start command is read");
	is_str(r->user, "_a-9", "the SDKs' user is read");
	ok(r->ready_python, "ready in python");
	is_str(r->ready, "assert True", "the ready check is read");
	is_str(r->warm.items[0].text, "for i in x:\n    pass", "python code keeps its indent");
	ok(r->warm.items[0].python && !r->warm.items[1].python, "python or shell");
	ok(r->keep_caches, "what becomes of caches is read");
	is_int((int64_t)r->programs.n, 2, "programs, one a line");
	is_str(r->programs.items[1], "cc --version | head", "each a shell line");
	is_int((int64_t)r->exec_timeout_ms, 120000, "the time limit is read");
	is_int((int64_t)r->output_bytes, 3 << 20, "the limit on output is read");
	is_int((int64_t)r->exec_pids, 10, "the limit on processes is read");
	ok(recipe_uses_python(r), "a recipe with a step in Python needs the interpreter");
	recipe_free(r);
}

static void test_addresses(void)
{
	static const struct {
		const char *line;
		bool emulated, settled;
	} cases[] = {
		{"", true, true},
		{"", false, false},
		{"randomize_addresses = no", false, true},
		{"randomize_addresses = no", true, true},
		{"randomize_addresses = yes", false, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cleanup_free char *text = str_printf("[machine]\n%s\n" ROOT, cases[i].line);
		struct recipe *r = parse(text);

		ok(r && recipe_settles_addresses(r, cases[i].emulated) == cases[i].settled,
			"%s, %s: programs lie %s", *cases[i].line ? cases[i].line : "nothing said",
			cases[i].emulated ? "emulated" : "with KVM",
			cases[i].settled ? "at settled addresses" : "anywhere");
		recipe_free(r);
	}
}

/* The canonical text, read again, is itself. */
static void test_text(void)
{
	struct recipe *a = parse(
		"[template]\nname = x\n" ROOT
		"packages = bb aa\n[files]\n/f = f 600\n[env]\nK = v\n"
		"[network]\nallow = z.example.org a.example.org 10.0.0.1\n"
		"  B.example.org:99 private\n"
		"[install]\n7 = seven\n3 = a\n  b\n[start]\nready = python: 1\nuser = app\n"
		"[warm]\nprograms = a b\n  c\n1 = python:\n  x\n  y\n[limits]\ntimeout = 1s\n");
	struct recipe *b = parse(
		"[limits]\ntimeout = 1000ms\n[warm]\n1 = python:\n\tx\n\ty\nprograms =\n a b\n\n "
		"c\n"
		"[network]\nallow = b.example.org.:99 private a.example.org\n  10.0.0.1 private\n"
		"  z.example.org z.example.org\n"
		"[start]\nuser = app\nready = python:   1\n[env]\nK = v\n[files]\n/f = f 0600\n"
		"[install]\n1 = a\n\tb\n2 = seven\n[root]\npackages = aa bb\n"
		"source = debian\nsuite = bookworm\n[template]\nname = x\n");
	cleanup_free char *text_a = a ? recipe_text(a) : NULL, *text_b = b ? recipe_text(b) : NULL;
	cleanup_free char *again = NULL;
	struct recipe *c = text_a ? parse(text_a) : NULL;

	again = c ? recipe_text(c) : NULL;
	is_str(text_a, text_b, "recipes of one meaning have one text");
	is_str(again, text_a, "the text read again gives itself");
	ok(text_a && !strstr(text_a, "dir/"), "no host path stands in it");
	ok(c && c->allow.n == 4 && c->allow.items[0].private_ok && !c->allow.items[1].private_ok &&
			c->allow.items[2].private_ok && !c->allow.items[3].private_ok,
		"\"private\" is of the host before it, and an address means itself");
	recipe_free(a);
	a = parse("[template]\nname = x\n[root]\nsource = tar\n"
		  "url = https://me:secret@example.org:8443/a.tar?sign=secret\n"
		  "sha256 = 0000000000000000000000000000000000000000000000000000000000000000\n");
	free(steal_ptr(&text_a));
	text_a = a ? recipe_text(a) : NULL;
	ok(text_a && strstr(text_a, "url = https://example.org:8443/a.tar\n") &&
			!strstr(text_a, "secret"),
		"the text of a recipe has no secrets of a URL");
	recipe_free(a);
	recipe_free(b);
	recipe_free(c);
}

/* Lines of a value are the value's, whatever they look like. */
static void test_lines(void)
{
	struct recipe *r =
		parse("[template]\nname = x\n" ROOT "[install]\n"
		      "1 = case x in\n    x) echo one >/root/o\n    ;;\n    esac\n"
		      "    cat >/root/s <<'X'\n    #!/bin/sh\n    # kept  \n\n"
		      "; of the recipe\n    \n    X\n"
		      "  \n# of the recipe\n"
		      "2 = for i in 1; do\n\t\techo $i\n\tdone\n"
		      "[start]\nready = python:\n    assert True\n\n    # b\n\n"
		      "[warm]\n1 = python:\n\n\tx = \"\"\"\n\t# x\n\n\t  ; y\n\t\"\"\"\n\n");
	struct recipe *b = NULL;
	struct inifile ini = {0};
	struct err err = {0};
	cleanup_free char *text = NULL, *again = NULL;
	static const char mixed[] = "[install]\n1 = a\n\tb\r\n",
			  alike[] = "[install]\r\n1 = a\r\n\tb\r\n";

	if (!r)
		return;
	is_str(r->install.items[0].text,
		"case x in\nx) echo one >/root/o\n;;\nesac\ncat >/root/s <<'X'\n#!/bin/sh\n# kept  "
		"\n\n\nX",
		"a step keeps lines that begin with # or ;, blank ones, and blanks at their ends");
	is_str(r->install.items[1].text, "for i in 1; do\n\techo $i\ndone",
		"what is indented deeper than the least stays so, the first line too");
	is_str(r->ready, "assert True\n\n# b", "Python code likewise, to its last line");
	is_str(r->warm.items[0].text, "x = \"\"\"\n# x\n\n  ; y\n\"\"\"",
		"a string of several lines has each of them");
	is_int(r->warm.items[0].line, 30,
		"lines behind a string of several lines are counted right");
	text = recipe_text(r);
	b = parse(text);
	again = b ? recipe_text(b) : NULL;
	is_str(again, text, "the text read again gives itself");
	recipe_free(b);
	recipe_free(r);
	ok(inifile_parse("m.ini", mixed, strlen(mixed), &ini, &err) == -EINVAL,
		"a carriage return in one line of a value is refused");
	has_str(err.text, "m.ini:3: a line of a value ends in a carriage return", "by its line");
	ok(!inifile_parse("m.ini", alike, strlen(alike), &ini, &err), "a file of CR LF is read");
	is_str(ini.n ? ini.entries[0].value : "", "a\nb", "a file of CR LF is read as one of LF");
	inifile_clear(&ini);
}

static void put(const char *dir, const char *name, const char *text)
{
	struct err err = {0};

	if (file_publish(dir, name, text, strlen(text), 0600, &err))
		ok(0, "write %s: %s", name, err.text);
}

static void test_chain(void)
{
	char dir[] = "/tmp/parbake-test-XXXXXX";
	const char *dirs[] = {NULL, NULL};
	cleanup_free char *other = NULL, *path = NULL, *plain = NULL;
	struct recipe *r = NULL;
	struct err err = {0};

	if (!mkdtemp(dir))
		return;
	other = str_printf("%s/other", dir);
	mkdir(other, 0700);
	dirs[0] = other;
	put(other, "base.ini",
		"[template]\nname = base\ndescription = from base\naliases = "
		"ground\n[machine]\nmemory = 128M\n" ROOT
		"packages = curl git\n[env]\nA = 1\nB = 2\n[install]\n5 = five\n");
	put(dir, "mid.ini",
		"[template]\nfrom = base\n[root]\npackages = git zip\n[env]\nB = 3\n"
		"[install]\n1 = one\n[files]\n/x = x\n");
	put(other, "leaf.ini", "[template]\nfrom = mid\n[machine]\nmemory = 256M\n");
	put(other, "mid.ini", "[template]\nfrom = nowhere\n");
	path = str_printf("%s/leaf.ini", dir);
	put(dir, "leaf.ini", "[template]\nfrom = mid\n[machine]\nmemory = 256M\n");
	ok(recipe_read(path, dirs, &r, &err) == 0, "a chain of three: %s", err.text);
	if (r) {
		is_str(r->name, "leaf", "the name is the newest file's");
		ok(!r->description, "a description is not inherited");
		ok(!r->aliases.n, "other names are not inherited");
		is_int((int64_t)r->memory_bytes, 256 << 20, "the newest word on memory stands");
		is_int((int64_t)r->packages.n, 3, "packages of the whole chain");
		is_str(r->env.items[1], "B=3", "a variable is overridden");
		is_str(r->install.items[0].text, "five", "parents' steps come first");
		is_str(r->install.items[1].text, "one", "a child's steps come after its parents'");
		is_int((int64_t)r->n_files_read, 3, "three files");
		has_str(r->files_read[0], "other/base.ini", "the oldest first");
		has_str(r->files[0].host, dir, "files are beside the recipe that names them");
		recipe_free(r);
		r = NULL;
	}
	ok(recipe_read("base", dirs, &r, &err) == 0, "a plain name is looked up");
	recipe_free(r);
	r = NULL;
	is_int(recipe_read("absent", dirs, &r, &err), -ENOENT,
		"a plain name that is nowhere is an error");
	has_str(err.text, "no recipe absent.ini in", "says where it was looked for");
	for (int i = 0; i < LIMIT_RECIPE_DEPTH + 2; i++) {
		cleanup_free char *name = str_printf("deep%d.ini", i);
		cleanup_free char *text = str_printf("[template]\nfrom = deep%d\n", i + 1);

		put(dir, name, text);
	}
	plain = str_printf("%s/deep0.ini", dir);
	ok(recipe_read(plain, dirs, &r, &err) < 0, "a chain that is too long");
	has_str(err.text, "chain is longer than", "the error names a chain that is too long");
	file_remove_tree(AT_FDCWD, dir, NULL);
}

static void test_units(void)
{
	uint64_t v = 0;

	ok(!units_parse_size("16K", &v) && v == 16384, "16K is a size");
	ok(!units_parse_size("3T", &v) && v == 3ULL << 40, "3T is a size");
	ok(!units_parse_time_ms("500ms", &v) && v == 500, "500ms is a time");
	ok(!units_parse_time_ms("2h", &v) && v == 7200000, "2h is a time");
	static const char *const bad[] = {"", "M", "1", "1.5M", " 1M", "1 M", "+1M", "0x1M", "1m",
		"18446744073709551616K", "18446744073709551615K"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		is_int(units_parse_size(bad[i], &v), -EINVAL, "'%s' is no size", bad[i]);
	is_int(units_parse_time_ms("5", &v), -EINVAL, "a time without unit");
	is_int(units_parse_time_ms("-5s", &v), -EINVAL, "a negative time");
}

/* The longest line there may be, and one byte more, inside inih's own buffer. */
static void test_long(void)
{
	cleanup_free char *text = malloc(3 * LIMIT_RECIPE_LINE);
	struct inifile ini = {0};
	struct err err = {0};
	size_t n = (size_t)sprintf(text, "[env]\nA = ");

	memset(text + n, 'v', LIMIT_RECIPE_LINE);
	n = strlen("[env]\n") + LIMIT_RECIPE_LINE;
	ok(!inifile_parse("l.ini", text, n, &ini, &err), "a line of the greatest length: %s",
		err.text);
	ok(ini.n == 1 && strlen(ini.entries[0].value) == LIMIT_RECIPE_LINE - 4,
		"nothing of a line of the greatest length is cut");
	inifile_clear(&ini);
	ok(inifile_parse("l.ini", text, n + 1, &ini, &err) < 0, "a byte more is refused");
	is_int(inifile_parse("l.ini", text, LIMIT_RECIPE_BYTES + 1, &ini, &err), -EFBIG,
		"a file with too much text is refused");
}

int main(void)
{
	test_units();
	test_meaning();
	test_addresses();
	test_lines();
	test_text();
	test_chain();
	test_long();
	test_hostile();
	return tap_done();
}
