/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of captures that need no machine: device state put together, disk deltas merged, capture.json,
 * sparse copies, and what a collection of garbage keeps.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/str.h"
#include "restore/checkpoint_private.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/tap.h"
#include "vmm/disk_delta.h"
#include "vmm/machine.h"
#include "vmm/qemu/state_private.h"

static struct err err;

/* ---- device state --------------------------------------------------------------------------- */

struct stream {
	uint8_t bytes[64 * 1024];
	size_t len;
};

static void put(struct stream *s, const void *bytes, size_t len)
{
	memcpy(s->bytes + s->len, bytes, len);
	s->len += len;
}

static void put_number(struct stream *s, uint64_t value, size_t bytes)
{
	for (size_t i = bytes; i-- > 0;) {
		uint8_t byte = (uint8_t)(value >> 8 * i);

		put(s, &byte, 1);
	}
}

static void put_text(struct stream *s, const char *text, size_t bytes)
{
	put_number(s, strlen(text), bytes);
	put(s, text, strlen(text));
}

/* As QEMU 7.2 writes it with x-ignore-shared: one page of firmware, one of zeros, then a device. */
static size_t make_state(struct stream *s)
{
	static const uint8_t page[4096] = {0x55, 4, 0x7e};
	size_t prefix;

	s->len = 0;
	put(s, "QEVM\0\0\0\3", 8);
	put_number(s, 7, 1);
	put_text(s, "microvm", 4);
	put_number(s, 5, 1);
	put_text(s, "configuration/capabilities", 1);
	put_number(s, 1, 4);
	put_number(s, 1, 4);
	put_text(s, "x-ignore-shared", 1);
	put_number(s, 1, 1); /* a section begins: ram */
	put_number(s, 1, 4);
	put_text(s, "ram", 1);
	put_number(s, 0, 4);
	put_number(s, 4, 4);
	put_number(s, 0x10002000 | 4, 8);
	put_text(s, "mem", 1);
	put_number(s, 0x10000000, 8);
	put_number(s, 0, 8);
	put_text(s, "pc.bios", 1);
	put_number(s, 0x2000, 8);
	put_number(s, 0xfffe0000, 8);
	put_number(s, 0x10, 8);
	put(s, "\x7e\0\0\0\1", 5);
	put_number(s, 2, 1); /* goes on */
	put_number(s, 1, 4);
	put_number(s, 0x08, 8);
	put_text(s, "pc.bios", 1);
	put(s, page, sizeof(page));
	put_number(s, 0x1000 | 0x22, 8);
	put_number(s, 0, 1);
	put_number(s, 0x10, 8);
	put(s, "\x7e\0\0\0\1", 5);
	put_number(s, 3, 1); /* ends */
	put_number(s, 1, 4);
	put_number(s, 0x10, 8);
	put(s, "\x7e\0\0\0\1", 5);
	prefix = s->len;
	put_number(s, 4, 1);
	put(s, "device\x7e\0\0\0\2\0", 12);
	return prefix;
}

static void test_prefix(void)
{
	static struct stream s, cut;
	size_t want = make_state(&s), got = 0, taken = 0, changed = 0;

	is_int(qemu_state_prefix(s.bytes, s.len, &got, &err), 0, "a device state's beginning");
	is_int(got, want, "a state's beginning is what lies before its devices");
	/* no read past the end, whatever is missing: the sanitizers see to that */
	for (size_t len = 0; len <= want; len++) {
		uint8_t *copy = malloc(len ?: 1);

		memcpy(copy, s.bytes, len);
		taken += qemu_state_prefix(copy, len, &got, &err) == 0;
		free(copy);
	}
	is_int(taken, 0, "a device state that is cut anywhere is refused");
	has_str(err.text, "cut short", "the error says that a device state is cut");
	for (size_t at = 0; at < want; at++) {
		memcpy(&cut, &s, sizeof(s));
		cut.bytes[at] ^= 0x40;
		if (qemu_state_prefix(cut.bytes, cut.len, &got, &err) == 0) {
			taken++;
			changed += got != want;
		}
	}
	is_int(changed, 0, "no changed byte makes it end elsewhere");
	printf("# %zu of %zu changed bytes are names, addresses and firmware\n", taken, want);
	make_state(&s);
	s.bytes[want] = 0; /* the end instead of the first device */
	is_int(qemu_state_prefix(s.bytes, s.len, &got, &err), -EBADMSG, "no device");
}

