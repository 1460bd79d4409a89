/* SPDX-License-Identifier: Apache-2.0 */
/* The ext4 writer, judged by e2fsck, debugfs and, where a loop mount is allowed, the kernel. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bake/ext4/ext4.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "tests/unit/ext4_images.h"

#define BIG 20000
#define LONG_NAMES 7000
#define STAMP 1700000000

static const struct ext4_options options = {
	.bytes = 256 * MIB,
	.inodes = 40000,
	.time = STAMP,
	.uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	.hash_seed = {9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
	.label = "parbake",
};

static struct ext4_meta meta(mode_t mode)
{
	return (struct ext4_meta){.mode = mode, .mtime_s = STAMP - 1000};
}

#define MUST(call)                                                                                 \
	do {                                                                                       \
		struct err must_text = {""}, *must = &must_text;                                   \
		int r_ = (call);                                                                   \
                                                                                                   \
		if (r_ != 0) {                                                                     \
			ok(0, "%s: %d %s", #call, r_, must->text);                                 \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void put_file(
	struct ext4 *fs, const char *path, const struct ext4_meta *m, const void *data, size_t len)
{
	MUST(ext4_file_begin(fs, path, m, must));
	MUST(ext4_file_write(fs, 0, data, len, must));
	MUST(ext4_file_end(fs, len, must));
}

/* user::rw- user:1000:r-- group::r-- mask::r-- other::r--, as setxattr(2) takes it */
static const unsigned char acl[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xe8, 3,
	0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255,
	255, 255, 255};
