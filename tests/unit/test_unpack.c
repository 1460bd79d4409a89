/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives into images: every one of tests/hostile/archives.txt has the outcome that stands
 * beside it and changes nothing on the host; a good one loses nothing, whatever its compression
 * and the locale.
 */
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bake/ext4/ext4.h"
#include "bake/source/unpack.h"
#include "common/digest.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "tests/unit/ext4_images.h"

static const struct ext4_options image = {
	.bytes = 64 * MIB, .time = 1700000000, .uuid = {1}, .hash_seed = {2}};
static const struct unpack_options plain = {.clamp_mtime_s = INT64_MAX};

/* All names, sizes, times and contents below a directory. */
static char *tree_text(const char *sub)
{
	return run(NULL,
		"cd %s/%s && find . -printf '%%p %%y %%s %%m %%T@ %%C@ %%l\n' | sort && "
		"find . -type f | sort | xargs -r sha256sum",
		dir, sub);
}

/*
 * Unpack one archive of the directory into @name; what the unpacking, then the finishing
 * returned.
 */
static int unpack_to(const char *name, int fd, const char *what, const struct unpack_options *opt,
	struct unpack_stats *stats, struct err *err)
{
	cleanup_fd int to = image_file(name);
	struct ext4 *fs;
	int r = ext4_create(to, &image, &fs, err);

	if (r < 0)
		return r;
	r = unpack_archive(fd, what, fs, opt, NULL, stats, err);
	if (r < 0) {
		ext4_abort(fs);
		return r;
	}
	return ext4_finish(fs, NULL, err);
}

static int archive_open(const char *name)
{
	cleanup_free char *path = str_printf("%s/archives/%s", dir, name);

	return open(path, O_RDONLY | O_CLOEXEC);
}

static void hostile_one(const char *name, const char *want)
{
	cleanup_free char *file = str_printf("%s.tar", name);
	cleanup_fd int fd = archive_open(file);
	struct unpack_stats stats = {0}, measured = {0};
	struct err err = {""}, err2 = {""};
	int r = unpack_to("hostile", fd, file, &plain, &stats, &err);
	int r2 = unpack_measure(fd, file, &plain, &measured, &err2);

	if (strcmp(want, "ok") == 0) {
		if (!ok(r == 0 && r2 == 0, "%s is taken", name))
			printf("# %s %s\n", err.text, err2.text);
		is_int(measured.entries, stats.entries, "%s: looking counts the same entries",
			name);
		is_int(measured.bytes, stats.bytes, "looking counts the same bytes as unpacking");
		is_clean("hostile");
		return;
	}
	ok(r < 0, "%s is refused", name);
	has_str(err.text, want, "%s: %.400s", name, err.text);
	has_str(err.text, file, "the error names the archive");
}

static void test_hostile(void)
{
	cleanup_free char *before = tree_text("victim"), *cwd_before = tree_text("cwd"),
			  *text = NULL;
	cleanup_free char *after = NULL, *cwd_after = NULL, *cwd = str_printf("%s/cwd", dir);
	cleanup_fd int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err err;
	size_t len, n = 0;
	char *line, *state;

	if (file_read_all(AT_FDCWD, "tests/hostile/archives.txt", MIB, &text, &len, &err) < 0 ||
		chdir(cwd) < 0) {
		ok(0, "archives.txt: %s", err.text);
		return;
	}
	for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		size_t name = strcspn(line, " ");

		if (*line == '#')
			continue;
		line[name] = '\0';
		hostile_one(line, line + name + 1 + strspn(line + name + 1, " "));
		n++;
	}
	ok(n > 50, "%zu archives", n);
	after = tree_text("victim");
	cwd_after = tree_text("cwd");
	is_str(after, before, "no hostile archive changed what it aimed at");
	is_str(cwd_after, cwd_before, "no hostile archive changed the current directory");
	if (fchdir(here) < 0)
		abort();
}

static void image_digest(const char *name, char ret[static DIGEST_TEXT_SIZE])
{
	cleanup_fd int fd = image_file(name);
	struct err err;

	if (digest_fd(fd, ret, &err) < 0)
		abort();
}

static void test_faithful(void)
{
	cleanup_fd int fd = archive_open("faithful.tar");
	struct unpack_stats stats;
	struct err err = {""};

	if (!is_int(unpack_to("faithful", fd, "faithful.tar", &plain, &stats, &err), 0,
		    "a good archive"))
		printf("# %s\n", err.text);
	is_clean("faithful");
	is_int(lseek(fd, 0, SEEK_CUR), 0, "the descriptor's offset is left alone");
	debugfs_has("faithful", "ea_list /ping", "security.capability (20)");
	/* debugfs gives 0 for the numbers of entries that have none */
	debugfs_has("faithful", "ea_get -x /ping system.posix_acl_access",
		"02 00 00 00 01 00 06 00 00 00 00 00 02 00 04 00 e8 03 00 00 04 00 04 00 00 00 00 "
		"00 08 00 07 00 "
		"05 00 00 00 10 00 07 00 00 00 00 00 20 00 00 00 00 00 00 00");
	debugfs_has("faithful", "ea_list /acl", "system.posix_acl_default");
	debugfs_has("faithful", "stat /ping", "Mode:  04670");
	debugfs_has("faithful", "stat /ping", "Flags: 0x80040");
	debugfs_has("faithful", "stat /ping", "Links: 2");
	debugfs_has("faithful", "stat /ping", "User: 70000   Group: -294967296");
	debugfs_has("faithful", "stat /ping", "2242");
	debugfs_has("faithful", "stat /d", "Mode:  02775");
	debugfs_has("faithful", "cat /e\xcc\x81.txt", "decomposed");
	debugfs_has("faithful", "cat /\xc3\xa9.txt", "composed");
	debugfs_has("faithful", "cat /raw\xff.txt", "raw");
	debugfs_has("faithful", "stat /s", "Fast link dest: \"e\xcc\x81.txt\"");
	debugfs_has("faithful", "stat /sparse", "Size: 6442450944");
	debugfs_has("faithful", "stat /sparse", "Blockcount: 16");
	debugfs_has("faithful", "cat /replaced", "second");
	debugfs_has("faithful", "stat /null", "Device major/minor number: 01:03");
}

