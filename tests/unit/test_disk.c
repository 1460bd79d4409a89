/* SPDX-License-Identifier: Apache-2.0 */
/* Expanded disks: root and delta against a plain buffer; once, whole, by whoever comes first. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/proc.h"
#include "restore/disk.h"
#include "store/image.h"
#include "tests/unit/tap.h"

#define DISK (16 * MIB)

static char home[] = "/tmp/parbake-disk-XXXXXX";
static uint8_t root[DISK], delta[DISK], want[DISK], got[DISK];

static int image_of(const uint8_t *bytes, uint64_t len, char digest[static DIGEST_TEXT_SIZE])
{
	int raw = memfd_create("raw", MFD_CLOEXEC), out = memfd_create("image", MFD_CLOEXEC);
	struct image_stats stats;
	struct err err;

	if (raw < 0 || out < 0 || write(raw, bytes, len) != (ssize_t)len ||
		image_write(raw, len, NULL, out, NULL, &stats, &err) < 0) {
		printf("Bail out! cannot make an image\n");
		exit(1);
	}
	close(raw);
	memcpy(digest, stats.raw_digest, DIGEST_TEXT_SIZE);
	return out;
}

/* Files in the disks directory, temporary ones counted in *@ret_tmp. */
static int files(int *ret_tmp)
{
	char path[96];
	int n = 0;
	DIR *dir;

	*ret_tmp = 0;
	snprintf(path, sizeof(path), "%s/cache/disks", home);
	dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		n += e->d_name[0] != '.';
		*ret_tmp += strncmp(e->d_name, ".tmp", 4) == 0;
	}
	if (dir)
		closedir(dir);
	return n;
}

static bool same(int fd, const uint8_t *bytes)
{
	return pread(fd, got, DISK, 0) == (ssize_t)DISK && memcmp(got, bytes, DISK) == 0;
}

static void make_contents(void)
{
	srandom(1);
	for (size_t i = 0; i < DISK; i++)
		root[i] = i / 65536 % 3 ? (uint8_t)(random() | 1) : 0;
	memcpy(want, root, DISK);
}

/* @range of the delta, which has @pos bytes so far: data of its own, or zeros over what the root holds. */
static uint64_t write_range(const struct snapshot_range *range, uint64_t pos, bool zero)
{
	for (uint64_t i = range->offset; i < range->offset + range->bytes; i++)
		delta[pos++] = want[i] = zero ? 0 : (uint8_t)(i * 7 | 1);
	return pos;
}

static void test_delta(struct snapshot_config *c, int root_fd)
{
	/* whole clusters, half pages, one sector at the very end; every second one written with
	 * zeros */
	static const struct snapshot_range ranges[] = {{65536, 65536}, {196608, 131072},
		{400 * 1024 + 512, 1536}, {1048576, 4096}, {5 * 1048576 + 2048, 200 * 512},
		{8 * 1048576, 3 * 1048576}, {DISK - 512, 512}};
	int delta_fd, fd = -1, tmp;
	uint64_t bytes = 0;
	struct err err;

	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		bytes = write_range(&ranges[i], bytes, i % 2);
	delta_fd = image_of(delta, bytes, c->delta_raw_digest);
	snapshot_delta_set(c, ranges, sizeof(ranges) / sizeof(*ranges));
	is_int(disk_open(root_fd, -1, c, NULL, &fd, &err), -EINVAL, "a delta that is not given");
	is_int(disk_open(root_fd, delta_fd, c, NULL, &fd, &err), 0, "expand root and delta");
	ok(same(fd, want), "the delta's ranges are over the root, its zeros too");
	close(fd);
	is_int(files(&tmp), 2, "beside the disk without delta");
	is_int(tmp, 0, "the cache has nothing beside the disk");

	c->delta_raw_digest[10] ^= 1;
	is_int(disk_open(root_fd, delta_fd, c, NULL, &fd, &err), -EBADMSG,
		"a delta of another digest");
	has_str(err.text, "delta", "the error says which");
	is_int(files(&tmp), 2, "publishes nothing");
	is_int(tmp, 0, "an expansion that failed leaves nothing");
	c->delta_raw_digest[10] ^= 1;
	close(delta_fd);
}

static void test_race(struct snapshot_config *c, int root_fd)
{
	int status, bad = 0, tmp;
	pid_t pids[6];

	for (int i = 0; i < 6; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			int fd;

			_exit(disk_open(root_fd, -1, c, NULL, &fd, NULL) != 0 || !same(fd, root));
		}
	}
	for (int i = 0; i < 6; i++)
		bad += waitpid(pids[i], &status, 0) < 0 || status != 0;
	is_int(bad, 0, "six processes at once have it");
	is_int(files(&tmp), 1, "six processes share one file");
	is_int(tmp, 0, "no litter");
}

/* Started again by test_died(): a fault is read once a process. */
static int die_main(const char *digest)
{
	struct snapshot_config c = {.disk_bytes = DISK};
	int fd;

	snprintf(c.disk_raw_digest, sizeof(c.disk_raw_digest), "%s", digest);
	return disk_open(3, -1, &c, NULL, &fd, NULL) == 0 ? 0 : 1;
}

