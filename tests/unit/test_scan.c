/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scan for what was lent: the search against memmem(3), pieces of values and URLs, what is known
 * anyway, and whose block it is.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bake/ext4/ext4.h"
#include "bake/ext4/owner.h"
#include "bake/scan/lent.h"
#include "bake/scan/scan.h"
#include "common/file.h"
#include "tests/unit/ext4_images.h"

static int memory_file(const void *bytes, size_t len)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	if (fd < 0 || file_pwrite_full(fd, bytes, len, 0))
		abort();
	return fd;
}

/* ---- the search ---------------------------------------------------------------------------- */

#define TEXT_BYTES (3 << 20)
#define STRINGS 300

static unsigned long sum_found, count_found;

static int count_hit(void *user, size_t string, uint64_t offset)
{
	(void)user;
	count_found++;
	sum_found += string * 1000003UL + offset * 7;
	return 0;
}

static int stop_at_once(void *user, size_t string, uint64_t offset)
{
	(void)string;
	(void)offset;
	++*(int *)user;
	return 42;
}

/* Strings of all lengths cut from a text of few different bytes, so that many are there many times. */
static void test_against_memmem(unsigned seed)
{
	cleanup_free uint8_t *text = malloc(TEXT_BYTES);
	struct search_string strings[STRINGS];
	unsigned long sum = 0, count = 0;
	struct err err = {0};
	uint64_t looked = 0;
	cleanup_fd int fd = -1;

	srand(seed);
	for (size_t i = 0; i < TEXT_BYTES; i++)
		text[i] = (uint8_t)(rand() % 4 ? 'a' + rand() % 2 : rand());
	for (size_t i = 0; i < STRINGS; i++) {
		size_t len = SEARCH_MIN + (size_t)rand() % (i % 10 ? 30 : SEARCH_MAX - SEARCH_MIN);
		/* also across the pieces in which a file is read, at its beginning and its end */
		size_t at = i % 7 == 0 ? (size_t)((1 << 20) - rand() % (int)len)
			: i == 1       ? 0
			: i == 2       ? TEXT_BYTES - len
				       : (size_t)rand() % (TEXT_BYTES - len);

		strings[i] = (struct search_string){text + at, len};
		for (const uint8_t *p = text;
			(p = memmem(p, TEXT_BYTES - (size_t)(p - text), text + at, len)); p++) {
			count++;
			sum += i * 1000003UL + (unsigned long)(p - text) * 7;
		}
	}
	fd = memory_file(text, TEXT_BYTES);
	count_found = sum_found = 0;
	cleanup_search struct search *s = search_new(strings, STRINGS);

	is_int(search_fd(s, fd, TEXT_BYTES, "the text", count_hit, NULL, &looked, &err), 0,
		"a search (seed %u)", seed);
	is_int((int64_t)count_found, (int64_t)count, "finds what memmem finds");
	is_int((int64_t)sum_found, (int64_t)sum, "where it is");
	is_int((int64_t)looked, TEXT_BYTES, "a search has read all of its file");
}

static void test_ends_and_holes(void)
{
	static const char needle[] = "needle-of-text";
	const struct search_string one = {needle, sizeof(needle) - 1};
	cleanup_search struct search *s = search_new(&one, 1), *none = search_new(NULL, 0);
	cleanup_fd int fd = memory_file("", 0);
	uint64_t looked = 0, whole = 1ULL << 36;
	struct err err = {0};
	int calls = 0;

	if (ftruncate(fd, (off_t)whole) || file_pwrite_full(fd, needle, one.len, 1 << 30) ||
		file_pwrite_full(fd, needle, one.len, (off_t)(whole - one.len)))
		abort();
	count_found = 0;
	is_int(search_fd(s, fd, whole, "the file", count_hit, NULL, &looked, &err), 0,
		"a file that is nearly all hole is searched");
	is_int((int64_t)count_found, 2, "two strings in a file that is nearly all hole are found");
	ok(looked < 1 << 24, "the holes of a file are not read");
	count_found = 0;
	search_fd(s, fd, whole - 1, "the file", count_hit, NULL, NULL, &err);
	is_int((int64_t)count_found, 1, "what lies behind the bytes asked for is not found");
	is_int(search_fd(s, fd, whole, "the file", stop_at_once, &calls, NULL, &err), 42,
		"what the callback returns ends the search");
	is_int(calls, 1, "at the first hit");
	is_int(search_fd(none, fd, whole, "the file", count_hit, NULL, &looked, &err), 0,
		"a search without strings finds nothing");
	is_int((int64_t)looked, 0, "a search without strings reads nothing");
	has_str((search_fd(s, -1, 10, "that file", count_hit, NULL, NULL, &err), err.text),
		"search that file", "a file that cannot be read is an error with its name");
}

