/* SPDX-License-Identifier: Apache-2.0 */
/* A machine whose guest is two instructions, restored over and over. */
#include "benches/vm.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "benches/cost.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/str.h"
#include "vmm/kvm/kvm.h"
#include "vmm/kvm_try.h"

#define ENTRY 0x100000u
#define DISK (16 * MIB)
#define PATIENCE_MS 60000
#define NOTE_PVH_ENTRY 18

/* mov $0x3f8, %edx; mov $'.', %al; 1: out %al, %dx; jmp 1b: whenever it is captured, the next instruction tells */
static const uint8_t code[] = {0xba, 0xf8, 0x03, 0x00, 0x00, 0xb0, '.', 0xee, 0xeb, 0xfd};

struct vm_bench {
	struct monitor_facts monitor;
	int kernel, nothing, disk, memory, state;
};

static int make_file(const char *name, uint64_t bytes, struct err *err)
{
	cleanup_fd int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return err_sys(err, errno, "memory for a machine");
	return steal_fd(&fd);
}

/* An ELF file with a note that names its 32-bit entry. */
static int write_kernel(int fd, struct err *err)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr load, note;
		Elf64_Nhdr n;
		char xen[4];
		uint32_t entry;
		uint8_t code[sizeof(code)];
	} f = {
		.head = {.e_ident = ELFMAG,
			.e_machine = EM_X86_64,
			.e_phoff = offsetof(__typeof__(f), load),
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phnum = 2},
		.load = {.p_type = PT_LOAD,
			.p_offset = offsetof(__typeof__(f), code),
			.p_paddr = ENTRY,
			.p_filesz = sizeof(code),
			.p_memsz = sizeof(code)},
		.note = {.p_type = PT_NOTE,
			.p_offset = offsetof(__typeof__(f), n),
			.p_filesz = sizeof(Elf64_Nhdr) + 8},
		.n = {.n_namesz = 4, .n_descsz = 4, .n_type = NOTE_PVH_ENTRY},
		.xen = "Xen",
		.entry = ENTRY,
	};
	int r;

	memcpy(f.code, code, sizeof(code));
	r = file_write_full(fd, &f, sizeof(f));
	return r < 0 ? err_sys(err, -r, "write a kernel") : 0;
}

static void count(void *user, const char *bytes, size_t len)
{
	(void)bytes;
	*(uint64_t *)user += len;
}

static int start(
	struct vm_bench *b, bool boot, uint64_t *printed, struct machine **ret, struct err *err)
{
	cleanup_fd int overlay = make_file("parbake-overlay", 0, err);
	char disk[64], kernel[64], nothing[64];
	cleanup_fd int disk_fd = -1;
	struct machine_spec spec = {
		.shape = {.memory_bytes = VM_BENCH_MEMORY, .vcpus = 1, .accel = MACHINE_KVM},
		.monitor = &b->monitor,
		.memory_fd = b->memory,
		.pager_fd = -1,
		.overlay_fd = overlay,
		.kernel = boot ? kernel : NULL,
		.initrd = boot ? nothing : NULL,
		.cmdline = boot ? "" : NULL,
		.console = count,
		.user = printed,
	};
	int r;

	snprintf(disk, sizeof(disk), "/proc/self/fd/%d", b->disk);
	snprintf(kernel, sizeof(kernel), "/proc/self/fd/%d", b->kernel);
	snprintf(nothing, sizeof(nothing), "/proc/self/fd/%d", b->nothing);
	disk_fd = spec.disk_fd = open(disk, O_RDONLY | O_CLOEXEC);
	if (overlay < 0 || disk_fd < 0)
		return err_sys(err, errno, "a disk for a machine");
	r = machine_overlay_init(overlay, DISK, err);
	return r < 0 ? r : machine_start(&spec, ret, err);
}

static int await_print(struct machine *m, const uint64_t *printed, struct err *err)
{
	int64_t deadline = clock_deadline(PATIENCE_MS);

	while (!*printed) {
		if (machine_get_state(m) == MACHINE_ENDED) {
			machine_end_reason(m, err);
			return -ECONNABORTED;
		}
		if (!clock_left_ms(deadline))
			return err_set(err, ETIMEDOUT, "the guest does not run");
		sched_yield();
	}
	return 0;
}

static int boot_and_capture(struct vm_bench *b, struct err *err)
{
	cleanup_machine struct machine *m = NULL;
	int64_t deadline = clock_deadline(PATIENCE_MS);
	uint64_t printed = 0;
	int r = start(b, true, &printed, &m, err);

	if (r == 0)
		r = await_print(m, &printed, err);
	if (r == 0)
		r = machine_pause(m, deadline, err);
	if (r == 0)
		r = machine_capture(m, b->state, deadline, err);
	if (r == 0 && fcntl(b->memory, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW) < 0)
		r = err_sys(err, errno, "seal the machine's memory");
	return r;
}

static int find_monitor(struct monitor_facts *ret, struct err *err)
{
	cleanup_free char *program = NULL;

	if (kvm_try_device(err) < 0 || paths_lib("parbake-vmm", &program, err) < 0)
		return -ENODEV;
	snprintf(ret->name, sizeof(ret->name), "kvm");
	snprintf(ret->program, sizeof(ret->program), "%s", program);
	ret->has_kvm = ret->hands_over = true;
	return 0;
}

int vm_bench_new(struct vm_bench **ret, struct err *err)
{
	cleanup_vm_bench struct vm_bench *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return err_set(err, ENOMEM, "out of memory");
	b->kernel = b->nothing = b->disk = b->memory = b->state = -1;
	if ((r = find_monitor(&b->monitor, err)) < 0 ||
		(r = b->kernel = make_file("parbake-kernel", 0, err)) < 0 ||
		(r = b->nothing = make_file("parbake-nothing", 0, err)) < 0 ||
		(r = b->disk = make_file("parbake-disk", DISK, err)) < 0 ||
		(r = b->memory = make_file("parbake-memory", VM_BENCH_MEMORY, err)) < 0 ||
		(r = b->state = make_file("parbake-state", 0, err)) < 0 ||
		(r = write_kernel(b->kernel, err)) < 0 || (r = boot_and_capture(b, err)) < 0)
		return r;
	*ret = steal_ptr(&b);
	return 0;
}

void vm_bench_free(struct vm_bench *b)
{
	if (!b)
		return;
	close_fd(&b->kernel);
	close_fd(&b->nothing);
	close_fd(&b->disk);
	close_fd(&b->memory);
	close_fd(&b->state);
	free(b);
}

int vm_bench_sample(
	struct vm_bench *b, struct vm_sample *ret, struct machine **ret_machine, struct err *err)
{
	cleanup_machine struct machine *m = NULL;
	int64_t deadline = clock_deadline(PATIENCE_MS), minor, major;
	uint64_t printed = 0;
	int r;

	ret->begin = clock_now_ns();
	r = start(b, false, &printed, &m, err);
	if (r == 0)
		r = machine_ready(m, deadline, err);
	ret->ready = clock_now_ns();
	if (r < 0)
		return r;
	cost_faults(machine_pid(m), &minor, &major);
	ret->faults = (uint64_t)minor;
	ret->asked = clock_now_ns();
	r = machine_restore(m, b->state, deadline, err);
	ret->loaded = clock_now_ns();
	if (r == 0)
		r = machine_resume(m, deadline, err);
	if (r == 0)
		r = await_print(m, &printed, err);
	ret->reached = clock_now_ns();
	if (r < 0)
		return r;
	kvm_get_steps(m, ret->steps);
	if (ret_machine)
		*ret_machine = steal_ptr(&m);
	return 0;
}
