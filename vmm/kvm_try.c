/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trying KVM without a monitor: a machine of 64 KiB whose processor is put into long mode with an
 * identity mapping, as a kernel's is, and runs a few lines of code. The code says how far it has
 * come by writing to a port.
 *
 * Speed is compared with the same loop in this process, both in the thread's processor time, so
 * that a busy host changes nothing. Hardware runs both alike (so does an emulator that emulates
 * this very host); an interpreter is thousands of times slower, the emulator of QEMU some ten
 * times. The bound lies far from both.
 */
#include "vmm/kvm_try.h"

#include <assert.h>
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "common/limits.h"

#define MEMORY (64 * KIB)
#define PAGE_TABLES 0x1000 /* three of a page each */
#define CODE 0x5000
#define SCRATCH 0x6000 /* the code names it, too */
#define PORT 0x10
#define TURNS 100000 /* of the loop; the code has the number, too */
#define TRIES 3 /* the quickest counts */
#define SLOWER 100 /* times */
#define SLACK_NS 5000000 /* for the way into the machine and out, on any host */
#define CPUID_MAX 256
#define N_MODULES 3

/* Three intel-syntax lines a comment; each part ends with `out PORT, al`. */
static const uint8_t code[] = {
	/* mov edi, SCRATCH; lock cmpxchg16b [rdi]: a kernel's slab allocator cannot do without */
	0xbf, 0x00, 0x60, 0x00, 0x00, 0xf0, 0x48, 0x0f, 0xc7, 0x0f,
	/* mov al, 1; out PORT, al */
	0xb0, 0x01, 0xe6, PORT,
	/* mov ecx, TURNS; 1: dec ecx; jnz 1b */
	0xb9, 0xa0, 0x86, 0x01, 0x00, 0xff, 0xc9, 0x75, 0xfc,
	/* mov al, 2; out PORT, al; jmp to the mov ecx */
	0xb0, 0x02, 0xe6, PORT, 0xeb, 0xf1};
static_assert(TURNS == 0x000186a0 && SCRATCH == 0x6000, "as the code says");

struct probe {
	int kvm, vm, vcpu;
	uint8_t *memory;
	struct kvm_run *run;
	size_t run_bytes;
};

static void probe_clear(struct probe *p)
{
	if (p->run)
		munmap(p->run, p->run_bytes);
	if (p->memory)
		munmap(p->memory, MEMORY);
	close_fd(&p->vcpu);
	close_fd(&p->vm);
	close_fd(&p->kvm);
}

static int open_device(struct err *err)
{
	cleanup_fd int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int version;

	if (fd < 0)
		return err_sys(err, errno, "open /dev/kvm");
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION)
		return err_set(
			err, ENODEV, "/dev/kvm: API version %d, not %d", version, KVM_API_VERSION);
	return steal_fd(&fd);
}

int kvm_try_device(struct err *err)
{
	cleanup_fd int fd = open_device(err);
	cleanup_fd int vm = -1;

	if (fd < 0)
		return fd;
	vm = ioctl(fd, KVM_CREATE_VM, 0);
	return vm < 0 ? err_sys(err, errno, "/dev/kvm: create a machine") : 0;
}

static int set_cpuid(struct probe *p)
{
	cleanup_free struct kvm_cpuid2 *list =
		calloc(1, sizeof(*list) + CPUID_MAX * sizeof(list->entries[0]));

	if (!list)
		return -ENOMEM;
	list->nent = CPUID_MAX;
	return ioctl(p->kvm, KVM_GET_SUPPORTED_CPUID, list) < 0 ||
			ioctl(p->vcpu, KVM_SET_CPUID2, list) < 0
		? -errno
		: 0;
}

/* Long mode, as of the Intel manual's volume 3, "IA-32e mode": the first 2 MiB mapped to themselves. */
static int set_registers(struct probe *p)
{
	const struct kvm_segment cs = {
		.selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1, .limit = ~0u};
	const struct kvm_segment ds = {
		.selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1, .limit = ~0u};
	struct kvm_regs regs = {.rip = CODE, .rflags = 2, .rsp = MEMORY};
	struct kvm_sregs s;

	for (uint64_t level = 0; level < 3; level++) {
		uint64_t table = PAGE_TABLES + level * 0x1000;
		/* present and writable; the last maps 2 MiB */
		uint64_t entry = level < 2 ? (table + 0x1000) | 3 : 0x83;

		memcpy(p->memory + table, &entry, sizeof(entry));
	}
	memcpy(p->memory + CODE, code, sizeof(code));
	if (ioctl(p->vcpu, KVM_GET_SREGS, &s) < 0)
		return -errno;
	s.cr0 = 0x80050033; /* PG, AM, WP, NE, ET, MP, PE */
	s.cr3 = PAGE_TABLES;
	s.cr4 = 0x620; /* PAE, OSFXSR, OSXMMEXCPT */
	s.efer = 0x500; /* LME, LMA */
	s.cs = cs;
	s.ds = s.es = s.fs = s.gs = s.ss = ds;
	if (ioctl(p->vcpu, KVM_SET_SREGS, &s) < 0 || ioctl(p->vcpu, KVM_SET_REGS, &regs) < 0)
		return -errno;
	return 0;
}