/* ---- what was lent ------------------------------------------------------------------------- */

/* Does a search for @l find anything in @text? */
static bool found_in(const struct lent *l, const char *text)
{
	cleanup_free struct search_string *strings = NULL;
	cleanup_search struct search *s = lent_search(l, &strings);
	cleanup_fd int fd = memory_file(text, strlen(text));
	int calls = 0;

	search_fd(s, fd, strlen(text), "text", stop_at_once, &calls, NULL, NULL);
	return calls;
}

static void test_secrets(void)
{
	cleanup_lent struct lent l = {0};
	char line[] = "it is 0123456789abcdef0123456789ABCDEFtail, or short-it";

	is_int(lent_add_secret(&l, "short", "short", 5), -EINVAL, "five bytes are no secret");
	is_int(lent_add_secret(&l, "a secret", "short-it", 8), 0, "eight are one");
	is_int(lent_add_secret(&l, "long", "0123456789abcdef0123456789ABCDEFtail", 36), 0,
		"thirty-six are one");
	ok(found_in(&l, "xxshort-itxx"), "the short one is found");
	ok(!found_in(&l, "xxshort-i"), "no part of the short string is found");
	ok(found_in(&l, "0123456789abcdef0123"), "the first part of the long one is found");
	ok(found_in(&l, "....456789ABCDEFtail"), "the end of the long string is found");
	lent_mask(&l, line, strlen(line));
	is_str(line, "it is ************************************, or ********",
		"both strings are masked in a text");
}

/* The lines around a private key are in every program that reads them. */
static void test_known_pieces(void)
{
	static const char key[] = "-----BEGIN OPENSSH PRIVATE KEY-----0123456789abcdef0123456789";
	cleanup_lent struct lent l = {0}, whole = {0};
	cleanup_fd int known = memory_file("(-----BEGIN OPENSSH PRIVATE KEY-----)", 38);
	cleanup_fd int all = memory_file(key, strlen(key));
	struct err err = {0};

	lent_add_secret(&l, "key", key, strlen(key));
	lent_drop_known(&l, known, 38, "the disk", &err);
	ok(!found_in(&l, "-----BEGIN OPENSSH PRIVATE KEY-----"),
		"what is known is no sign of a secret");
	ok(found_in(&l, "-0123456789abcdef0123456789"), "the rest is");
	lent_add_secret(&whole, "key", key, strlen(key));
	lent_drop_known(&whole, all, strlen(key), "the disk", &err);
	is_int((int64_t)whole.n, 4, "a secret that the disk has is looked for nevertheless");
}

static void test_urls(void)
{
	cleanup_lent struct lent l = {0}, token = {0};

	lent_add_url(&l, "pip", "https://alice:p%40ss@index.example.org:8443/simple");
	ok(found_in(&l, "x https://index.example.org:8443/other"), "a URL's host is found");
	ok(found_in(&l, "://alice:p%40ss@"), "a short password, with its user");
	ok(found_in(&l, "alice:p@ss"), "the same, decoded");
	ok(found_in(&l, "Authorization: Basic YWxpY2U6cEBzcw=="), "the same, as HTTP sends it");
	ok(!found_in(&l, "https://example.org/simple"),
		"nothing else than what was lent is listed");
	lent_add_url(&token, "pip", "https://token-0123456789@ab.c/simple");
	ok(found_in(&token, "token-0123456789"), "a token alone");
	ok(found_in(&token, "https://ab.c/"), "a short host");
	lent_add_url(&token, "pip", "/a/directory");
	for (size_t i = 0; i < l.n; i++)
		ok(!strstr(l.pieces[i].label, "alice") && !strstr(l.pieces[i].label, "example"),
			"a label does not tell (%s)", l.pieces[i].label);
}

static void test_lines(void)
{
	static const char bundle[] = "# an authority of our own\n-----BEGIN CERTIFICATE-----\n"
				     "MIIBszCCAVmgAwIBAgIUPrivate+Line+One\r\nMIIDdzCCAl+gAwIBAgIE"
				     "PublicLineOne\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nshort\n"
				     "# an authority of our own";
	cleanup_lent struct lent l = {0};
	cleanup_fd int known = memory_file("…MIIDdzCCAl+gAwIBAgIEPublicLineOne…", 40);
	struct err err = {0};

	lent_add_lines(&l, "a line", bundle, sizeof(bundle) - 1);
	is_int((int64_t)l.n, 3,
		"of a bundle's six lines three are looked for, one of them twice there");
	ok(found_in(&l, "MIIDdzCCAl+gAwIBAgIEPublicLineOne"), "a public line is among them");
	is_int(lent_drop_known(&l, known, 40, "the disk", &err), 0, "until the disk is seen");
	ok(!found_in(&l, "MIIDdzCCAl+gAwIBAgIEPublicLineOne"),
		"a value that the disk has anyway is not searched for");
	ok(found_in(&l, "MIIBszCCAVmgAwIBAgIUPrivate+Line+One\n"), "the others stay");
}

