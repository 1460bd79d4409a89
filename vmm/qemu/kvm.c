/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does KVM work here, with this QEMU? A device that opens says little: there are hosts (nested ones
 * above all) whose KVM makes a machine, and then refuses a register or stops at an instruction. So
 * after the device itself, QEMU is started with the CPU model that guests get, confined as a machine
 * is, and its firmware runs.
 */
#include <assert.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/proc.h"
#include "common/sock.h"
#include "vmm/console.h"
#include "vmm/qemu/qemu_private.h"
#include "vmm/qemu/qmp.h"

#define TRY_MS 20000
#define QMP_FD "6" /* QEMU_FD_QMP */

#define FIRMWARE_FD "16" /* QEMU_FD_FIRMWARE */

static_assert(QEMU_FD_QMP == 6 && QEMU_FD_FIRMWARE == 16, "as the names say");

static int try_device(struct err *err)
{
	cleanup_fd int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	cleanup_fd int vm = -1;
	int version;

	if (fd < 0)
		return err_sys(err, errno, "open /dev/kvm");
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION)
		return err_set(
			err, ENODEV, "/dev/kvm: API version %d, not %d", version, KVM_API_VERSION);
	vm = ioctl(fd, KVM_CREATE_VM, 0);
	if (vm < 0)
		return err_sys(err, errno, "/dev/kvm: create a machine");
	return 0;
}

static int run_firmware(int sock, int pidfd, struct err *err)
{
	cleanup_json json_t *status = NULL;
	cleanup_qmp struct qmp *q = NULL;
	int64_t deadline = clock_deadline(TRY_MS);
	const char *state;
	int r = qmp_new(sock, pidfd, NULL, NULL, &q, err);

	if (r < 0) {
		close(sock);
		return r;
	}
	r = qmp_call(q, "qmp_capabilities", NULL, deadline, NULL, err);
	if (r == 0)
		r = qmp_call(q, "cont", NULL, deadline, NULL, err);
	if (r == 0)
		r = qmp_call(q, "query-status", NULL, deadline, &status, err);
	if (r < 0)
		return r;
	state = json_string_value(json_object_get(status, "status"));
	if (!state || strcmp(state, "running"))
		return err_set(
			err, EIO, "QEMU with KVM: the machine is %s", state ?: "in no state");
	return 0;
}

static int try_monitor(const struct monitor_facts *facts, struct err *err)
{
	const char *argv[] = {facts->program, "-nodefaults", "-no-user-config", "-display", "none",
		"-S", "-machine", QEMU_MACHINE_TYPE ",acpi=off,x-option-roms=off", "-accel", "kvm",
		"-cpu", machine_cpu_model(MACHINE_KVM), "-m", "64M", "-chardev",
		"socket,id=qmp,fd=" QMP_FD, "-mon", "chardev=qmp,mode=control", "-bios",
		"/proc/self/fd/" FIRMWARE_FD, NULL};
	static const struct machine_shape shape = {.memory_bytes = 64 * MIB, .vcpus = 1};
	struct confine confine;
	struct proc_spec spec = {
		.argv = argv, .die_with_parent = true, .cwd = "/", .confine = &confine};
	cleanup_qemu_args struct qemu_args env = {0};
	cleanup_proc struct proc p = PROC_INIT;
	cleanup_free char *said = NULL;
	cleanup_fd int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct console *errors;
	int pair[2], errors_fd, preload, firmware, r;

	if (kvm < 0)
		return err_sys(err, errno, "open /dev/kvm");
	if ((r = qemu_preload(facts, &preload, err)) < 0 ||
		(r = qemu_confine_make(
			 facts->program, &shape, 0, false, &confine, &firmware, err)) < 0 ||
		(r = console_new(4 * KIB, &errors, &errors_fd, err)) < 0)
		return r;
	qemu_env_make(&env, preload >= 0, false, false, true);
	spec.env = (const char *const *)env.items;
	if (preload >= 0)
		proc_map_fd(&spec, preload, QEMU_FD_PRELOAD);
	if (firmware >= 0)
		proc_map_fd(&spec, firmware, QEMU_FD_FIRMWARE);
	else
		argv[sizeof(argv) / sizeof(argv[0]) - 3] = NULL; /* it comes with the system */
	proc_map_fd(&spec, kvm, QEMU_FD_KVM);
	r = sock_pair(pair, err);
	if (r == 0) {
		proc_map_fd(&spec, pair[1], QEMU_FD_QMP);
		proc_map_fd(&spec, errors_fd, 2);
		r = proc_start(&spec, &p, err);
		close(pair[1]);
		if (r < 0)
			close(pair[0]);
		else
			r = run_firmware(pair[0], p.pidfd, err);
	}
	close(errors_fd);
	if (r < 0) {
		said = console_text(errors);
		if (said && *said)
			err_set(err, -r, "QEMU with KVM: %.*s", (int)strcspn(said, "\n"), said);
	}
	console_free(errors);
	return r;
}

bool qemu_try_kvm_device(char why[static 128])
{
	struct err err;

	if (try_device(&err) == 0)
		return true;
	snprintf(why, 128, "%.127s", err.text);
	return false;
}

bool qemu_try_kvm(const struct monitor_facts *facts, char why[static 128])
{
	struct err err;

	if (try_monitor(facts, &err) == 0)
		return true;
	snprintf(why, 128, "%.127s", err.text);
	return false;
}
