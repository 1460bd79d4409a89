/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cold boot that a restore is compared with: the same machine, kernel, initramfs and disk as
 * the template's, started from nothing up to the agent's answer. What every boot needs anyway
 * (memory, overlay) is inside the measured time, as it is for a create.
 */
#include "benches/boot.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/paths.h"
#include "common/str.h"
#include "vmm/boot.h"
#include "vmm/cmdline.h"

static int blob_path(struct store *s, const struct store_manifest *m, const char *media, char **ret,
	struct err *err)
{
	const struct store_layer *layer = store_layer(m, media);

	if (!layer)
		return err_set(err, ENOENT, "%s:%s has no %s", m->name, m->tag, media);
	*ret = str_printf("%s/blobs/sha256/%s", store_dir(s), layer->digest + strlen("sha256:"));
	return 0;
}

static int boot_once(const struct machine_spec *spec, int64_t *ret_end, bench_booted_fn *then,
	void *user, struct err *err)
{
	cleanup_machine struct machine *machine = NULL;
	cleanup_guest struct guest *guest = NULL;
	struct proto_hello hello;
	int r = machine_start(spec, &machine, err);

	if (r < 0)
		return r;
	r = guest_new(machine_take_channel(machine), &guest, err);
	if (r < 0)
		return r;
	r = machine_boot_wait(machine, guest, NULL, &hello, err);
	*ret_end = clock_now_ns();
	if (!r && !(hello.flags & PROTO_HELLO_ROOT))
		r = err_set(err, EPROTO, "the agent answered without a root");
	return r < 0 || !then ? r : then(user, machine, guest, err);
}

int bench_boot(struct store *s, const struct store_manifest *m, struct template *t, int64_t *ret,
	bench_booted_fn *then, void *user, struct err *err)
{
	const struct snapshot_config *c = template_config(t);
	cleanup_free char *kernel = NULL, *initrd = NULL, *cmdline = NULL;
	cleanup_fd int memory = -1, overlay = -1;
	struct machine_spec spec = {
		.shape = {.memory_bytes = c->memory_bytes, .vcpus = c->vcpus},
		.monitor = template_monitor(t),
		.pager_fd = -1,
		.disk_fd = template_disk_fd(t),
	};
	const char *scratch;
	int64_t begin, end = 0;
	int r = machine_accel_parse(c->accel, &spec.shape.accel);

	if (r < 0)
		return err_set(err, EINVAL, "accelerator \"%s\"", c->accel);
	if ((r = blob_path(s, m, STORE_MEDIA_KERNEL, &kernel, err)) < 0 ||
		(r = blob_path(s, m, STORE_MEDIA_INITRD, &initrd, err)) < 0 ||
		(r = machine_cmdline(spec.shape.accel,
			 json_is_true(json_object_get(c->extra, "settled_addresses")), &cmdline,
			 err)) < 0)
		return r;
	begin = clock_now_ns();
	memory = memfd_create("parbake-boot", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, (off_t)c->memory_bytes) < 0)
		return err_sys(err, errno, "make the machine's memory");
	if ((r = paths_get(PATHS_CACHE, &scratch, err)) < 0 ||
		(r = overlay = file_scratch(scratch, err)) < 0 ||
		(r = machine_overlay_init(overlay, c->disk_bytes, err)) < 0)
		return r;
	spec.memory_fd = memory;
	spec.overlay_fd = overlay;
	spec.kernel = kernel;
	spec.initrd = initrd;
	spec.cmdline = cmdline;
	r = boot_once(&spec, &end, then, user, err);
	if (r == 0)
		*ret = end - begin;
	return r;
}

static int read_smaps(void *user, struct machine *m, struct guest *g, struct err *err)
{
	(void)g;
	return smaps_read(machine_pid(m), user, err);
}

int bench_boot_smaps(struct store *s, const struct store_manifest *m, struct template *t,
	struct smaps *ret, struct err *err)
{
	int64_t ignored;

	return bench_boot(s, m, t, &ignored, read_smaps, ret, err);
}
