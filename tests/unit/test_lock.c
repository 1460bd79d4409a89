/* SPDX-License-Identifier: Apache-2.0 */
/* Locks: their text and what is read of it; the drift between two; and what an inventory finds on a disk. */
#include <stdlib.h>
#include <sys/stat.h>

#include "bake/ext4/ext4.h"
#include "bake/ext4/read.h"
#include "prove/bom.h"
#include "prove/lock.h"
#include "tests/unit/ext4_images.h"

#define LOCK_ALL ((1U << LOCK_KINDS) - 1)

#define A64 "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static struct lock read_lock(const char *text)
{
	struct lock l = {0};
	struct err err = {0};

	if (lock_parse("x.lock", text, strlen(text), &l, &err))
		ok(0, "a lock: %s", err.text);
	return l;
}

static void test_text(void)
{
	static const char text[] = "parbake-lock 1\n"
				   "agent initramfs - " A64 "\n"
				   "debian a:all 1.0 -\n"
				   "file /a%20b - " B64 "\n"
				   "wheel six 1.16.0 " A64 "\n";
	static const char mixed[] = "parbake-lock 1\n"
				    "wheel six 1.16.0 " A64 "\n"
				    "file /a%20b - " B64 "\n"
				    "debian a:all 1.0 -\n"
				    "wheel six 1.16.0 " A64 "\n"
				    "agent initramfs - " A64 "\n";
	cleanup_lock struct lock l = read_lock(mixed);
	cleanup_free char *out = lock_text(&l);

	is_str(out, text, "a lock's text is sorted, and has each line once");
}

