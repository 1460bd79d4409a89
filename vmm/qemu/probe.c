/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probing: which QEMUs there are and what they can do. The trimmed one of `make monitor`, which is
 * known by its version (vmm/qemu/trimmed/build.sh), comes before the distribution's. Asking a QEMU
 * costs as much as starting a machine, so its answers are kept in the cache directory, named by
 * what identifies the program file (path, device, inode, size, times of change) and, where it was
 * tried with KVM (vmm/kvm_try.h), the host's kernel and processor. The device /dev/kvm itself is
 * tried each time: that takes microseconds and changes with permissions. An answer about KVM that
 * may be true only for a moment (no memory, no time) is not kept.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/proc.h"
#include "common/str.h"
#include "vmm/kernel.h"
#include "vmm/kvm_try.h"
#include "vmm/qemu/qemu_private.h"

#define PROGRAM "qemu-system-x86_64"
#define BUILT "parbake-qemu"
#define VERSION_TIMEOUT_MS 30000
#define VERSION_LEAD "QEMU emulator version "
#define BUILT_MARK                                                                                 \
	"(parbake-" /* in the version of a QEMU that vmm/qemu/trimmed/build.sh has built */

static int find_named(const char *name, char ret[static 4096], struct err *err)
{
	if (access(name, X_OK) < 0)
		return err_set(err, errno == ENOENT ? EINVAL : errno, "PARBAKE_QEMU=%s: %s", name,
			strerror(errno));
	if (snprintf(ret, 4096, "%s", name) >= 4096)
		return err_set(err, ENAMETOOLONG, "PARBAKE_QEMU: a path of more than 4095 bytes");
	return 0;
}

