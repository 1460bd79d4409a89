/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probing: is parbake-vmm here, and would it work? Its version is that of parbake, with which it is
 * built, and of the state records that it writes: whoever can read those can restore what it has
 * captured.
 *
 * KVM's device is tried each time; whether KVM runs kernel mode, and our kernel with this monitor
 * (vmm/kvm_try.h), once for a host's kernel and processor and this very version.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/str.h"
#include "vmm/kvm/control.h"
#include "vmm/kvm/kvm_private.h"
#include "vmm/kernel.h"
#include "vmm/kvm_try.h"

#define PROGRAM "parbake-vmm"
#define ORIGIN "make all"
#define MACHINE "parbake"
#define CACHE "monitor-kvm.json"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static bool read_cache(const char *host, bool *ret, char why[static 256])
{
	cleanup_free char *path = NULL;
	cleanup_json json_t *obj = NULL;
	const char *dir, *of, *text;

	if (paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return false;
	path = str_printf("%s/" CACHE, dir);
	if (json_read_file(AT_FDCWD, path, &obj, NULL) < 0 ||
		json_get_string(obj, "host", &of, NULL) < 0 || strcmp(of, host) ||
		json_get_string(obj, "why_not", &text, NULL) < 0)
		return false;
	*ret = json_is_true(json_object_get(obj, "works"));
	snprintf(why, 256, "%s", text);
	return true;
}

/* A cache that cannot be written costs time, nothing else. */
static void write_cache(const char *host, bool works, const char *why)
{
	cleanup_json json_t *obj = json_pack(
		"{s:s, s:b, s:s}", "host", host, "works", works, "why_not", works ? "" : why);
	cleanup_free char *text = obj ? json_text(obj) : NULL;
	const char *dir;
	struct err err;

	if (text && paths_get(PATHS_CACHE, &dir, NULL) == 0 &&
		file_publish(dir, CACHE, text, strlen(text), 0600, &err) < 0)
		log_debug("%s", err.text);
}

void kvm_forget(void)
{
	cleanup_free char *path = NULL;
	const char *dir;

	if (paths_get(PATHS_CACHE, &dir, NULL) < 0)
		return;
	path = str_printf("%s/" CACHE, dir);
	unlink(path);
}

/* *@ret_kept: the answer is one of this host, not of the moment. */
static int try_boot(const struct monitor_facts *facts, bool *ret_kept, struct err *err)
{
	cleanup_free char *kernel = NULL, *initrd = NULL;
	int r = kvm_try_kernel_mode(err);

	if (r == 0 &&
		(machine_kernel_path(&kernel, NULL) < 0 ||
			paths_lib("initramfs.cpio", &initrd, NULL) < 0)) {
		*ret_kept = false; /* nothing can be booted before that is there */
		return 0;
	}
	if (r == 0)
		r = kvm_try_boot(facts, kernel, initrd, err);
	*ret_kept = r == 0 || r == -EIO || r == -ETIME;
	return r;
}

static bool try_kvm(const struct monitor_facts *facts, char why[static 256])
{
	cleanup_free char *where = kvm_try_host();
	cleanup_free char *host = str_printf("%s; %s", facts->version, where);
	struct err err = {""};
	bool works = false, kept;
	int r = kvm_try_device(&err);

	if (r == 0 && read_cache(host, &works, why))
		return works;
	if (r == 0) {
		r = try_boot(facts, &kept, &err);
		if (kept)
			write_cache(host, r == 0, err.text);
	}
	snprintf(why, 256, "%.*s", (int)strcspn(err.text, "\n"), r < 0 ? err.text : "");
	return r == 0;
}

int kvm_probe(unsigned i, struct monitor_facts *ret, struct err *err)
{
	cleanup_free char *path = NULL;

	if (i > 0)
		return err_set(err, ERANGE, "there are no more monitors");
	if (paths_lib(PROGRAM, &path, NULL) < 0 || access(path, X_OK) < 0 ||
		snprintf(ret->program, sizeof(ret->program), "%s", path) >=
			(int)sizeof(ret->program))
		return err_set(err, ENOENT, PROGRAM " is not built: run `make all`");
	snprintf(ret->name, sizeof(ret->name), KVM_NAME);
	snprintf(ret->version, sizeof(ret->version), "state " TEXT(KVM_STATE_VERSION));
	snprintf(ret->machine, sizeof(ret->machine), MACHINE);
	snprintf(ret->origin, sizeof(ret->origin), ORIGIN);
	ret->hands_over = true;
	ret->has_kvm = try_kvm(ret, ret->why_not_kvm);
	return 0;
}
