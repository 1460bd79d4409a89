/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Booting: a PVH kernel (an ELF file with a note that names its 32-bit entry; Linux: Documentation/x86, Xen:
 * docs/misc/pvh.pandoc), its initramfs behind it, and what tells it of the machine: the start info with the memory map
 * and the command line, and an MP table (Intel, MultiProcessor Specification 1.4) for processors and interrupts.
 *
 *     0x0006000  start info, memory map, module
 *     0x0020000  command line
 *     0x009fc00  MP table, where the BIOS of a PC would have its own data
 *     0x0100000  kernel; initramfs at the end of the lower memory
 *
 * Kernel and initramfs are the operator's, so what they say is checked for making sense, not as hostile.
 */
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "vmm/kvm/program/mptable.h"
#include "vmm/kvm/program/vm.h"

#define START_INFO 0x6000ull
#define CMDLINE 0x20000ull
#define BIOS_DATA 0x9fc00ull
#define KERNEL 0x100000ull
#define SEGMENTS_MAX 64
#define NOTES_MAX 65536
#define NOTE_PVH_ENTRY 18 /* XEN_ELFNOTE_PHYS32_ENTRY */
#define START_MAGIC 0x336ec578u
#define MAP_RAM 1u
#define MAP_RESERVED 2u
#define MSR_MISC_ENABLE 0x1a0
#define FAST_STRINGS 1u

struct start_info {
	uint32_t magic, version, flags, n_modules;
	uint64_t modules, cmdline, rsdp, map;
	uint32_t n_map, unused;
};

struct module {
	uint64_t at, bytes, cmdline, unused;
};

struct map_entry {
	uint64_t at, bytes;
	uint32_t type, unused;
};

struct tables {
	struct start_info info;
	struct module module;
	struct map_entry map[4];
};

/* ---- the kernel ------------------------------------------------------------------------- */

static int read_into(struct vm *vm, int fd, uint64_t at, uint64_t len, uint64_t offset,
	const char *what, struct err *err)
{
	void *to = memory_at(&vm->memory, at, len);
	int r;

	if (!to)
		return err_set(err, ENOMEM, "%s does not fit into the machine's memory", what);
	r = len ? file_pread_full(fd, to, len, (off_t)offset) : 0;
	return r < 0 ? err_sys(err, -r, "read %s", what) : 0;
}

static bool find_note(const uint8_t *notes, size_t len, uint64_t *ret)
{
	size_t at = 0;

	while (len - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr n;
		uint64_t name, desc;

		memcpy(&n, notes + at, sizeof(n));
		name = ((uint64_t)n.n_namesz + 3) & ~3ull;
		desc = ((uint64_t)n.n_descsz + 3) & ~3ull;
		at += sizeof(n);
		if (name + desc > len - at)
			return false;
		if (n.n_type == NOTE_PVH_ENTRY && n.n_namesz == 4 &&
			!memcmp(notes + at, "Xen", 4) && (n.n_descsz == 4 || n.n_descsz == 8)) {
			*ret = 0;
			memcpy(ret, notes + at + name, n.n_descsz);
			return true;
		}
		at += name + desc;
	}
	return false;
}

static int read_notes(int fd, const Elf64_Phdr *p, uint64_t *ret_entry, struct err *err)
{
	static uint8_t notes[NOTES_MAX];
	int r;

	if (p->p_filesz > sizeof(notes))
		return 0;
	r = file_pread_full(fd, notes, p->p_filesz, (off_t)p->p_offset);
	if (r < 0)
		return err_sys(err, -r, "read the kernel's notes");
	find_note(notes, p->p_filesz, ret_entry);
	return 0;
}

static int load_kernel(
	struct vm *vm, int fd, uint64_t *ret_entry, uint64_t *ret_end, struct err *err)
{
	Elf64_Phdr p[SEGMENTS_MAX];
	Elf64_Ehdr h;
	int r = file_pread_full(fd, &h, sizeof(h), 0);

	if (r < 0 || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_machine != EM_X86_64 ||
		h.e_phentsize != sizeof(p[0]) || h.e_phnum > SEGMENTS_MAX)
		return err_set(err, ENOEXEC, "the kernel is not an ELF file for x86_64");
	r = file_pread_full(fd, p, h.e_phnum * sizeof(p[0]), (off_t)h.e_phoff);
	*ret_entry = 0;
	*ret_end = KERNEL;
	for (unsigned i = 0; r == 0 && i < h.e_phnum; i++) {
		if (p[i].p_type == PT_NOTE)
			r = read_notes(fd, &p[i], ret_entry, err);
		if (p[i].p_type != PT_LOAD || !p[i].p_memsz)
			continue;
		if (p[i].p_paddr < KERNEL || !memory_at(&vm->memory, p[i].p_paddr, p[i].p_memsz) ||
			p[i].p_filesz > p[i].p_memsz)
			return err_set(err, ENOEXEC, "the kernel does not fit into the memory");
		r = read_into(
			vm, fd, p[i].p_paddr, p[i].p_filesz, p[i].p_offset, "the kernel", err);
		if (p[i].p_paddr + p[i].p_memsz > *ret_end)
			*ret_end = p[i].p_paddr + p[i].p_memsz;
	}
	if (r == 0 && !*ret_entry)
		return err_set(err, ENOEXEC, "the kernel has no PVH entry (CONFIG_PVH)");
	return r;
}

