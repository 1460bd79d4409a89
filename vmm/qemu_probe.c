/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which QEMU there is and what it can do. Asking it for its version costs as much as starting a machine, so
 * the answer is kept in the cache directory, named by what identifies the program file (path, device,
 * inode, size, time of change). Whether KVM works is tried each time: that takes microseconds and
 * changes with permissions.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/proc.h"
#include "vmm/qemu.h"

#define PROGRAM "qemu-system-x86_64"
#define CACHE_NAME "monitor.json"
#define VERSION_TIMEOUT_MS 30000
#define VERSION_LEAD "QEMU emulator version "

/* A program by name: where it has a '/', itself, else the first in PATH. */
static int find_program(char ret[static 4096], struct err *err)
{
	const char *name = getenv("PARBAKE_QEMU");
	const char *path = getenv("PATH") ?: "/usr/local/bin:/usr/bin:/bin";

	if (!name || !*name)
		name = PROGRAM;
	if (strchr(name, '/')) {
		if (access(name, X_OK) < 0)
			return err_sys(err, errno, "PARBAKE_QEMU=%s", name);
		if (snprintf(ret, 4096, "%s", name) >= 4096)
			return err_set(err, ENAMETOOLONG, "PARBAKE_QEMU: a path of more than 4095 bytes");
		return 0;
	}
	while (*path) {
		size_t len = strcspn(path, ":");

		if (len && snprintf(ret, 4096, "%.*s/%s", (int)len, path, name) < 4096 &&
			access(ret, X_OK) == 0)
			return 0;
		path += len + (path[len] == ':');
	}
	return err_set(err, ENOENT,
		"%s: not in PATH; install qemu-system-x86 or name another with PARBAKE_QEMU", name);
}

static char *identity(const char *program, const struct stat *st)
{
	return str_printf("%s dev=%ju ino=%ju size=%jd mtime=%jd.%09ld ctime=%jd.%09ld", program,
		(uintmax_t)st->st_dev, (uintmax_t)st->st_ino, (intmax_t)st->st_size,
		(intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (intmax_t)st->st_ctim.tv_sec,
		st->st_ctim.tv_nsec);
}

/* From the cache, if it speaks of this very program. */
static bool cached_version(const char *id, char ret[static 64])
{
	cleanup_free char *path = NULL;
	cleanup_json json_t *obj = NULL;
	const char *dir, *of, *version;

	if (paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return false;
	path = str_printf("%s/" CACHE_NAME, dir);
	if (json_read_file(AT_FDCWD, path, &obj, NULL) < 0 ||
		json_get_string(obj, "program", &of, NULL) < 0 ||
		json_get_string(obj, "version", &version, NULL) < 0 || strcmp(of, id) ||
		strlen(version) >= 64)
		return false;
	snprintf(ret, 64, "%s", version);
	return true;
}

/* A cache that cannot be written costs time, nothing else. */
static void cache_version(const char *id, const char *version)
{
	cleanup_json json_t *obj = json_pack("{s:s, s:s}", "program", id, "version", version);
	cleanup_free char *text = NULL;
	const char *dir;
	struct err err;

	if (!obj || paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return;
	text = json_text(obj);
	if (file_publish(dir, CACHE_NAME, text, strlen(text), 0600, &err) < 0)
		log_debug("%s", err.text);
}

/* "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)" */
static int ask_version(const char *program, char ret[static 64], struct err *err)
{
	const char *argv[] = {program, "--version", NULL};
	struct proc_spec spec = {.argv = argv, .die_with_parent = true};
	cleanup_free char *out = NULL;
	const char *from;
	int r = proc_output(&spec, VERSION_TIMEOUT_MS, 64 * KIB, &out, err);

	if (r < 0)
		return r;
	from = strstr(out, VERSION_LEAD);
	if (!from)
		return err_set(err, EINVAL, "%s --version: not QEMU's", program);
	from += strlen(VERSION_LEAD);
	snprintf(ret, 64, "%.*s", (int)strcspn(from, "\r\n"), from);
	return 0;
}

static void try_kvm(struct monitor_facts *f)
{
	cleanup_fd int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	cleanup_fd int vm = -1;
	int version;

	if (fd < 0) {
		snprintf(f->why_not_kvm, sizeof(f->why_not_kvm), "open /dev/kvm: %s",
			strerrordesc_np(errno));
		return;
	}
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION) {
		snprintf(f->why_not_kvm, sizeof(f->why_not_kvm), "/dev/kvm: API version %d, not %d",
			version, KVM_API_VERSION);
		return;
	}
	vm = ioctl(fd, KVM_CREATE_VM, 0);
	if (vm < 0) {
		snprintf(f->why_not_kvm, sizeof(f->why_not_kvm), "/dev/kvm: create a machine: %s",
			strerrordesc_np(errno));
		return;
	}
	f->has_kvm = true;
}

int qemu_probe(struct monitor_facts *ret, struct err *err)
{
	cleanup_free char *id = NULL;
	struct stat st;
	int r = find_program(ret->program, err);

	if (r < 0)
		return r;
	if (stat(ret->program, &st) < 0)
		return err_sys(err, errno, "%s", ret->program);
	id = identity(ret->program, &st);
	if (!cached_version(id, ret->version)) {
		r = ask_version(ret->program, ret->version, err);
		if (r < 0)
			return r;
		cache_version(id, ret->version);
	}
	snprintf(ret->name, sizeof(ret->name), "qemu");
	snprintf(ret->machine, sizeof(ret->machine), QEMU_MACHINE_TYPE);
	try_kvm(ret);
	return 0;
}