static void test_same(void)
{
	static const char *const names[] = {
		"faithful.tar.gz", "faithful.tar.bz2", "faithful.tar.xz", "faithful.tar.zst"};
	char want[DIGEST_TEXT_SIZE], got[DIGEST_TEXT_SIZE];
	struct err err = {""};

	image_digest("faithful", want);
	for (size_t i = 0; i < 4; i++) {
		cleanup_fd int fd = archive_open(names[i]);

		unpack_to("same", fd, names[i], &plain, NULL, &err);
		image_digest("same", got);
		is_str(got, want, "%s gives the same image", names[i]);
	}
	if (setlocale(LC_ALL, "C.UTF-8")) {
		cleanup_fd int fd = archive_open("faithful.tar");

		unpack_to("same", fd, "faithful.tar", &plain, NULL, &err);
		image_digest("same", got);
		is_str(got, want, "an archive gives the same image in a UTF-8 locale");
		setlocale(LC_ALL, "C");
	} else {
		tap_skip("there is no locale C.UTF-8");
	}
	{
		cleanup_free char *cmd = str_printf("cat %s/archives/faithful.tar.gz", dir);
		FILE *pipe = popen(cmd, "re");

		unpack_to("same", fileno(pipe), "a pipe", &plain, NULL, &err);
		pclose(pipe);
		image_digest("same", got);
		is_str(got, want, "an archive gives the same image through a pipe");
	}
}

static void test_options(void)
{
	static const char *const skip[] = {"/dev/", "/d/", NULL};
	const struct unpack_options opt = {.no_devices = true, .clamp_mtime_s = 1000, .skip = skip};
	cleanup_fd int fd = archive_open("faithful.tar");
	struct unpack_stats stats;
	struct err err = {""};

	is_int(unpack_to("options", fd, "faithful.tar", &opt, &stats, &err), 0,
		"an archive is unpacked with options");
	is_int(stats.devices_skipped, 1, "a device outside of /dev is left out");
	is_clean("options");
	debugfs_has("options", "stat /null", "File not found");
	debugfs_has("options", "stat /dev/tty", "File not found");
	debugfs_has("options", "stat /dev", "Type: directory");
	debugfs_has("options", "stat /d/ping2", "File not found");
	debugfs_has("options", "stat /ping", "mtime: 0x000003e8:00000000");
}

static void test_gnu_sparse(void)
{
	static const char *const names[] = {"holes-gnu.tar", "holes-pax.tar"};
	struct unpack_stats stats, measured;
	struct err err = {""};

	for (size_t i = 0; i < 2; i++) {
		cleanup_fd int fd = archive_open(names[i]);

		is_int(unpack_to("holes", fd, names[i], &plain, &stats, &err), 0, "%s", names[i]);
		debugfs_has("holes", "stat /holes", "Size: 5368709123");
		debugfs_has("holes", "stat /holes", "Blockcount: 8");
		ok(stats.bytes < 64 * KIB, "the holes of a sparse file are not counted");
		is_int(unpack_measure(fd, names[i], NULL, &measured, &err), 0,
			"a sparse archive can be measured");
		is_int(measured.bytes, stats.bytes, "to the same size");
	}
}

static void test_full(void)
{
	cleanup_fd int fd = memfd_create("tar", MFD_CLOEXEC);
	struct ext4_options small = image;
	cleanup_fd int to = image_file("small");
	cleanup_free char *cmd = NULL, *out = NULL;
	struct err err = {""};
	struct ext4 *fs;
	int r;

	cmd = str_printf("head -c 30000000 /dev/zero >%s/zeros && tar -C %s -cf %s/zeros.tar zeros",
		dir, dir, dir);
	out = run(NULL, "%s", cmd);
	close_fd(&fd);
	free(steal_ptr(&cmd));
	cmd = str_printf("%s/zeros.tar", dir);
	fd = open(cmd, O_RDONLY | O_CLOEXEC);
	small.bytes = 16 * MIB;
	r = ext4_create(to, &small, &fs, &err);
	is_int(r, 0, "a small image");
	is_int(unpack_archive(fd, "zeros.tar", fs, &plain, NULL, NULL, &err), 0,
		"unpacking counts on beyond the end of an image that is too small");
	is_int(ext4_finish(fs, NULL, &err), -ENOSPC, "which is told at the end");
	has_str(err.text, "needs at least 30 MiB",
		"an image that is too small is told with what it takes: %s", err.text);
}

int main(void)
{
	cleanup_free char *made = NULL;
	struct err err;
	int status;

	if (!mkdtemp(dir))
		return 1;
	free(run(NULL,
		"mkdir %s/archives %s/victim %s/cwd; echo precious >%s/victim/evil; "
		"echo mine >%s/cwd/hello",
		dir, dir, dir, dir, dir));
	made = run(&status, "python3 tests/hostile/make_archives.py %s/archives %s/victim 2>&1",
		dir, dir);
	if (!ok(status == 0, "the archives are made"))
		printf("# %s\n", made);
	test_hostile();
	test_faithful();
	test_same();
	test_options();
	test_gnu_sparse();
	test_full();
	file_remove_tree(AT_FDCWD, dir, &err);
	return tap_done();
}