static int load_initrd(
	struct vm *vm, int fd, uint64_t kernel_end, struct module *ret, struct err *err)
{
	uint64_t low = memory_low(&vm->memory), bytes;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "the initramfs");
	bytes = (uint64_t)st.st_size;
	if (!bytes)
		return 0;
	if (bytes > low || (low - bytes) / MEMORY_PAGE * MEMORY_PAGE < kernel_end)
		return err_set(err, ENOMEM, "the initramfs does not fit into the memory");
	*ret = (struct module){.at = (low - bytes) / MEMORY_PAGE * MEMORY_PAGE, .bytes = bytes};
	return read_into(vm, fd, ret->at, bytes, 0, "the initramfs", err);
}

/* ---- what tells it of the machine --------------------------------------------------------- */

static int put_cmdline(struct vm *vm, const char *given, struct err *err)
{
	char *to = memory_at(&vm->memory, CMDLINE, KVM_CMDLINE_MAX + 512);
	size_t room = KVM_CMDLINE_MAX + 512, len;

	if (!to || strlen(given) >= KVM_CMDLINE_MAX)
		return err_set(err, E2BIG, "a command line of more than %d bytes", KVM_CMDLINE_MAX);
	len = (size_t)snprintf(to, room, "%s", given);
	for (unsigned i = 0; i < VM_DEVICES; i++)
		len += (size_t)snprintf(to + len, room - len, " virtio_mmio.device=4K@0x%llx:%u",
			VM_MMIO + i * (unsigned long long)VIRTIO_MMIO_BYTES, vm_irqs[i]);
	return 0;
}

static void put_tables(struct vm *vm, const struct module *initrd)
{
	struct tables *t = memory_at(&vm->memory, START_INFO, sizeof(*t));
	uint64_t low = memory_low(&vm->memory), high = vm->memory.bytes - low;

	*t = (struct tables){.info = {.magic = START_MAGIC,
				     .version = 1,
				     .n_modules = initrd->bytes ? 1 : 0,
				     .modules = START_INFO + offsetof(struct tables, module),
				     .cmdline = CMDLINE,
				     .map = START_INFO + offsetof(struct tables, map),
				     .n_map = high ? 4 : 3},
		.module = *initrd,
		.map = {{.at = 0, .bytes = BIOS_DATA, .type = MAP_RAM},
			{.at = BIOS_DATA, .bytes = KERNEL - BIOS_DATA, .type = MAP_RESERVED},
			{.at = KERNEL, .bytes = low - KERNEL, .type = MAP_RAM},
			{.at = MEMORY_HIGH, .bytes = high, .type = MAP_RAM}}};
}

/* ---- processors ------------------------------------------------------------------------- */

/* Legacy interrupts come through the first processor's local controller, as a BIOS leaves it. */
static int set_lapic(const struct vcpu *c, struct err *err)
{
	const unsigned lint[] = {0x350, 0x360};
	const uint32_t mode[] = {0x700, 0x400}; /* ExtINT, NMI */
	struct kvm_lapic_state s;

	if (ioctl(c->fd, KVM_GET_LAPIC, &s) < 0)
		return err_sys(err, errno, "KVM: read an interrupt controller");
	for (unsigned i = 0; i < 2; i++) {
		uint32_t value;

		memcpy(&value, s.regs + lint[i], sizeof(value));
		value = (value & ~0x1ff00u) | mode[i];
		memcpy(s.regs + lint[i], &value, sizeof(value));
	}
	if (ioctl(c->fd, KVM_SET_LAPIC, &s) < 0)
		return err_sys(err, errno, "KVM: set an interrupt controller");
	return 0;
}

/* As PVH wants it: 32 bits, flat segments, no paging. */
static int enter_kernel(const struct vcpu *c, uint64_t entry, struct err *err)
{
	const struct kvm_segment code = {
		.limit = ~0u, .selector = 0x8, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1};
	const struct kvm_segment data = {
		.limit = ~0u, .selector = 0x10, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1};
	const struct kvm_segment task = {.limit = 0x67, .selector = 0x18, .type = 11, .present = 1};
	const struct kvm_regs regs = {.rip = entry, .rbx = START_INFO, .rflags = 2};
	struct kvm_sregs s;

	if (ioctl(c->fd, KVM_GET_SREGS, &s) < 0)
		return err_sys(err, errno, "KVM: read segments");
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	s.tr = task;
	s.cr0 = 0x11; /* protected mode */
	if (ioctl(c->fd, KVM_SET_SREGS, &s) < 0 || ioctl(c->fd, KVM_SET_REGS, &regs) < 0)
		return err_sys(err, errno, "KVM: set the kernel's entry");
	return 0;
}

/* As a processor comes out of reset on Intel; AMD's have no such thing. */
static void set_fast_strings(const struct vcpu *c)
{
	struct {
		struct kvm_msrs head;
		struct kvm_msr_entry entry;
	} m = {.head = {.nmsrs = 1}, .entry = {.index = MSR_MISC_ENABLE, .data = FAST_STRINGS}};

	ioctl(c->fd, KVM_SET_MSRS, &m);
}

int vm_boot(struct vm *vm, int kernel_fd, int initrd_fd, const char *cmdline, struct err *err)
{
	struct module initrd = {0};
	uint64_t entry, end;
	int r = load_kernel(vm, kernel_fd, &entry, &end, err);

	if (r == 0)
		r = load_initrd(vm, initrd_fd, end, &initrd, err);
	if (r == 0)
		r = put_cmdline(vm, cmdline, err);
	if (r < 0)
		return r;
	put_tables(vm, &initrd);
	mptable_write(memory_at(&vm->memory, BIOS_DATA, MPTABLE_BYTES), BIOS_DATA, vm->n_vcpus);
	for (unsigned i = 0; r == 0 && i < vm->n_vcpus; i++) {
		set_fast_strings(&vm->vcpus[i]);
		r = set_lapic(&vm->vcpus[i], err);
	}
	return r == 0 ? enter_kernel(&vm->vcpus[0], entry, err) : r;
}