static void test_refused(void)
{
	static const struct {
		const char *text, *want;
	} bad[] = {
		{"", "its first line"},
		{"parbake-lock 2\n", "parbake bake --lock"},
		{"parbake-lock 1\nagent x - -", "cut off"},
		{"parbake-lock 1\nagent x -\n", "x.lock:2: a line is four words"},
		{"parbake-lock 1\nagent x - - -\n", "x.lock:2: more than four words"},
		{"parbake-lock 1\nagent x - -\nbooks x - -\n",
			"x.lock:3: there is no kind \"books\""},
		{"parbake-lock 1\nagent x - sha256:12\n", "\"sha256:12\" is no digest"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct lock l = {0};
		struct err err = {0};

		is_int(lock_parse("x.lock", bad[i].text, strlen(bad[i].text), &l, &err), -EINVAL,
			"refused: %s", bad[i].want);
		has_str(err.text, bad[i].want, "the error of a refused lock tells what is wrong");
	}
}

static void drifts(const char *want, const char *have, unsigned kinds, bool more, const char *text)
{
	cleanup_free char *a = str_printf("parbake-lock 1\n%s", want);
	cleanup_free char *b = str_printf("parbake-lock 1\n%s", have);
	cleanup_lock struct lock x = read_lock(a), y = read_lock(b);
	cleanup_with(strings_clear) struct strings drift = {0};
	cleanup_free char *all = str_dup("");

	lock_compare(&x, &y, kinds, more, &drift);
	for (size_t i = 0; i < drift.n; i++) {
		char *longer = str_printf("%s%s\n", all, drift.items[i]);

		free(all);
		all = longer;
	}
	is_str(all, text, "drift: %s", *text ? text : "none");
}

static void test_drift(void)
{
	drifts("agent a - " A64 "\n", "agent a - " A64 "\n", LOCK_ALL, false, "");
	drifts("agent a - " A64 "\n", "agent a - " B64 "\n", LOCK_ALL, false,
		"agent a: locked as " A64 ", here it is " B64 "\n");
	drifts("debian a 1 -\ndebian b 1 -\n", "debian b 2 -\ndebian c 1 -\n", LOCK_ALL, false,
		"debian a: locked as 1, not here\ndebian b: locked as 1, here it is 2\n"
		"debian c: not in the lock, here it is 1\n");
	drifts("debian a 1 -\ndebian b 1 -\n", "debian b 1 -\n", LOCK_ALL, true, "");
	drifts("agent a - " A64 "\n", "debian b 1 -\n", 1U << LOCK_DEBIAN, false,
		"debian b: not in the lock, here it is 1\n");
	drifts("npm a 1 -\nnpm a 3 -\n", "npm a 1 -\nnpm a 2 -\nnpm a 3 -\n", LOCK_ALL, false,
		"npm a: not in the lock, here it is 2\n");
	drifts("npm a 1 -\nnpm a 2 -\nnpm a 3 -\n", "npm a 1 -\nnpm a 3 -\n", LOCK_ALL, false,
		"npm a: locked as 2, not here\n");
}

/* ---- a disk -------------------------------------------------------------------------------- */

static void put(struct ext4 *fs, const char *path, const char *text)
{
	struct ext4_meta meta = {.mode = S_IFREG | 0644};
	struct err err = {0};

	if (ext4_file_begin(fs, path, &meta, &err) ||
		ext4_file_write(fs, 0, text, strlen(text), &err) ||
		ext4_file_end(fs, strlen(text), &err))
		ok(0, "%s: %s", path, err.text);
}

static int make_disk(void)
{
	struct ext4_options opt = {.bytes = 16 << 20, .time = 1, .label = "test"};
	struct ext4_meta link = {.mode = S_IFLNK | 0777};
	int fd = image_file("disk");
	struct ext4 *fs = NULL;
	struct err err = {0};

	if (ext4_create(fd, &opt, &fs, &err))
		abort();
	put(fs, "/var/lib/dpkg/status",
		"Package: zlib\nStatus: install ok installed\nVersion: 1:2-3\nArchitecture: "
		"amd64\n\n"
		"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: "
		"all\n\n"
		"Package: adduser\nStatus: install ok installed\nArchitecture: all\n"
		"Description: text\n Version: not this\nVersion: 3.134\n");
	put(fs, "/var/lib/dpkg/info/adduser.md5sums", "sums\n");
	put(fs, "/var/lib/dpkg/info/zlib:amd64.md5sums", "sums\n");
	put(fs, "/usr/local/lib/python3.11/dist-packages/six-1.16.0.dist-info/METADATA",
		"Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n\nName: not this\n");
	put(fs, "/usr/local/lib/python3.11/dist-packages/six-1.16.0.dist-info/RECORD", "record\n");
	put(fs, "/usr/lib/python3/dist-packages/numpy-1.dist-info/METADATA",
		"Name: numpy\nVersion: 1\n");
	put(fs, "/srv/node_modules/left-pad/package.json",
		"{\"name\": \"left-pad\", \"version\": \"1.3.0\"}");
	put(fs, "/srv/node_modules/@a/b/package.json",
		"{\"name\": \"@a/b\", \"version\": \"2.0.0\"}");
	put(fs, "/srv/node_modules/left-pad/test/package.json",
		"{\"name\": \"a-fixture\", \"version\": \"1\"}");
	put(fs, "/srv/node_modules/evil/package.json",
		"{\"name\": \"x y\\nz\", \"version\": \"1\"}");
	put(fs, "/srv/node_modules/broken/package.json", "{");
	if (ext4_add_symlink(fs, "/srv/link", "node_modules/left-pad", &link, &err) ||
		ext4_finish(fs, NULL, &err))
		ok(0, "a disk: %s", err.text);
	return fd;
}

static int list_paths(void *user, const struct ext4_found *f)
{
	fprintf(user, "%s %o %llu\n", f->path, f->mode, (unsigned long long)f->bytes);
	return 0;
}

static void test_inventory(void)
{
	static const char *const want[] = {"debian adduser 3.134 all", "debian zlib 1:2-3 amd64",
		"npm @a/b 2.0.0 ", "npm left-pad 1.3.0 ", "wheel six 1.16.0 "};
	cleanup_fd int fd = make_disk();
	cleanup_ext4_image struct ext4_image *img = NULL;
	cleanup_inventory struct inventory inv = {0};
	cleanup_free char *paths = NULL, *text = NULL;
	char sum[DIGEST_TEXT_SIZE];
	struct err err = {0};
	uint32_t ino = 0;
	size_t len = 0;
	FILE *f = open_memstream(&paths, &len);

	is_int(ext4_image_open(fd, &img, &err), 0, "an image opens");
	is_int(ext4_image_walk(img, list_paths, f, &err), 0, "an image is walked");
	fclose(f);
	has_str(paths,
		"/lost+found 40700 0\n/srv 40755 0\n/srv/link 120777 21\n/srv/node_modules 40755 "
		"0\n"
		"/srv/node_modules/@a 40755 0\n/srv/node_modules/@a/b 40755 0\n",
		"in order, links not followed");
	is_int(ext4_image_find(img, "/srv/link", &ino), 0, "a link is found");
	is_int(ext4_image_read(img, ino, 4096, &text, &len, &err), 0,
		"what a link leads to is read");
	is_str(text, "node_modules/left-pad", "as what it leads to");
	is_int(ext4_image_find(img, "/srv/nothing", &ino), -ENOENT,
		"what is not there is not found");
	is_int(inventory_read(img, &inv, &err), 0, "an inventory");
	is_int((int64_t)inv.n, 5, "an inventory has five packages");
	digest_buffer("sums\n", 5, sum);
	for (size_t i = 0; i < inv.n && i < 5; i++) {
		cleanup_free char *line =
			str_printf("%s %s %s %s", package_kind_name(inv.items[i].kind),
				inv.items[i].name, inv.items[i].version, inv.items[i].arch);

		is_str(line, want[i], "package %zu", i);
		ok(digest_valid(inv.items[i].digest), "with the digest of its list");
		if (inv.items[i].kind == PACKAGE_DEBIAN)
			is_str(inv.items[i].digest, sum, "which is that of md5sums");
	}
}

static void test_purls(void)
{
	static const struct {
		struct package p;
		const char *want;
	} rows[] = {
		{{PACKAGE_DEBIAN, (char *)"libstdc++6", (char *)"1:12.2~1", (char *)"amd64", ""},
			"pkg:deb/debian/libstdc%2B%2B6@1:12.2~1?arch=amd64"},
		{{PACKAGE_NPM, (char *)"@a/B", (char *)"2.0.0", (char *)"", ""},
			"pkg:npm/%40a/B@2.0.0"},
		{{PACKAGE_PYTHON, (char *)"Typing_Extensions", (char *)"4.0", (char *)"", ""},
			"pkg:pypi/typing-extensions@4.0"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		cleanup_free char *purl = bom_purl(&rows[i].p);

		is_str(purl, rows[i].want, "a package's URL");
	}
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	test_text();
	test_refused();
	test_drift();
	test_inventory();
	test_purls();
	free(run(NULL, "rm -rf %s", dir));
	return tap_done();
}