static void test_devices(void)
{
	static const uint8_t good[] = "QEVM\0\0\0\3\4some device\x7e\0\0\0\2";
	size_t at = 0, len = sizeof(good); /* with the NUL, which is the end's mark */

	is_int(qemu_state_devices(good, len, &at, &err), 0, "saved devices");
	is_int(at, 8, "begin behind the header");
	is_int(qemu_state_devices(good, len - 1, &at, &err), -EBADMSG,
		"saved devices without an end are refused");
	is_int(qemu_state_devices(good, 9, &at, &err), -EBADMSG,
		"saved devices with nothing but a beginning are refused");
	is_int(qemu_state_devices(good, 0, &at, &err), -EBADMSG,
		"saved devices of no bytes are refused");
	is_int(qemu_state_devices(good + 1, len - 1, &at, &err), -EBADMSG, "no header");
}

/* ---- deltas ---------------------------------------------------------------------------------- */

#define DISK 4096u

/* A delta of random ranges with @fill for data (0: zeros), and what it does to @disk. */
static int random_delta(unsigned *seed, uint8_t fill, uint8_t *disk, struct snapshot_range *ranges,
	struct snapshot_ranges *ret)
{
	int fd = memfd_create("delta", MFD_CLOEXEC);
	uint64_t at = 0;
	size_t n = 0;

	for (unsigned o = (unsigned)rand_r(seed) % 400; o < DISK;
		o += 1 + (unsigned)rand_r(seed) % 300) {
		unsigned len = 1 + (unsigned)rand_r(seed) % 300;

		if (len > DISK - o)
			len = DISK - o;
		for (unsigned i = 0; i < len; i++) {
			uint8_t byte = rand_r(seed) % 4 ? (uint8_t)(fill + i % 3) : 0;

			disk[o + i] = byte;
			if (pwrite(fd, &byte, 1, (off_t)(at + i)) != 1)
				abort();
		}
		at += len;
		ranges[n++] = (struct snapshot_range){o, len};
		o += len;
	}
	*ret = (struct snapshot_ranges){ranges, n};
	return fd;
}

