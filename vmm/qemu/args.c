/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's command line. What decides the device state's layout (machine options, devices and their
 * order) is the same for a boot and a restore; a boot adds the kernel and shares the memory.
 *
 * Memory is memory-backend-file over /proc/self/fd: a memfd backend would make a memfd of its own.
 * The disk comes by fdset, so that no name of a file is in reach of the monitor, and so does the
 * console, because the monitor's user could not open either of them again. Kernel and initramfs are
 * copies that the monitor's user may open. No locking (a clone's base is shared, immutable), no
 * flush to the host (an overlay lives as long as its machine, and the bake reads it through the
 * page cache).
 *
 * No balloon: discarding a page would punch a hole into the memfd that all clones share, which its
 * seal refuses. An RTC, though nothing uses it: without one a booting kernel waits a second for it.
 * No rng device: entropy comes by the agent. No network card.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "vmm/qemu/qemu_private.h"

/*
 * Translated code: enough for an interpreter with numpy, and an image of translations before it; the
 * default would be an eighth of the host's memory.
 */
#define TCG_CACHE_MIB 256

#define SANDBOX "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

/* The parent's variables that reach the monitor: a guest that breaks out finds no secrets there. */
static const char *const env_kept[] = {"PATH", "LD_LIBRARY_PATH", "QEMU_MODULE_DIR"};

void qemu_args_clear(struct qemu_args *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->items[i]);
	*a = (struct qemu_args){0};
}

__attribute__((format(printf, 2, 3))) static void add(struct qemu_args *a, const char *fmt, ...)
{
	va_list args;

	assert(a->n < QEMU_ARGS_MAX);
	va_start(args, fmt);
	if (vasprintf(&a->items[a->n++], fmt, args) < 0)
		abort();
	va_end(args);
}

static void add_option(struct qemu_args *a, const char *option, const char *value)
{
	add(a, "%s", option);
	add(a, "%s", value);
}

static void add_machine(struct qemu_args *a, const struct machine_spec *spec)
{
	const struct machine_shape *shape = &spec->shape;
	unsigned long mib = (unsigned long)(shape->memory_bytes / MIB);

	add(a, "-machine");
	add(a,
		QEMU_MACHINE_TYPE ",acpi=off,x-option-roms=off,pit=on,pic=on,rtc=on,isa-serial=on,"
				  "auto-kernel-cmdline=%s,memory-backend=mem",
		spec->kernel ? "on" : "off");
	add(a, "-accel");
	if (shape->accel == MACHINE_KVM)
		add(a, "kvm");
	else if (spec->translations_fd > 0)
		add(a, "tcg,tb-size=%d,translations=%d", TCG_CACHE_MIB, QEMU_FD_TRANSLATIONS);
	else
		add(a, "tcg,tb-size=%d", TCG_CACHE_MIB);
	add_option(a, "-cpu", qemu_cpu_model(shape->accel));
	add(a, "-smp");
	add(a, "%u", shape->vcpus);
	add(a, "-m");
	add(a, "%luM", mib);
	add(a, "-object");
	add(a,
		"memory-backend-file,id=mem,mem-path=/proc/self/fd/%d,size=%luM,share=%s,"
		"merge=off,dump=off,prealloc=off",
		QEMU_FD_MEMORY, mib, spec->kernel ? "on" : "off");
}