static int find_in_path(const char *name, char ret[static 4096], struct err *err)
{
	const char *path = getenv("PATH") ?: "/usr/local/bin:/usr/bin:/bin";

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

static int find_built(char ret[static 4096], struct err *err)
{
	cleanup_free char *path = NULL;

	if (paths_lib(BUILT, &path, NULL) < 0 || access(path, X_OK) < 0 ||
		snprintf(ret, 4096, "%s", path) >= 4096)
		return err_set(err, ENOENT, "the trimmed QEMU is not built: run `make monitor`");
	return 0;
}

/* The @i-th candidate's program, and the word for where it was found. */
static int find_program(unsigned i, char ret[static 4096], const char **ret_origin, struct err *err)
{
	const char *asked = getenv("PARBAKE_QEMU");

	if (asked && *asked) {
		*ret_origin = "PARBAKE_QEMU";
		if (i > 0)
			return err_set(err, ERANGE, "PARBAKE_QEMU allows no other");
		return strchr(asked, '/') ? find_named(asked, ret, err)
					  : find_in_path(asked, ret, err);
	}
	if (i == 0) {
		*ret_origin = "make monitor";
		return find_built(ret, err);
	}
	*ret_origin = "PATH";
	if (i > 1)
		return err_set(err, ERANGE, "there are no more monitors");
	return find_in_path(PROGRAM, ret, err);
}

/* Where its answers are kept: a file for each place a QEMU may be found at. */
static char *cache_name(const struct monitor_facts *facts)
{
	char *name = str_printf("monitor-%s.json", facts->origin);

	for (char *p = name; (p = strchr(p, ' '));)
		*p = '-';
	return name;
}

static char *identity(const char *program, const struct stat *st)
{
	return str_printf("%s dev=%ju ino=%ju size=%jd mtime=%jd.%09ld ctime=%jd.%09ld", program,
		(uintmax_t)st->st_dev, (uintmax_t)st->st_ino, (intmax_t)st->st_size,
		(intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (intmax_t)st->st_ctim.tv_sec,
		st->st_ctim.tv_nsec);
}

/* What QEMU was asked, as it is kept. */
struct answers {
	char version[64];
	bool kvm_tried, kvm;
	char why_not_kvm[256];
};

/* From the cache, as far as it speaks of this very program and host. */
static void read_cache(const char *name, const char *id, struct answers *a)
{
	cleanup_free char *path = NULL;
	cleanup_json json_t *obj = NULL;
	cleanup_free char *here = kvm_try_host();
	const char *dir, *of, *version, *host, *why;

	if (paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return;
	path = str_printf("%s/%s", dir, name);
	if (json_read_file(AT_FDCWD, path, &obj, NULL) < 0 ||
		json_get_string(obj, "program", &of, NULL) < 0 || strcmp(of, id) ||
		json_get_string(obj, "version", &version, NULL) < 0 || strlen(version) >= 64)
		return;
	snprintf(a->version, sizeof(a->version), "%s", version);
	if (json_get_string(obj, "kvm_host", &host, NULL) < 0 || strcmp(host, here) ||
		json_get_string(obj, "why_not_kvm", &why, NULL) < 0)
		return;
	a->kvm_tried = true;
	a->kvm = json_is_true(json_object_get(obj, "kvm"));
	snprintf(a->why_not_kvm, sizeof(a->why_not_kvm), "%s", why);
}

/* A cache that cannot be written costs time, nothing else. */
static void write_cache(const char *name, const char *id, const struct answers *a)
{
	cleanup_json json_t *obj = json_pack("{s:s, s:s}", "program", id, "version", a->version);
	cleanup_free char *text = NULL, *here = kvm_try_host();
	const char *dir;
	struct err err;

	if (!obj || paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return;
	if (a->kvm_tried) {
		json_object_set_new(obj, "kvm_host", json_string(here));
		json_object_set_new(obj, "kvm", json_boolean(a->kvm));
		json_object_set_new(obj, "why_not_kvm", json_string(a->why_not_kvm));
	}
	text = json_text(obj);
	if (file_publish(dir, name, text, strlen(text), 0600, &err) < 0)
		log_debug("%s", err.text);
}

void qemu_forget(void)
{
	struct monitor_facts facts = {0};
	const char *origin, *dir;

	if (paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return;
	for (unsigned i = 0; find_program(i, facts.program, &origin, NULL) != -ERANGE; i++) {
		cleanup_free char *name = NULL, *path = NULL;

		snprintf(facts.origin, sizeof(facts.origin), "%s", origin);
		name = cache_name(&facts);
		path = str_printf("%s/%s", dir, name);
		unlink(path);
	}
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

/* Does the kernel boot with it? *@ret_kept: the answer is one of this host, not of the moment. */
static bool try_kvm(const struct monitor_facts *facts, char why[static 256], bool *ret_kept)
{
	cleanup_free char *kernel = NULL, *initrd = NULL;
	struct err err = {0};
	int r = kvm_try_kernel_mode(&err);

	if (r == 0 &&
		(machine_kernel_path(&kernel, NULL) < 0 ||
			paths_lib("initramfs.cpio", &initrd, NULL) < 0)) {
		*ret_kept = false; /* nothing can be booted before that is there */
		return true;
	}
	if (r == 0)
		r = kvm_try_boot(facts, kernel, initrd, &err);
	*ret_kept = r == 0 || r == -EIO || r == -ETIME;
	snprintf(why, 256, "%.*s", (int)strcspn(err.text, "\n"), err.text);
	return r == 0;
}

int qemu_probe(unsigned i, struct monitor_facts *ret, struct err *err)
{
	cleanup_free char *id = NULL, *cache = NULL;
	struct answers a = {0};
	const char *origin;
	bool changed = false;
	struct err why;
	struct stat st;
	int r = find_program(i, ret->program, &origin, err);

	if (r < 0)
		return r;
	snprintf(ret->name, sizeof(ret->name), "qemu");
	snprintf(ret->origin, sizeof(ret->origin), "%s", origin);
	cache = cache_name(ret);
	if (stat(ret->program, &st) < 0)
		return err_sys(err, errno, "%s", ret->program);
	id = identity(ret->program, &st);
	read_cache(cache, id, &a);
	if (!*a.version) {
		r = ask_version(ret->program, a.version, err);
		changed = true;
	}
	if (r < 0)
		return r;
	ret->emulates = true;
	ret->hands_over = strstr(a.version, BUILT_MARK) != NULL;
	if (kvm_try_device(&why) < 0) {
		ret->has_kvm = false;
		snprintf(ret->why_not_kvm, sizeof(ret->why_not_kvm), "%.255s", why.text);
	} else {
		if (!a.kvm_tried) {
			a.kvm = try_kvm(ret, a.why_not_kvm, &a.kvm_tried);
			changed |= a.kvm_tried;
		}
		ret->has_kvm = a.kvm;
		snprintf(ret->why_not_kvm, sizeof(ret->why_not_kvm), "%s", a.why_not_kvm);
	}
	if (changed)
		write_cache(cache, id, &a);
	snprintf(ret->version, sizeof(ret->version), "%s", a.version);
	snprintf(ret->machine, sizeof(ret->machine), QEMU_MACHINE_TYPE);
	return 0;
}