/* ---- places -------------------------------------------------------------------------------- */

static int make_image(const char *name, uint64_t *ret_offset)
{
	static const char big[300000] = "some bytes";
	struct ext4_options opt = {.bytes = 32 << 20, .time = 1, .label = "test"};
	struct ext4_meta file = {.mode = S_IFREG | 0644}, folder = {.mode = S_IFDIR | 0755};
	int fd = image_file(name);
	struct ext4 *fs = NULL;
	struct err err = {0};
	cleanup_free char *blocks = NULL;

	if (ext4_create(fd, &opt, &fs, &err) || ext4_add_dir(fs, "/etc", &folder, &err) ||
		ext4_file_begin(fs, "/etc/with-a-name", &file, &err) ||
		ext4_file_write(fs, 8192, "canary-in-a-file", 16, &err) ||
		ext4_file_write(fs, 12288, big, sizeof(big), &err) ||
		ext4_file_end(fs, 400000, &err) || ext4_finish(fs, NULL, &err))
		ok(0, "an image: %s", err.text);
	blocks = run(NULL, "grep -abo canary-in-a-file %s/%s | cut -d: -f1", dir, name);
	*ret_offset = strtoull(blocks, NULL, 10);
	return fd;
}

static void is_owner(int fd, uint64_t offset, const char *want)
{
	cleanup_free char *owner = NULL;
	struct err err = {0};

	is_int(ext4_owner(fd, offset, &owner, &err), 0, "the owner of 0x%llx: %s",
		(unsigned long long)offset, err.text);
	is_str(owner, want, "is %s", want);
}

static void test_owner(void)
{
	uint64_t offset;
	cleanup_fd int fd = make_image("owner", &offset), none = memory_file("nothing", 7);
	struct err err = {0};
	char *owner = NULL;

	is_owner(fd, offset + 3, "/etc/with-a-name");
	is_owner(fd, 0, "the file system's own tables");
	is_owner(fd, (32 << 20) - 4096, "a free block, of a file that was removed");
	is_int(ext4_owner(fd, 32 << 20, &owner, &err), -EBADMSG, "a block behind the end has none");
	is_int(ext4_owner(none, 0, &owner, &err), -EBADMSG,
		"a byte of what is no file system has no owner");
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void test_snapshot(void)
{
	uint64_t offset;
	cleanup_fd int disk = make_image("disk", &offset), memory = memory_file("", 0);
	cleanup_fd int delta = memory_file("", 0);
	struct snapshot_range range = {offset & ~4095ULL, 4096};
	struct snapshot_ranges ranges = {&range, 1};
	cleanup_lent struct lent l = {0};
	struct err err = {0};
	json_t *searched = NULL;
	struct scan_spec spec = {.lent = &l,
		.memory_fd = memory,
		.memory_bytes = 5ULL << 30,
		.state_fd = -1,
		.disk_fd = disk,
		.disk_bytes = 32 << 20,
		.delta_fd = delta,
		.delta_bytes = 4096,
		.delta = &ranges,
		.scratch_dir = dir};

	if (ftruncate(memory, 5LL << 30) || ftruncate(delta, 4096))
		abort();
	is_int(scan_snapshot(&spec, &searched, &err), 0, "a bake without loans has an empty list");
	ok(!searched, "a bake without loans has nothing searched");
	lent_add_secret(&l, "the secret A", "canary-a-12345", 14);
	lent_add_secret(&l, "the secret B", "canary-b-12345", 14);
	is_int(scan_snapshot(&spec, &searched, &err), 0, "a snapshot without them is good");
	ok(json_integer_value(json_object_get(searched, "pieces")) == 2,
		"a scan says of how many values it found none");
	json_decref(searched);
	if (file_pwrite_full(memory, "canary-a-12345", 14, 3LL << 30) ||
		file_pwrite_full(delta, "canary-b-12345", 14, 100))
		abort();
	is_int(scan_snapshot(&spec, &searched, &err), -EPERM,
		"a snapshot with a value that was lent is refused");
	has_str(err.text, "the secret A, in memory, at guest-physical address 0x100000000\n",
		"the address in memory is the guest's");
	has_str(err.text, ": /etc/with-a-name\n", "the file on the disk is named");
	ok(!strstr(err.text, "canary-"), "neither canary is shown");
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	for (unsigned seed = 1; seed <= 3; seed++)
		test_against_memmem(seed);
	test_ends_and_holes();
	test_secrets();
	test_known_pieces();
	test_urls();
	test_lines();
	test_owner();
	test_snapshot();
	free(run(NULL, "rm -rf %s", dir));
	return tap_done();
}