static void add_disk(struct qemu_args *a, bool boot)
{
	add(a, "-add-fd");
	add(a, "fd=%d,set=1", QEMU_FD_DISK);
	add(a, "-add-fd");
	add(a, "fd=%d,set=2", QEMU_FD_OVERLAY);
	/* no drop-cache: after a migration, which a restore is to it, it would write both files back and drop them
	 * from the page cache that all sandboxes of the template read from */
	add_option(a, "-blockdev",
		"{\"driver\":\"raw\",\"node-name\":\"base\",\"read-only\":true,\"file\":"
		"{\"driver\":\"file\",\"filename\":\"/dev/fdset/1\",\"read-only\":true,"
		"\"drop-cache\":false,\"locking\":\"off\"}}");
	add(a, "-blockdev");
	/* at a boot, zeros that are written stay out of the delta */
	add(a,
		"{\"driver\":\"qcow2\",\"node-name\":\"disk\",\"backing\":\"base\",\"discard\":"
		"\"unmap\","
		"\"detect-zeroes\":\"%s\",\"cache\":{\"no-flush\":true},\"file\":"
		"{\"driver\":\"file\",\"filename\":\"/dev/fdset/2\",\"discard\":\"unmap\","
		"\"drop-cache\":false,\"locking\":\"off\",\"cache\":{\"no-flush\":true}}}",
		boot ? "unmap" : "off");
	/*
	 * a host without room for the overlay is the guest's I/O error, not a machine that stands
	 * still
	 */
	add_option(a, "-device", "virtio-blk-device,drive=disk,werror=report,rerror=report");
}

static void add_channels(struct qemu_args *a)
{
	add(a, "-chardev");
	add(a, "socket,id=qmp,fd=%d", QEMU_FD_QMP);
	add_option(a, "-mon", "chardev=qmp,mode=control");
	/* the writing end of a pipe: nothing can be typed into a console (append: a pipe cannot be
	 * emptied) */
	add(a, "-add-fd");
	add(a, "fd=%d,set=3", QEMU_FD_CONSOLE);
	add_option(a, "-chardev", "file,id=console,path=/dev/fdset/3,append=on");
	add_option(a, "-serial", "chardev:console");
	add(a, "-chardev");
	add(a, "socket,id=agent,fd=%d", QEMU_FD_CHANNEL);
	add_option(a, "-device", "virtio-serial-device,max_ports=2");
	add_option(a, "-device", "virtserialport,chardev=agent,name=parbake.agent");
}

void qemu_args_make(
	struct qemu_args *a, const char *program, bool firmware, const struct machine_spec *spec)
{
	*a = (struct qemu_args){0};
	add(a, "%s", program);
	add(a, "-nodefaults");
	add(a, "-no-user-config");
	add_option(a, "-display", "none");
	add(a, "-no-reboot");
	add_option(a, "-sandbox", SANDBOX);
	add_machine(a, spec);
	if (firmware) {
		add(a, "-bios");
		add(a, "/proc/self/fd/%d", QEMU_FD_FIRMWARE);
	}
	add_disk(a, spec->kernel != NULL);
	add_channels(a);
	if (spec->kernel) {
		add(a, "-kernel");
		add(a, "/proc/self/fd/%d", QEMU_FD_KERNEL);
		add(a, "-initrd");
		add(a, "/proc/self/fd/%d", QEMU_FD_INITRD);
		add_option(a, "-append", spec->cmdline);
	} else {
		add(a, "-S");
		add_option(a, "-incoming", "defer");
	}
}

void qemu_env_make(struct qemu_args *a, bool preload, bool pager, bool uffd_dev, bool kvm)
{
	*a = (struct qemu_args){0};
	for (size_t i = 0; i < sizeof(env_kept) / sizeof(env_kept[0]); i++) {
		const char *value = getenv(env_kept[i]);

		if (value)
			add(a, "%s=%s", env_kept[i], value);
	}
	add(a, "LC_ALL=C");
	if (preload) {
		add(a, "LD_PRELOAD=/proc/self/fd/%d", QEMU_FD_PRELOAD);
		add(a, "PARBAKE_PRELOAD=%d", QEMU_FD_PRELOAD);
	}
	add(a, "PARBAKE_CONFINED=1");
	if (pager) {
		add(a, "PARBAKE_UFFD_MEM=%d", QEMU_FD_MEMORY);
		add(a, "PARBAKE_UFFD_SOCK=%d", QEMU_FD_PAGER);
		add(a, "PARBAKE_UFFD_ACK=%d", QEMU_FD_ACK);
	}
	if (uffd_dev)
		add(a, "PARBAKE_UFFD_DEV=%d", QEMU_FD_UFFD_DEV);
	if (kvm)
		add(a, "PARBAKE_KVM=%d", QEMU_FD_KVM);
}