/* cap_net_raw=ep, version 2 */
static const unsigned char cap[] = {1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

static void add_types(struct ext4 *fs)
{
	struct ext4_meta m = meta(S_IFREG | 04755);
	char target[4096], path[512];

	put_file(fs, "/etc/deep/er/hello", &m, "hello\n", 6);
	MUST(ext4_add_hardlink(fs, "/hello2", "/etc/deep/er/hello", must));
	MUST(ext4_add_hardlink(fs, "/hello3", "/hello2", must));
	MUST(ext4_add_hardlink(fs, "/hello3", "/hello2", must));
	m = meta(S_IFREG | 0600);
	m.uid = 70000, m.gid = 4000000000;
	m.mtime_s = 1LL << 33, m.mtime_ns = 123456789;
	put_file(fs, "/later", &m, "x", 1);
	m.mtime_s = -100, m.mtime_ns = 0;
	put_file(fs, "/earlier", &m, "", 0);
	m = meta(0);
	MUST(ext4_add_symlink(fs, "/fast", "etc/deep", &m, must));
	memset(target, 't', sizeof(target));
	target[59] = 0;
	MUST(ext4_add_symlink(fs, "/fast59", target, &m, must));
	target[59] = 't', target[60] = 0;
	MUST(ext4_add_symlink(fs, "/slow60", target, &m, must));
	target[60] = 't', target[4095] = 0;
	MUST(ext4_add_symlink(fs, "/slow4095", target, &m, must));
	m = meta(S_IFCHR | 0666);
	m.rdev_major = 1, m.rdev_minor = 3;
	MUST(ext4_add_node(fs, "/dev/null", &m, must));
	m = meta(S_IFBLK | 0660);
	m.rdev_major = 259, m.rdev_minor = 70000;
	MUST(ext4_add_node(fs, "/dev/nvme", &m, must));
	m = meta(S_IFIFO | 0640);
	MUST(ext4_add_node(fs, "/fifo", &m, must));
	m = meta(S_IFSOCK | 0640);
	MUST(ext4_add_node(fs, "/sock", &m, must));
	memset(path, 'n', sizeof(path));
	path[0] = '/', path[256] = 0;
	m = meta(S_IFREG | 0644);
	put_file(fs, path, &m, "long", 4);
	m = meta(S_IFDIR | 01777);
	MUST(ext4_add_dir(fs, "/tmp", &m, must));
	m.flags = 0x40;
	MUST(ext4_add_dir(fs, "/nodump/", &m, must));
}

static void add_xattrs(struct ext4 *fs)
{
	static char value[3000];
	struct ext4_xattr few[] = {{"security.capability", cap, sizeof(cap)},
		{"system.posix_acl_access", acl, sizeof(acl)}};
	struct ext4_xattr many[] = {{"user.z", value, sizeof(value)}, {"user.empty", "", 0},
		{"system.posix_acl_default", acl, sizeof(acl)}, {"trusted.t", "t", 1}};
	struct ext4_meta m = meta(S_IFREG | 0755);

	memset(value, 'v', sizeof(value));
	m.xattrs = few, m.n_xattrs = 2;
	put_file(fs, "/ping", &m, "ping", 4);
	m = meta(S_IFDIR | 0755);
	m.xattrs = many, m.n_xattrs = 4;
	MUST(ext4_add_dir(fs, "/attrs", &m, must));
	/* set anew: the old ones, and their block, are gone */
	MUST(ext4_add_dir(fs, "/attrs2", &m, must));
	m.xattrs = few, m.n_xattrs = 1;
	MUST(ext4_add_dir(fs, "/attrs2", &m, must));
}

static void add_data(struct ext4 *fs)
{
	struct ext4_meta m = meta(S_IFREG | 0644);
	cleanup_free char *data = malloc(3 * MIB + 17);

	for (size_t i = 0; i < 3 * MIB + 17; i++)
		data[i] = (char)(i * 2654435761U >> 13);
	put_file(fs, "/data", &m, data, 3 * MIB + 17);
	/* the same in odd pieces */
	MUST(ext4_file_begin(fs, "/pieces", &m, must));
	for (size_t at = 0, step = 1; at < 3 * MIB + 17; at += step, step = step * 3 % 70001 + 1) {
		if (step > 3 * MIB + 17 - at)
			step = 3 * MIB + 17 - at;
		MUST(ext4_file_write(fs, at, data + at, step, must));
	}
	MUST(ext4_file_end(fs, 3 * MIB + 17, must));
	/* 6 GiB with three islands */
	MUST(ext4_file_begin(fs, "/sparse", &m, must));
	MUST(ext4_file_write(fs, 5, "five", 4, must));
	MUST(ext4_file_write(fs, 4096 + 100, "near", 4, must));
	MUST(ext4_file_write(fs, 5 * GIB + 7, "far", 3, must));
	MUST(ext4_file_end(fs, 6 * GIB, must));
	/* every other block: 3,000 extents, a tree of two levels */
	MUST(ext4_file_begin(fs, "/comb", &m, must));
	for (uint64_t i = 0; i < 3000; i++)
		MUST(ext4_file_write(fs, i * 8192, data + i, 4096, must));
	MUST(ext4_file_end(fs, 3000 * 8192, must));
}

static void add_large_dirs(struct ext4 *fs)
{
	struct ext4_meta m = meta(S_IFREG | 0644);
	char path[512];

	for (int i = 0; i < BIG; i++) {
		snprintf(path, sizeof(path), "/big/file-%d", i);
		MUST(ext4_file_begin(fs, path, &m, must));
		MUST(ext4_file_end(fs, 0, must));
	}
	/* two levels of index: links, so that it takes no inodes */
	for (int i = 0; i < LONG_NAMES; i++) {
		snprintf(path, sizeof(path), "/long/%0255d", i);
		MUST(ext4_add_hardlink(fs, path, "/fifo", must));
	}
}

static void add_replaced(struct ext4 *fs)
{
	struct ext4_meta m = meta(S_IFREG | 0644), d = meta(S_IFDIR | 0755);

	put_file(fs, "/again", &m, "first", 5);
	put_file(fs, "/again", &m, "second", 6);
	MUST(ext4_add_symlink(fs, "/was-link", "etc", &m, must));
	put_file(fs, "/was-link", &m, "file", 4);
	put_file(fs, "/was-file", &m, "file", 4);
	MUST(ext4_add_dir(fs, "/was-file", &d, must));
	MUST(ext4_add_dir(fs, "/was-dir", &d, must));
	put_file(fs, "/was-dir", &m, "file", 4);
	d.mode = S_IFDIR | 0711, d.uid = 12;
	MUST(ext4_add_dir(fs, "/", &d, must));
}

static void build(const char *name, struct ext4_stats *ret)
{
	cleanup_fd int fd = image_file(name);
	struct ext4 *fs;

	MUST(ext4_create(fd, &options, &fs, must));
	add_types(fs);
	add_xattrs(fs);
	add_data(fs);
	add_replaced(fs);
	add_large_dirs(fs);
	MUST(ext4_finish(fs, ret, must));
}

static void image_digest(const char *name, char ret[static DIGEST_TEXT_SIZE])
{
	cleanup_fd int fd = image_file(name);
	struct err err;

	if (digest_fd(fd, ret, &err) < 0)
		abort();
}

static void test_whole(void)
{
	char a[DIGEST_TEXT_SIZE], b[DIGEST_TEXT_SIZE];
	struct ext4_stats stats;
	int64_t begin = clock_now_ns();
	struct stat st;

	build("a", &stats);
	printf("# %" PRIu64 " entries in %" PRId64 " ms\n", stats.entries,
		(clock_now_ns() - begin) / 1000000);
	is_clean("a");
	umask(0);
	setenv("TZ", "Asia/Tokyo", 1);
	setenv("LANG", "de_DE", 1);
	setenv("E2FSPROGS_FAKE_TIME", "12345", 1);
	if (chdir("/") < 0)
		abort();
	build("b", &stats);
	unsetenv("TZ");
	unsetenv("E2FSPROGS_FAKE_TIME");
	image_digest("a", a);
	image_digest("b", b);
	is_str(a, b, "the same bytes under another umask, zone, language, directory and clock");
	{
		cleanup_fd int fd = image_file("a");

		fstat(fd, &st);
	}
	is_int(st.st_size, 256 * MIB, "the image has its size");
	ok((uint64_t)st.st_blocks * 512 < 64 * MIB, "and is sparse on the host: %" PRId64 " bytes",
		(int64_t)st.st_blocks * 512);
}

static void test_debugfs(void)
{
	cleanup_free char *out = NULL;

	debugfs_has("a", "stats", "01020304-0506-0708-090a-0b0c0d0e0f10");
	debugfs_has("a", "stats", "Filesystem volume name:   parbake");
	debugfs_has("a", "stat /big", "Flags: 0x81000");
	debugfs_has("a", "htree_dump /big", "Indirect levels: 0");
	debugfs_has("a", "htree_dump /long", "Indirect levels: 1");
	debugfs_has("a", "stat /etc/deep/er/hello", "Links: 3");
	debugfs_has("a", "stat /etc/deep/er/hello", "Mode:  04755");
	debugfs_has("a", "stat /later", "User: 70000   Group: -294967296");
	debugfs_has("a", "stat /later", "Project:     0   Size: 1");
	debugfs_has("a", "stat /fast", "Fast link dest: \"etc/deep\"");
	debugfs_has("a", "stat /slow60", "Size: 60");
	debugfs_has("a", "stat /dev/null", "Device major/minor number: 01:03");
	debugfs_has("a", "stat /dev/nvme", "Device major/minor number: 259:70000");
	debugfs_has("a", "stat /lost+found", "Size: 16384");
	debugfs_has("a", "stat /sparse", "Size: 6442450944");
	debugfs_has("a", "stat /sparse", "Blockcount: 24");
	debugfs_has("a", "cat /again", "second");
	debugfs_has("a", "cat /was-link", "file");
	debugfs_has("a", "stat /was-file", "Type: directory");
	debugfs_has("a", "stat /nodump", "Flags: 0x80040");
	debugfs_has("a", "stat /", "Mode:  0711");
	debugfs_has("a", "ea_list /ping", "security.capability (20) = 01 00 00 02");
	debugfs_has("a", "ea_list /ping", "system.posix_acl_access");
	debugfs_has("a", "ea_list /attrs", "user.z (3000)");
	debugfs_has("a", "ea_list /attrs", "trusted.t");
	debugfs_has("a", "ea_list /attrs2", "security.capability");
	out = debugfs("a", "ea_list /attrs2");
	ok(!strstr(out, "user.z"), "a directory's old attributes are gone");
	free(steal_ptr(&out));
	out = run(NULL,
		"debugfs -R 'dump /data %s/data' %s/a 2>/dev/null; debugfs -R 'dump /pieces "
		"%s/pieces' %s/a 2>/dev/null; cmp %s/data %s/pieces && stat -c %%s %s/data",
		dir, dir, dir, dir, dir, dir, dir);
	is_str(out, "3145745\n", "a file written whole and in pieces");
}

static void check_xattr(const char *path, const char *name, const void *want, size_t len)
{
	char got[4096];
	ssize_t n = lgetxattr(path, name, got, sizeof(got));

	ok(n == (ssize_t)len && memcmp(got, want, len) == 0, "the kernel reads %s", name);
}

static void test_mount(void)
{
	cleanup_free char *at = str_printf("%s/mnt", dir), *out = NULL;
	char path[512], buf[16] = "";
	struct stat st;
	int status, found = 0;
	FILE *f;

	mkdir(at, 0755);
	out = run(&status, "mount -t ext4 -o ro,loop %s/a %s 2>&1", dir, at);
	if (status) {
		tap_skip("no loop mount of ext4 is allowed here");
		return;
	}
	for (int i = 0; i < BIG; i++) {
		snprintf(path, sizeof(path), "%s/big/file-%d", at, i);
		found += stat(path, &st) == 0;
	}
	is_int(found, BIG, "the kernel finds every name of the large directory");
	found = 0;
	for (int i = 0; i < LONG_NAMES; i++) {
		snprintf(path, sizeof(path), "%s/long/%0255d", at, i);
		found += lstat(path, &st) == 0;
	}
	is_int(found, LONG_NAMES, "each name in a directory with two levels of index is found");
	snprintf(path, sizeof(path), "%s/ping", at);
	check_xattr(path, "security.capability", cap, sizeof(cap));
	check_xattr(path, "system.posix_acl_access", acl, sizeof(acl));
	snprintf(path, sizeof(path), "%s/later", at);
	stat(path, &st);
	is_int(st.st_mtim.tv_sec, 1LL << 33, "a time beyond 2038");
	is_int(st.st_mtim.tv_nsec, 123456789, "with nanoseconds");
	is_int(st.st_gid, 4000000000, "a large group number");
	snprintf(path, sizeof(path), "%s/earlier", at);
	stat(path, &st);
	is_int(st.st_mtim.tv_sec, -100, "a time before 1970");
	snprintf(path, sizeof(path), "%s/dev/nvme", at);
	stat(path, &st);
	ok(st.st_rdev == makedev(259, 70000), "a device's numbers");
	snprintf(path, sizeof(path), "%s/sparse", at);
	f = fopen(path, "re");
	fseeko(f, 5 * GIB + 7, SEEK_SET);
	ok(fread(buf, 1, 3, f) == 3 && memcmp(buf, "far", 3) == 0, "data beyond 4 GiB");
	fclose(f);
	umount2(at, MNT_DETACH);
}

/* The kernel goes on where we left off: it splits full leaves and index blocks. */
static void test_written_on(void)
{
	cleanup_free char *at = str_printf("%s/mnt", dir), *out = NULL, *fifo = NULL;
	int status, made = 0;
	char path[512];

	out = run(&status, "mount -t ext4 -o rw,loop %s/b %s 2>&1", dir, at);
	if (status) {
		tap_skip("no loop mount of ext4 is allowed here");
		return;
	}
	fifo = str_printf("%s/fifo", at);
	for (int i = 0; i < 3000; i++) {
		snprintf(path, sizeof(path), "%s/big/more-%d", at, i);
		made += link(fifo, path) == 0;
		snprintf(path, sizeof(path), "%s/long/%0255d", at, LONG_NAMES + i);
		made += link(fifo, path) == 0;
	}
	is_int(made, 6000, "the kernel adds names to both indexed directories");
	for (int i = 0; i < BIG; i += 2) {
		snprintf(path, sizeof(path), "%s/big/file-%d", at, i);
		made -= unlink(path) == 0;
	}
	is_int(made, 6000 - BIG / 2, "names of a large directory are removed");
	umount2(at, 0);
	is_clean("b");
	debugfs_has("b", "stat /fifo", "Links: 13001");
}

static void expect(int r, int want, const struct err *err, const char *part, const char *what)
{
	is_int(r, want, "%s", what);
	has_str(err->text, part, "%s: %s", what, err->text);
}

static void test_refused(void)
{
	cleanup_fd int fd = image_file("refused");
	struct ext4_meta f = meta(S_IFREG | 0644), d = meta(S_IFDIR | 0755);
	struct ext4_xattr bad_name = {"weird.x", "", 0},
			  bad_acl = {"system.posix_acl_access", acl, 11};
	struct err err = {""};
	struct ext4 *fs;
	char path[5000];

	MUST(ext4_create(fd, &options, &fs, must));
	put_file(fs, "/dir/file", &f, "x", 1);
	MUST(ext4_add_symlink(fs, "/link", "dir", &f, must));
	expect(ext4_add_dir(fs, "/link/sub", &d, &err), -ENOTDIR, &err, "/link is not a directory",
		"through a link");
	expect(ext4_add_dir(fs, "/dir/file/sub", &d, &err), -ENOTDIR, &err, "/dir/file",
		"through a file");
	expect(ext4_add_dir(fs, "/dir/../x", &d, &err), -EINVAL, &err, "/dir/../x", "dot dot");
	expect(ext4_add_dir(fs, "x", &d, &err), -EINVAL, &err, "absolute", "a relative path");
	expect(ext4_add_symlink(fs, "/dir", "x", &f, &err), -EISDIR, &err, "/dir: a directory",
		"a link for a directory with entries");
	expect(ext4_add_symlink(fs, "/s", "", &f, &err), -EINVAL, &err, "/s", "an empty target");
	expect(ext4_add_hardlink(fs, "/h", "/nothing", &err), -ENOENT, &err,
		"/h: a hard link to /nothing", "a hard link to nothing");
	expect(ext4_add_hardlink(fs, "/h", "/dir", &err), -EPERM, &err, "/dir",
		"a hard link to a directory");
	expect(ext4_add_symlink(fs, "/lost+found", "x", &f, &err), -EBUSY, &err, "/lost+found",
		"a link in the place of lost+found");
	memset(path, 'n', 257);
	path[0] = '/', path[257] = 0;
	expect(ext4_add_dir(fs, path, &d, &err), -ENAMETOOLONG, &err, "256 bytes",
		"a name of 256 bytes");
	for (int i = 0; i < 200; i++)
		memcpy(path + 2 * i, "/d", 3);
	expect(ext4_add_dir(fs, path, &d, &err), -ENAMETOOLONG, &err, "deep",
		"200 directories deep");
	memset(path, '/', sizeof(path));
	path[sizeof(path) - 1] = 0;
	expect(ext4_add_dir(fs, path, &d, &err), -ENAMETOOLONG, &err, "path", "a long path");
	f.xattrs = &bad_name, f.n_xattrs = 1;
	expect(ext4_file_begin(fs, "/f", &f, &err), -EOPNOTSUPP, &err, "weird.x",
		"an unknown namespace");
	f.xattrs = &bad_acl;
	expect(ext4_file_begin(fs, "/f", &f, &err), -EINVAL, &err, "/f: system.posix_acl_access",
		"a cut access control list");
	f.n_xattrs = 0;
	MUST(ext4_file_begin(fs, "/f", &f, must));
	MUST(ext4_file_write(fs, 100, "abc", 3, must));
	expect(ext4_file_write(fs, 102, "abc", 3, &err), -EINVAL, &err, "/f",
		"data that goes back");
	expect(ext4_file_write(fs, UINT64_MAX - 1, "abc", 3, &err), -EFBIG, &err, "/f",
		"an offset of exabytes");
	expect(ext4_file_end(fs, 102, &err), -EINVAL, &err, "/f", "a size less than the data");
	expect(ext4_file_end(fs, UINT64_MAX, &err), -EFBIG, &err, "/f", "a size of exabytes");
	expect(ext4_add_dir(fs, "/new", &d, &err), -EBUSY, &err, "/f is still",
		"an entry while a file is open");
	MUST(ext4_file_end(fs, 103, must));
	MUST(ext4_finish(fs, NULL, must));
	is_clean("refused");
}

static uint64_t blocks_used(const struct ext4_stats *stats)
{
	return stats->blocks_used_bytes / 4096;
}

/* What is replaced leaves no block, no inode and no data behind. */
static void test_freed(void)
{
	struct ext4_meta m = meta(S_IFREG | 0644);
	cleanup_free char *data = malloc(8 * MIB);
	struct ext4_stats plain, freed;
	struct ext4_xattr big = {"user.x", data, 3500};
	struct ext4 *fs;

	memset(data, 'S', 8 * MIB);
	for (int pass = 0; pass < 2; pass++) {
		cleanup_fd int fd = image_file("freed");

		MUST(ext4_create(fd, &options, &fs, must));
		if (pass == 1) {
			m.xattrs = &big, m.n_xattrs = 1;
			put_file(fs, "/f", &m, data, 8 * MIB);
			m.n_xattrs = 0;
			MUST(ext4_file_begin(fs, "/comb", &m, must));
			for (uint64_t i = 0; i < 1000; i++)
				MUST(ext4_file_write(fs, i * 8192, data, 4096, must));
			MUST(ext4_file_end(fs, 1000 * 8192, must));
			MUST(ext4_add_hardlink(fs, "/comb2", "/comb", must));
		}
		MUST(ext4_add_symlink(fs, "/comb", "f", &m, must));
		MUST(ext4_add_symlink(fs, "/comb2", "f", &m, must));
		put_file(fs, "/f", &m, "small", 5);
		MUST(ext4_finish(fs, pass ? &freed : &plain, must));
	}
	is_int(blocks_used(&freed), blocks_used(&plain), "all blocks came back");
	is_int(freed.inodes_used, plain.inodes_used, "all inodes came back");
	is_clean("freed");
	{
		int status;
		cleanup_free char *out = run(&status, "grep -c SSSSSSSSSSSSSSSS %s/freed", dir);

		is_int(status, 1, "the old data is not in the image");
	}
}

static int fill(const char *name, uint64_t bytes, uint64_t inodes, int n_files, size_t each,
	struct err *err)
{
	cleanup_fd int fd = image_file(name);
	cleanup_free char *data = malloc(each + 1);
	struct ext4_options opt = options;
	struct ext4_meta m = meta(S_IFREG | 0644);
	struct ext4 *fs;
	char path[64];

	memset(data, 'd', each);
	opt.bytes = bytes;
	opt.inodes = inodes;
	MUST(ext4_create(fd, &opt, &fs, must));
	for (int i = 0; i < n_files; i++) {
		snprintf(path, sizeof(path), "/d%d/f%d", i % 10, i);
		put_file(fs, path, &m, data, each);
	}
	return ext4_finish(fs, NULL, err);
}

static void test_full(void)
{
	struct err err = {""};
	unsigned long long need;
	const char *p;

	is_int(fill("full", 16 * MIB, 0, 300, 100000, &err), -ENOSPC, "too small an image");
	printf("# %s\n", err.text);
	p = strstr(err.text, "at least ");
	ok(p && sscanf(p, "at least %llu MiB", &need) == 1 && need > 28 && need < 34,
		"says how large it should be");
	is_int(fill("full", need * MIB, 0, 300, 100000, &err), 0,
		"the size that the error asks for is enough");
	is_clean("full");
	is_int(fill("full", 16 * MIB, 128, 300, 10, &err), -ENOSPC, "too few inodes");
	printf("# %s\n", err.text);
	p = strstr(err.text, "at least ");
	ok(p && sscanf(p, "at least %llu inodes", &need) == 1 && need == 321, "says how many");
	is_int(fill("full", 16 * MIB, need, 300, 10, &err), 0,
		"the inodes that the error asks for are enough");
	is_clean("full");
	is_int(fill("full", 1 * MIB, 0, 3, 10, &err), 0, "a very small image");
	is_clean("full");
	is_int(fill("full", 200 * MIB - 4096, 0, 3, 10, &err), 0, "a size that is no round number");
	is_clean("full");
	is_int(fill("full", 40 * GIB, 0, 3, 10, &err), 0, "a large image");
	is_clean("full");
}

int main(void)
{
	struct err err;

	if (!mkdtemp(dir))
		return 1;
	test_whole();
	test_debugfs();
	test_mount();
	test_written_on();
	test_refused();
	test_freed();
	test_full();
	file_remove_tree(AT_FDCWD, dir, &err);
	return tap_done();
}