static int make(struct probe *p, struct err *err)
{
	struct kvm_userspace_memory_region region = {.memory_size = MEMORY};
	int r, bytes;

	p->kvm = open_device(err);
	if (p->kvm < 0)
		return p->kvm;
	p->vm = ioctl(p->kvm, KVM_CREATE_VM, 0);
	if (p->vm < 0)
		return err_sys(err, errno, "/dev/kvm: create a machine");
	p->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p->memory == MAP_FAILED) {
		p->memory = NULL;
		return err_sys(err, errno, "memory for a machine");
	}
	region.userspace_addr = (uintptr_t)p->memory;
	/* older Intel processors want the first of the two; where it is unknown nothing is lost */
	ioctl(p->vm, KVM_SET_TSS_ADDR, 0xfffbd000);
	if (ioctl(p->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0 ||
		(p->vcpu = ioctl(p->vm, KVM_CREATE_VCPU, 0)) < 0)
		return err_sys(err, errno, "/dev/kvm: give a machine memory and a processor");
	bytes = ioctl(p->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	p->run_bytes = bytes > 0 ? (size_t)bytes : sizeof(*p->run);
	p->run = mmap(NULL, p->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->vcpu, 0);
	if (p->run == MAP_FAILED) {
		p->run = NULL;
		return err_sys(err, errno, "/dev/kvm: map a processor");
	}
	r = set_cpuid(p);
	if (r == 0)
		r = set_registers(p);
	return r < 0 ? err_sys(err, -r, "/dev/kvm: set a processor up") : 0;
}

/* Until it writes to the port: what. */
static int run_until_told(struct probe *p, unsigned want, struct err *err)
{
	int r;

	do
		r = ioctl(p->vcpu, KVM_RUN, 0);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	if (r < 0)
		return err_sys(err, errno, "/dev/kvm: run a machine");
	if (p->run->exit_reason == KVM_EXIT_IO && p->run->io.port == PORT &&
		((const uint8_t *)p->run)[p->run->io.data_offset] == want)
		return 0;
	if (p->run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
		return err_set(err, EIO,
			"KVM here interprets kernel mode, and gives up with an internal error at "
			"an "
			"instruction that kernels need (%s)",
			want == 1 ? "cmpxchg16b" : "dec");
	return err_set(
		err, EIO, "KVM ended a machine's kernel mode with exit %u", p->run->exit_reason);
}

static int64_t thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* The loop, here. */
static int64_t own_loop_ns(void)
{
	int64_t begin = thread_ns();
	uint32_t turns = TURNS;

	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
	return thread_ns() - begin;
}

static int try_speed(struct probe *p, struct err *err)
{
	int64_t own = INT64_MAX, there = INT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		int64_t here = own_loop_ns(), begin = thread_ns(), took;
		int r = run_until_told(p, 2, err);

		if (r < 0)
			return r;
		took = thread_ns() - begin;
		own = here < own ? here : own;
		there = took < there ? took : there;
		if (there <= own * SLOWER + SLACK_NS)
			return 0;
	}
	return err_set(err, ETIME,
		"KVM here interprets kernel mode, %lld times slower than this processor is",
		(long long)(there / (own > 0 ? own : 1)));
}

int kvm_try_kernel_mode(struct err *err)
{
	cleanup_with(probe_clear) struct probe p = {.kvm = -1, .vm = -1, .vcpu = -1};
	int r = make(&p, err);

	if (r == 0)
		r = run_until_told(&p, 1, err);
	return r < 0 ? r : try_speed(&p, err);
}

/* The processor: what CPUID says of its vendor, model and features, but not of which of its cores this is. */
static char *describe_cpu(void)
{
	unsigned v[4] = {0}, one[4] = {0}, seven[4] = {0}, more[4] = {0};

	__get_cpuid(0, &v[0], &v[1], &v[2], &v[3]);
	__get_cpuid(1, &one[0], &one[1], &one[2], &one[3]);
	__get_cpuid_count(7, 0, &seven[0], &seven[1], &seven[2], &seven[3]);
	__get_cpuid(0x80000001, &more[0], &more[1], &more[2], &more[3]);
	return str_printf("%.4s%.4s%.4s %x %x %x %x %x %x %x %x", (const char *)&v[1],
		(const char *)&v[3], (const char *)&v[2], one[0], one[2], one[3], seven[1],
		seven[2], seven[3], more[2], more[3]);
}

char *kvm_try_host(void)
{
	static const char *const modules[] = {"kvm_intel", "kvm_amd", "kvm_pvm"};
	cleanup_free char *cpu = describe_cpu();
	const char *have[N_MODULES];
	struct utsname un = {0};

	static_assert(sizeof(modules) / sizeof(modules[0]) == N_MODULES, "all of them");
	for (size_t i = 0; i < N_MODULES; i++) {
		cleanup_free char *path = str_printf("/sys/module/%s", modules[i]);

		have[i] = access(path, F_OK) == 0 ? modules[i] : "-";
	}
	uname(&un);
	return str_printf(
		"%s %s; %s; %s %s %s", un.release, un.version, cpu, have[0], have[1], have[2]);
}