static void test_died(struct snapshot_config *c, int root_fd)
{
	const char *argv[] = {"/proc/self/exe", c->disk_raw_digest, NULL};
	struct proc_spec spec = {.argv = argv};
	struct proc p = PROC_INIT;
	int fd, status = 0, tmp;
	struct err err;

	proc_map_fd(&spec, root_fd, 3);
	setenv("PARBAKE_FAULT", "restore.disk.before-publish", 1);
	is_int(proc_start(&spec, &p, &err), 0, "a process makes the disk");
	unsetenv("PARBAKE_FAULT");
	proc_wait(&p, clock_deadline(30000), &status);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 137,
		"a process dies before it publishes the disk");
	is_int(files(&tmp), 0, "there is no disk");
	is_int(disk_open(root_fd, -1, c, NULL, &fd, &err), 0, "the next one makes it");
	ok(same(fd, root), "the disk that was made after a death is whole");
	close(fd);
}

/* One bit of @path, which nobody may write. */
static void flip(const char *path, off_t at)
{
	uint8_t byte = 0;
	int fd;

	chmod(path, 0600);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &byte, 1, at) != 1)
		abort();
	byte ^= 4;
	if (pwrite(fd, &byte, 1, at) != 1)
		abort();
	close(fd);
	chmod(path, 0400);
}

static int64_t inode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (int64_t)st.st_ino : -1;
}

/* What lies in the cache is not trusted by its size and its mode. */
static void test_damaged(struct snapshot_config *c, int root_fd, const char *path)
{
	int64_t inode;
	uint64_t bytes;
	struct err err;
	int fd = -1;

	is_int(disk_verify(c, &bytes, &err), 1, "a disk that is whole verifies");
	ok(bytes && bytes < DISK, "a disk is verified without reading its holes");
	inode = inode_of(path);
	utimes(path, NULL);
	is_int(disk_open(root_fd, -1, c, NULL, &fd, &err), 0,
		"a disk whose times alone changed is verified");
	close(fd);
	is_int(inode_of(path), inode, "a disk whose times alone changed is kept");
	flip(path, 100000);
	is_int(disk_verify(c, &bytes, &err), -EBADMSG, "a disk with a flipped bit does not verify");
	has_str(err.text, path, "the error says which disk does not verify");
	is_int(disk_open(root_fd, -1, c, NULL, &fd, &err), 0, "who needs it");
	ok(same(fd, root), "has it made anew");
	close(fd);
	flip(path, 0); /* a hole */
	is_int(disk_open(root_fd, -1, c, NULL, &fd, &err), 0,
		"a disk with a bit in a hole is opened as a new one");
	ok(same(fd, root), "a disk that did not verify is made anew");
	close(fd);
	is_int(disk_verify(c, &bytes, &err), 1, "a disk that was made anew is verified");
}

int main(int argc, char **argv)
{
	struct snapshot_config c = {.disk_bytes = DISK};
	char command[96], path[512];
	struct stat st;
	struct err err;
	int root_fd, fd = -1, tmp;

	if (argc == 2)
		return die_main(argv[1]);
	if (!mkdtemp(home))
		return 1;
	setenv("PARBAKE_HOME", home, 1);
	make_contents();
	root_fd = image_of(root, DISK, c.disk_raw_digest);

	c.disk_raw_digest[20] ^= 1;
	is_int(disk_open(root_fd, -1, &c, NULL, &fd, &err), -EBADMSG, "a disk of another digest");
	c.disk_raw_digest[20] ^= 1;
	c.disk_bytes -= 4096;
	is_int(disk_open(root_fd, -1, &c, NULL, &fd, &err), -EBADMSG,
		"a disk of another size than its config says is refused");
	c.disk_bytes += 4096;
	is_int(files(&tmp), 0, "publishes nothing");
	is_int(tmp, 0, "a fault while a disk is made leaves nothing");

	test_died(&c, root_fd);
	snprintf(path, sizeof(path), "%s/cache/disks/%s", home, c.disk_raw_digest + 7);
	ok(unlink(path) == 0, "named by the root disk's digest");
	test_race(&c, root_fd);

	is_int(disk_open(root_fd, -1, &c, NULL, &fd, &err), 0, "opened again");
	ok(same(fd, root), "a template's disk without a delta is the root disk");
	ok(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0400, "mode 0400");
	ok((uint64_t)st.st_blocks * 512 < DISK * 3 / 4, "the holes of a disk are holes");
	ok(write(fd, "x", 1) < 0, "a disk cannot be written by the descriptor that was opened");
	close(fd);

	test_damaged(&c, root_fd, path);
	test_delta(&c, root_fd);
	snapshot_config_clear(&c);
	close(root_fd);
	snprintf(command, sizeof(command), "rm -rf %s", home);
	if (system(command) != 0)
		printf("# %s stays\n", home);
	return tap_done();
}
