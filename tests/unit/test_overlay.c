/* SPDX-License-Identifier: Apache-2.0 */
/* The qcow2 overlay: qemu-img and qemu-io judge what is written and what is read. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/limits.h"
#include "common/proc.h"
#include "common/str.h"
#include "tests/unit/tap.h"
#include "vmm/monitor.h"

#define DISK (96 * MIB + 512 * 7) /* neither whole clusters nor one L2 table's worth of odd */
#define CLUSTER (64 * KIB)

static char dir[64];

static bool have(const char *program)
{
	const char *argv[] = {program, "--version", NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *out = NULL;

	return proc_output(&spec, 30000, 64 * KIB, &out, NULL) == 0;
}

/* Run a program; its output, or NULL with the reason shown. Caller frees. */
static char *run(const char *const *argv)
{
	struct proc_spec spec = {.argv = argv};
	struct err err;
	char *out;

	if (proc_output(&spec, 60000, MIB, &out, &err) < 0) {
		printf("# %s\n", err.text);
		return NULL;
	}
	return out;
}

static int new_file(const char *name)
{
	cleanup_free char *path = str_printf("%s/%s", dir, name);

	return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void test_sizes(void)
{
	static const uint64_t sizes[] = {512, 16 * MIB, 512 * MIB, 512 * MIB + 512, LIMIT_DISK_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		cleanup_fd int fd = new_file("sized");
		cleanup_free char *path = str_printf("%s/sized", dir);
		const char *check[] = {"qemu-img", "check", path, NULL};
		const char *info[] = {"qemu-img", "info", path, NULL};
		cleanup_free char *want = str_printf("(%" PRIu64 " bytes)", sizes[i]);
		cleanup_free char *checked = NULL, *told = NULL;
		struct stat st;

		is_int(machine_overlay_init(fd, sizes[i], NULL), 0, "%" PRIu64 " bytes", sizes[i]);
		checked = run(check);
		has_str(checked, "No errors were found", "qemu-img check finds no fault in it");
		told = run(info);
		has_str(told, want, "qemu-img sees its size");
		fstat(fd, &st);
		ok(st.st_blocks * 512 <= 16384, "a fresh overlay takes next to no room");
	}
}

static void test_refusals(void)
{
	cleanup_fd int fd = new_file("refused");
	struct err err;

	is_int(machine_overlay_init(fd, 0, &err), -EINVAL, "no bytes are refused");
	is_int(machine_overlay_init(fd, LIMIT_DISK_MAX + 512, &err), -EINVAL,
		"too many are refused");
	is_int(machine_overlay_init(fd, 1000, &err), -EINVAL, "half a sector is refused");
	is_int(machine_overlay_init(fd, MIB, &err), 0, "a good size is taken");
	is_int(machine_overlay_init(fd, MIB, &err), -EEXIST, "a file with content is refused");
}

/* ---- the reader against qemu-io ---------------------------------------------------------- */

struct rebuilt {
	int overlay, disk;
	uint64_t last;
	int runs, zero_runs, disorder;
};

static int rebuild(void *user, uint64_t at, uint64_t len, bool zero, uint64_t from)
{
	struct rebuilt *r = user;
	cleanup_free char *buf = calloc(1, len);

	r->disorder += at < r->last || len == 0;
	r->last = at + len;
	r->runs++;
	r->zero_runs += zero;
	if (!zero && file_pread_full(r->overlay, buf, len, (off_t)from) < 0)
		return -EIO;
	return file_pwrite_full(r->disk, buf, len, (off_t)at);
}

static void write_base(int fd)
{
	uint32_t x = 1;

	for (uint64_t at = 0; at < DISK; at += 512) {
		uint32_t sector[128];

		for (int i = 0; i < 128; i++) {
			x = x * 1664525 + 1013904223;
			sector[i] = x;
		}
		if (at % (8 * CLUSTER) < 3 * CLUSTER)
			file_pwrite_full(fd, sector, sizeof(sector), (off_t)at);
	}
	if (ftruncate(fd, DISK) < 0)
		printf("# cannot size the base\n");
}

/* Writes, zeros and discards of odd places, the same each time. */
static char *qemu_io_script(const char *image)
{
	uint32_t x = 7;
	const char *argv[200];
	char *lines[96];
	size_t n = 0, n_lines = 0;
	char *out;

	argv[n++] = "qemu-io";
	argv[n++] = "-d";
	argv[n++] = "unmap";
	argv[n++] = "--image-opts";
	while (n_lines < 64) {
		unsigned long at, len;

		x = x * 1664525 + 1013904223;
		at = x % (DISK / 512) * 512;
		len = (x >> 8) % (3 * CLUSTER / 512) * 512 + 512;
		if (at + len > DISK)
			len = DISK - at;
		lines[n_lines] = str_printf(n_lines % 5 == 3 ? "write -z %lu %lu"
				: n_lines % 5 == 4           ? "discard %lu %lu"
							     : "write -P 165 %lu %lu",
			at, len);
		argv[n++] = "-c";
		argv[n++] = lines[n_lines++];
	}
	lines[n_lines] = str_printf("write -P 7 %lu 512", DISK - 512);
	argv[n++] = "-c";
	argv[n++] = lines[n_lines++];
	argv[n++] = image;
	argv[n] = NULL;
	out = run(argv);
	for (size_t i = 0; i < n_lines; i++)
		free(lines[i]);
	return out;
}

static void test_walk(void)
{
	cleanup_fd int base = new_file("base"), overlay = new_file("overlay");
	cleanup_fd int disk = new_file("disk");
	cleanup_free char *image = str_printf("driver=qcow2,file.filename=%s/overlay,"
					      "backing.driver=raw,backing.file.filename=%s/base",
		dir, dir);
	cleanup_free char *disk_path = str_printf("%s/disk", dir);
	cleanup_free char *wanted = str_printf("driver=raw,file.filename=%s", disk_path);
	cleanup_free char *overlay_path = str_printf("%s/overlay", dir);
	const char *compare[] = {"qemu-img", "compare", "--image-opts", image, wanted, NULL};
	const char *check[] = {"qemu-img", "check", overlay_path, NULL};
	struct rebuilt r = {.overlay = overlay, .disk = disk};
	cleanup_free char *done = NULL, *same = NULL, *checked = NULL;
	struct err err = {""};

	write_base(base);
	write_base(disk);
	is_int(machine_overlay_init(overlay, DISK, &err), 0, "an overlay");
	is_int(machine_overlay_walk(overlay, DISK, rebuild, &r, &err), 0, "a fresh one is read");
	is_int(r.runs, 0, "a fresh overlay holds nothing");
	done = qemu_io_script(image);
	has_str(done, "wrote", "qemu-io writes, zeroes and discards");
	checked = run(check);
	has_str(checked, "No errors were found", "qemu-img check is content");
	is_int(machine_overlay_walk(overlay, DISK, rebuild, &r, &err), 0, "it is read%s", err.text);
	ok(r.runs > 10 && r.runs <= 129, "in %d runs", r.runs);
	ok(r.zero_runs > 0, "%d of zeros", r.zero_runs);
	is_int(r.disorder, 0, "in rising order");
	same = run(compare);
	has_str(same, "Images are identical", "base and runs make the disk that qemu-img sees");
}

/* ---- hostile overlays -------------------------------------------------------------------- */

static int count_runs(void *user, uint64_t at, uint64_t len, bool zero, uint64_t from)
{
	(void)at, (void)len, (void)zero, (void)from;
	++*(int *)user;
	return 0;
}

static void be_at(int fd, uint64_t at, uint64_t value, int bytes)
{
	uint8_t buf[8];

	for (int i = 0; i < bytes; i++)
		buf[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
	file_pwrite_full(fd, buf, (size_t)bytes, (off_t)at);
}

static int hostile(uint64_t at, uint64_t value, int bytes, struct err *err)
{
	cleanup_fd int fd = memfd_create("overlay", MFD_CLOEXEC);
	int runs = 0;

	machine_overlay_init(fd, DISK, NULL);
	/* one L2 table at cluster 4, one data cluster at 5 */
	if (ftruncate(fd, 6 * CLUSTER) < 0)
		return -EIO;
	be_at(fd, 3 * CLUSTER, 4 * CLUSTER | 1ull << 63, 8);
	be_at(fd, 4 * CLUSTER, 5 * CLUSTER | 1ull << 63, 8);
	if (bytes)
		be_at(fd, at, value, bytes);
	return machine_overlay_walk(fd, DISK, count_runs, &runs, err) ?: runs;
}

static void test_hostile(void)
{
	static const struct {
		const char *what;
		uint64_t at, value;
		int bytes;
	} cases[] = {
		{"another magic", 0, 0x514649fc, 4},
		{"version 2", 4, 2, 4},
		{"a backing name", 8, 0x200, 8},
		{"clusters of 2 MiB", 20, 21, 4},
		{"another size", 24, DISK * 2, 8},
		{"encryption", 32, 1, 4},
		{"an L1 table of 4 G entries", 36, 0xffffffff, 4},
		{"an L1 table past the end", 40, 64 * CLUSTER, 8},
		{"an L1 table not aligned", 40, 3 * CLUSTER + 8, 8},
		{"an L1 table over the header", 40, 0, 8},
		{"snapshots", 60, 1, 4},
		{"a data file elsewhere", 72, 4, 8},
		{"extended L2 entries", 72, 16, 8},
		{"another refcount width", 96, 6, 4},
		{"an L2 table that is the L1 table", 3 * CLUSTER, 3 * CLUSTER, 8},
		{"an L2 table past the end", 3 * CLUSTER, 1ull << 40, 8},
		{"reserved bits in L1", 3 * CLUSTER, 4 * CLUSTER | 1, 8},
		{"data that is the L2 table", 4 * CLUSTER, 4 * CLUSTER, 8},
		{"data past the end", 4 * CLUSTER, 6 * CLUSTER, 8},
		{"data twice", 4 * CLUSTER + 8, 5 * CLUSTER, 8},
		{"data not aligned", 4 * CLUSTER, 5 * CLUSTER - 512, 8},
		{"a compressed cluster", 4 * CLUSTER, 5 * CLUSTER | 1ull << 62, 8},
		{"reserved bits in L2", 4 * CLUSTER, 5 * CLUSTER | 2, 8},
	};
	cleanup_fd int empty = memfd_create("empty", MFD_CLOEXEC);
	struct err err;
	int runs;

	is_int(hostile(0, 0, 0, &err), 1, "the same without any fault is read");
	is_int(hostile(4 * CLUSTER, 1, 8, &err), 1, "a zero cluster without room of its own");
	is_int(hostile(4 * CLUSTER, 5 * CLUSTER | 1, 8, &err), 1,
		"a zero cluster with room of its own is read");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(hostile(cases[i].at, cases[i].value, cases[i].bytes, &err), -EBADMSG, "%s",
			cases[i].what);
	is_int(machine_overlay_walk(empty, DISK, count_runs, &runs, &err), -EBADMSG,
		"an empty file");
	if (ftruncate(empty, 1l << 50) < 0)
		printf("# no sparse petabyte here\n");
	is_int(machine_overlay_walk(empty, DISK, count_runs, &runs, &err), -EBADMSG,
		"a sparse petabyte");
}

int main(void)
{
	snprintf(dir, sizeof(dir), "/tmp/parbake-overlay-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	test_refusals();
	test_hostile();
	if (have("qemu-img") && have("qemu-io")) {
		test_sizes();
		test_walk();
	} else {
		tap_skip("qemu-img and qemu-io are not installed (qemu-utils)");
	}
	file_remove_tree(AT_FDCWD, dir, NULL);
	return tap_done();
}