static void test_merge(void)
{
	unsigned seed = 7, bad = 0, unsorted = 0;

	for (int round = 0; round < 500; round++) {
		static struct snapshot_range a[DISK], b[DISK];
		uint8_t want[DISK], got[DISK], touched[DISK] = {0}, found[DISK] = {0};
		struct snapshot_ranges under, over, both = {0};
		uint64_t bytes = 0, at = 0;
		int fd = memfd_create("both", MFD_CLOEXEC), under_fd, over_fd;

		memset(want, 0xee, DISK);
		memset(got, 0xee, DISK);
		under_fd = random_delta(&seed, 0x10, want, a, &under);
		over_fd = random_delta(&seed, 0x80, want, b, &over);
		if (disk_delta_merge(&under, under_fd, &over, over_fd, fd, &both, &bytes, &err) < 0)
			bad++;
		for (size_t i = 0; i < under.n; i++)
			memset(touched + under.ranges[i].offset, 1, under.ranges[i].bytes);
		for (size_t i = 0; i < over.n; i++)
			memset(touched + over.ranges[i].offset, 1, over.ranges[i].bytes);
		for (size_t i = 0; i < both.n; i++) {
			const struct snapshot_range *r = &both.ranges[i];

			unsorted += i &&
				r->offset <= both.ranges[i - 1].offset + both.ranges[i - 1].bytes;
			bad += pread(fd, got + r->offset, r->bytes, (off_t)at) != (ssize_t)r->bytes;
			memset(found + r->offset, 1, r->bytes);
			at += r->bytes;
		}
		bad += at != bytes || memcmp(touched, found, DISK) != 0 ||
			memcmp(want, got, DISK) != 0;
		snapshot_ranges_clear(&both);
		close(fd);
		close(under_fd);
		close(over_fd);
	}
	is_int(bad, 0, "500 merged deltas write what the two wrote, one after the other");
	is_int(unsorted, 0, "in ranges that rise and do not meet");
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int stop(void *user)
{
	(void)user;
	return -ETIMEDOUT;
}

static void test_copy(const char *dir)
{
	int from = file_scratch(dir, &err), to = file_scratch(dir, &err);
	char a[3] = "", b[3] = "";
	struct stat st;

	if (from < 0 || to < 0 || pwrite(from, "abc", 3, 0) != 3 ||
		pwrite(from, "xyz", 3, 40 << 20) != 3 || ftruncate(from, 64 << 20) < 0 ||
		ftruncate(to, 64 << 20) < 0)
		abort();
	is_int(file_copy_sparse(from, to, 64 << 20, stop, NULL), -ETIMEDOUT,
		"a copy is ended when asked");
	is_int(file_copy_sparse(from, to, 64 << 20, NULL, NULL), 0, "a sparse file is copied");
	ok(pread(to, a, 3, 0) == 3 && pread(to, b, 3, 40 << 20) == 3 && memcmp(a, "abc", 3) == 0 &&
			memcmp(b, "xyz", 3) == 0,
		"the copy of a sparse file has its data");
	ok(fstat(to, &st) == 0 && st.st_blocks * 512 < 1 << 20,
		"the copy of a sparse file has its holes");
	close(from);
	close(to);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define MEMORY (16 * MIB)
#define PAGES (MEMORY / IMAGE_PAGE)

/* This process is the machine: it maps the template's memory privately and writes to it. */
static void check_take(
	const char *map, int template_fd, struct image *img, size_t max_ranges, const char *what)
{
	struct machine m = {.proc.pid = getpid()};
	struct snapshot_ranges none = {0}, got = {0};
	struct stat st;
	struct checkpoint_memory take = {.machine = &m,
		.file = &st,
		.bytes = MEMORY,
		.image = img,
		.template_fd = template_fd,
		.own = &none,
		.max_ranges = max_ranges,
		.deadline = clock_deadline(60000)};
	int fd = memfd_create("raw", MFD_CLOEXEC), out = memfd_create("image", MFD_CLOEXEC);
	int whole = memfd_create("whole", MFD_CLOEXEC);
	cleanup_memory_delta struct memory_delta *d = NULL;
	struct image_stats stats;
	struct stat raw;
	char *again;

	fstat(template_fd, &st);
	is_int(checkpoint_memory_take(&take, fd, &got, &err), 0, "%s: the difference is taken",
		what);
	ok(got.n > 0 && got.n <= max_ranges, "in %zu ranges", got.n);
	if (fstat(fd, &raw) < 0 || ftruncate(whole, MEMORY) < 0 ||
		image_write(fd, (uint64_t)raw.st_size, NULL, out, NULL, &stats, &err) < 0 ||
		memory_delta_open(out, &got, MEMORY, &d, &err) < 0 ||
		file_copy_sparse(template_fd, whole, MEMORY, NULL, NULL) < 0 ||
		memory_delta_apply(d, whole, &err) < 0)
		abort();
	again = mmap(NULL, MEMORY, PROT_READ, MAP_PRIVATE, whole, 0);
	ok(memcmp(map, again, MEMORY) == 0, "put over the template it is the machine's memory");
	munmap(again, MEMORY);
	snapshot_ranges_clear(&got);
	close(fd);
	close(out);
	close(whole);
}

static void test_memory(void)
{
	int fd = memfd_create("template", MFD_CLOEXEC), out = memfd_create("image", MFD_CLOEXEC);
	struct image_stats stats;
	cleanup_image struct image *img = NULL;
	unsigned seed = 3;
	char *map;

	if (ftruncate(fd, MEMORY) < 0)
		abort();
	for (size_t page = 0; page < PAGES; page++) {
		char text[64];

		snprintf(text, sizeof(text), "page %zu of the template", page);
		if (page % 3 && pwrite(fd, text, sizeof(text), (off_t)(page * IMAGE_PAGE)) != 64)
			abort();
	}
	map = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (image_write(fd, MEMORY, NULL, out, NULL, &stats, &err) < 0 ||
		image_open(out, &img, &err) < 0 || map == MAP_FAILED)
		abort();
	map[5 * IMAGE_PAGE] = 'x';
	memset(map + 7 * IMAGE_PAGE, 0, IMAGE_PAGE); /* zeros over data, … */
	memset(map + 9 * IMAGE_PAGE, 0, IMAGE_PAGE); /* … over zeros */
	check_take(map, fd, img, 1000, "two pages");
	for (size_t i = 0; i < 1500; i++) {
		size_t page = (size_t)rand_r(&seed) % PAGES;

		memset(map + page * IMAGE_PAGE, i % 4 ? (int)i : 0, IMAGE_PAGE);
	}
	check_take(map, fd, img, PAGES, "many pages");
	check_take(map, fd, img, 100, "more ranges than there may be");
	check_take(map, fd, img, 1, "all in one");
	munmap(map, MEMORY);
	close(fd);
	close(out);
}

/* ---- capture.json ------------------------------------------------------------------------------ */

static struct checkpoint_record sample(void)
{
	static struct snapshot_range ranges[] = {{4096, 8192}, {40960, 4096}};
	struct checkpoint_record r = {.name = "base",
		.tag = "latest",
		.memory_bytes = 128 * MIB,
		.disk_bytes = GIB,
		.ranges = {ranges, 2},
		.memory_raw = 12288,
		.disk_raw = 65536,
		.machine_id = "0123456789abcdef0123456789abcdef",
		.hostname = "web-1",
		.stopped_ns = 5000000,
		.created = 1800000000};

	digest_buffer("m", 1, r.manifest);
	r.memory.bytes = 100;
	r.disk.bytes = 262144;
	r.state.bytes = 40000;
	digest_buffer("a", 1, r.memory.digest);
	digest_buffer("b", 1, r.disk.digest);
	digest_buffer("c", 1, r.state.digest);
	return r;
}

static void bad_record(struct checkpoint_record r, const char *want)
{
	cleanup_free char *text = checkpoint_record_text(&r);
	struct checkpoint_record got;

	is_int(checkpoint_record_parse(text, strlen(text), &got, &err), -EBADMSG, "refused: %s",
		want);
	has_str(err.text, want, "the error has the reason");
}

static void test_record(void)
{
	struct checkpoint_record r = sample(), got, bad;
	cleanup_free char *text = checkpoint_record_text(&r);
	size_t len = strlen(text), taken = 0;

	is_int(checkpoint_record_parse(text, len, &got, &err), 0, "a record is read");
	ok(strcmp(got.manifest, r.manifest) == 0 && got.memory_bytes == r.memory_bytes &&
			got.disk_bytes == r.disk_bytes && got.ranges.n == 2 &&
			got.ranges.ranges[1].offset == 40960 && got.memory.bytes == 100 &&
			strcmp(got.state.digest, r.state.digest) == 0 && got.disk_raw == 65536 &&
			strcmp(got.machine_id, r.machine_id) == 0 &&
			strcmp(got.hostname, "web-1") == 0 && got.stopped_ns == 5000000 &&
			got.created == 1800000000,
		"a record is read as it was written");
	checkpoint_record_clear(&got);
	for (size_t i = 0; i < len; i++) {
		text[i] ^= 1;
		if (checkpoint_record_parse(text, len, &got, &err) == 0) {
			taken++;
			checkpoint_record_clear(&got);
		}
		text[i] ^= 1;
	}
	is_int(taken, 0, "not with any byte changed");
	is_int(checkpoint_record_parse("{}", 2, &got, &err), -EBADMSG,
		"an empty record is refused");
	bad = sample();
	bad.memory_bytes = 1;
	bad_record(bad, "memory_bytes");
	bad = sample();
	bad.ranges.ranges = (struct snapshot_range[]){{128 * MIB, 4096}, {0, 4096}};
	bad_record(bad, "range 0");
	bad = sample();
	snprintf(bad.machine_id, sizeof(bad.machine_id), "me");
	bad_record(bad, "machine_id");
	bad = sample();
	snprintf(bad.hostname, sizeof(bad.hostname), "a\033[2Jb");
	bad_record(bad, "hostname");
	bad = sample();
	snprintf(bad.manifest, sizeof(bad.manifest), "../../etc/passwd");
	bad_record(bad, "manifest");
	bad = sample();
	bad.state.bytes = LIMIT_STATE_BYTES + 1;
	bad_record(bad, "state");
}

/* ---- what gc keeps ------------------------------------------------------------------------------ */

static void make_capture(struct store *s, const char *dir, const char *manifest, int want)
{
	struct checkpoint_record r = sample();
	cleanup_free char *text = NULL;

	snprintf(r.manifest, sizeof(r.manifest), "%s", manifest);
	text = checkpoint_record_text(&r);
	mkdir(dir, 0700);
	is_int(store_capture_publish(s, dir, manifest, text, strlen(text), &err), want,
		"a capture of a template that is %s", want ? "gone" : "there");
}

static void test_gc(const char *home)
{
	cleanup_free char *stores = str_printf("%s/s", home), *at = str_printf("%s/paused", home);
	cleanup_free char *one = str_printf("%s/one", at), *two = str_printf("%s/two", at);
	cleanup_free char *junk = str_printf("%s/junk", at);
	cleanup_store struct store *s = NULL;
	struct store_manifest m = {0};
	unsigned blobs = 0;
	uint64_t bytes;

	if (store_open(stores, true, &s, &err) < 0 ||
		fixture_publish(s, "tiny", NULL, 1, &m, &err) < 0) {
		ok(false, "a store with a template: %s", err.text);
		return;
	}
	mkdir(at, 0700);
	make_capture(s, one, m.digest, 0);
	is_int(store_remove(s, "tiny", &err), 0, "the template loses its name");
	is_int(store_gc(s, 0, false, &blobs, &bytes, &err), 0, "garbage is collected");
	is_int(store_manifest_whole(s, m.digest, &err), 0,
		"a collection of garbage keeps all that a capture needs");
	is_int(rename(one, two), 0, "the capture is renamed");
	mkdir(junk, 0700);
	is_int(file_publish(junk, STORE_CAPTURE_FILE, "{", 1, 0600, &err), 0,
		"a damaged one lies beside it");
	is_int(store_gc(s, 0, false, &blobs, &bytes, &err), 0, "collected again");
	is_int(store_manifest_whole(s, m.digest, &err), 0,
		"a second collection of garbage keeps what a capture needs");
	is_int(file_remove_tree(AT_FDCWD, two, &err), 0, "the capture is removed");
	is_int(store_gc(s, 0, false, &blobs, &bytes, &err), 0,
		"garbage is collected when the capture is removed");
	ok(blobs > 1, "%u blobs went", blobs);
	is_int(store_manifest_whole(s, m.digest, &err), -ENOENT, "the template among them");
	has_str(err.text, "is not in", "the error says that the template is gone");
	make_capture(s, one, m.digest, -ENOENT);
	ok(access(one, F_OK) == 0 && file_remove_tree(AT_FDCWD, at, &err) == 0,
		"captures' directory is removed");
	is_int(store_gc(s, 0, false, &blobs, &bytes, &err), 0, "which is nothing to gc");
	store_manifest_clear(&m);
}

int main(void)
{
	char home[] = "/tmp/parbake-capture-XXXXXX";

	if (!mkdtemp(home))
		return 1;
	test_prefix();
	test_devices();
	test_merge();
	test_copy(home);
	test_memory();
	test_record();
	test_gc(home);
	file_remove_tree(AT_FDCWD, home, &err);
	return tap_done();
}
