/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake-vmm with a guest of our own: a few lines of 32-bit code that need no kernel, so that this runs wherever
 * /dev/kvm makes machines, also where it does not run a kernel. Where there is no such device, the checks that need
 * none are all there is to make.
 */
#include <elf.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/confine.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/str.h"
#include "tests/unit/fake_pager.h"
#include "tests/unit/tap.h"
#include "vmm/kvm_try.h"
#include "vmm/monitor.h"

#define MEMORY (256 * MIB)
#define DISK (16 * MIB)
#define ENTRY 0x100000u
#define COUNTERS 0x200000u /* one for each processor, 64 bytes apart */
#define GREETING "hello from the guest\n"
#define SOON clock_deadline(60000)
#define RESTORES 30
#define GARBAGE 20000
#define KILLS 40

/*
 * The guest: greets at the serial port, wakes the other processors, and all count for ever, each in a line of memory
 * of its own (its local interrupt controller's number tells which). A processor that is woken begins in real mode at
 * 0x8000, to which the first one has copied that code.
 */
__asm__(".pushsection .rodata\n"
	".code32\n"
	"guest_begin:\n"
	"	mov $0x3f8, %dx\n"
	"	mov $guest_text - guest_begin + 0x100000, %esi\n"
	"1:	lodsb\n"
	"	test %al, %al\n"
	"	jz 2f\n"
	"	outb %al, %dx\n"
	"	jmp 1b\n"
	"2:	mov $guest_other - guest_begin + 0x100000, %esi\n"
	"	mov $0x8000, %edi\n"
	"	mov $guest_end - guest_other, %ecx\n"
	"	rep movsb\n"
	/* the interrupt controller is on; INIT and then a start at page 8, to all but itself */
	"	movl $0x1ff, 0xfee000f0\n"
	"	movl $0xc4500, 0xfee00300\n"
	"	movl $0xc4608, 0xfee00300\n"
	"	jmp guest_count\n"
	"guest_text: .asciz \""
	"hello from the guest\\n"
	"\"\n"
	"guest_count:\n"
	"	mov 0xfee00020, %eax\n"
	"	shr $24, %eax\n"
	"	shl $6, %eax\n"
	"3:	incl 0x200000(%eax)\n"
	"	pause\n"
	"	jmp 3b\n"
	".code16\n"
	"guest_other:\n"
	"	cli\n"
	"	lgdtl %cs:guest_gdtr - guest_other\n"
	"	mov $0x11, %eax\n"
	"	mov %eax, %cr0\n"
	"	ljmpl $8, $guest_flat - guest_other + 0x8000\n"
	".code32\n"
	"guest_flat:\n"
	"	mov $16, %eax\n"
	"	mov %eax, %ds\n"
	"	mov $guest_count - guest_begin + 0x100000, %eax\n"
	"	jmp *%eax\n"
	".balign 8\n"
	"guest_gdt:\n"
	"	.quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff\n"
	"guest_gdtr:\n"
	"	.word 23\n"
	"	.long guest_gdt - guest_other + 0x8000\n"
	"guest_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t guest_begin[], guest_end[];

/*
 * The guest that does its worst: random numbers, large and small, into the devices' registers, the serial port and its
 * own memory, where queues may be, as fast as it can.
 */
__asm__(".pushsection .rodata\n"
	".code32\n"
	"garbage_begin:\n"
	"	mov $0x12345, %ebx\n"
	"1:	mov %ebx, %eax\n"
	"	shl $13, %eax\n"
	"	xor %eax, %ebx\n"
	"	mov %ebx, %eax\n"
	"	shr $17, %eax\n"
	"	xor %eax, %ebx\n"
	"	mov %ebx, %eax\n"
	"	shl $5, %eax\n"
	"	xor %eax, %ebx\n"
	/* a register of one of four devices */
	"	mov %ebx, %edi\n"
	"	shr $4, %edi\n"
	"	and $0x30fc, %edi\n"
	"	mov %ebx, %eax\n"
	"	shr $9, %eax\n"
	"	test $0x100, %ebx\n"
	"	jz 2f\n"
	"	and $0x0f, %eax\n"
	"2:	test $0x200, %ebx\n"
	"	jz 3f\n"
	"	shl $12, %eax\n"
	"	and $0x3fffff, %eax\n"
	"3:	mov %eax, 0xd0000000(%edi)\n"
	"	mov 0xd0000000(%edi), %ecx\n"
	/* memory: the first 4 MiB, but for this code and the count */
	"	mov %ebx, %edi\n"
	"	and $0x1ffffc, %edi\n"
	"	or $0x200000, %edi\n"
	"	mov %eax, 0x40(%edi)\n"
	"	mov %ebx, %edx\n"
	"	and $7, %edx\n"
	"	add $0x3f8, %edx\n"
	"	out %al, %dx\n"
	"	incl 0x200000\n"
	"	jmp 1b\n"
	"garbage_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t garbage_begin[], garbage_end[];

/* What resets its machine: mov $0xfe, %al; out %al, $0x64. */
static const uint8_t reset_code[] = {0xb0, 0xfe, 0xe6, 0x64};

static struct {
	struct monitor_facts monitor;
	char dir[64], *initrd;
	int memory, state, disk;
	uint32_t captured; /* the first processor's count */
} fix = {.memory = -1, .state = -1, .disk = -1};

#define works(call, what)                                                                          \
	({                                                                                         \
		int r_ = (call);                                                                   \
		ok(r_ == 0, "%s", (what));                                                         \
		if (r_ != 0)                                                                       \
			printf("# %d: %s\n", r_, err.text);                                        \
		r_ == 0;                                                                           \
	})

/* ---- a kernel of these ------------------------------------------------------------------ */

/* An ELF file with a PVH note whose entry is the code. Caller frees. */
static char *write_kernel(const char *name, const uint8_t *code, size_t len)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr load, note;
		Elf64_Nhdr n;
		char xen[4];
		uint32_t entry;
	} f = {
		.head = {.e_ident = ELFMAG,
			.e_machine = EM_X86_64,
			.e_phoff = offsetof(__typeof__(f), load),
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phnum = 2},
		.load = {.p_type = PT_LOAD,
			.p_offset = sizeof(f),
			.p_paddr = ENTRY,
			.p_filesz = len,
			.p_memsz = len},
		.note = {.p_type = PT_NOTE,
			.p_offset = offsetof(__typeof__(f), n),
			.p_filesz = sizeof(f.n) + 8},
		.n = {.n_namesz = 4, .n_descsz = 4, .n_type = 18},
		.xen = "Xen",
		.entry = ENTRY,
	};
	char *path = str_printf("%s/%s", fix.dir, name);
	cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || file_write_full(fd, &f, sizeof(f)) < 0 || file_write_full(fd, code, len) < 0)
		abort();
	return path;
}

/* ---- machines --------------------------------------------------------------------------- */

static int start(
	const char *kernel, unsigned vcpus, int pager_fd, struct machine **ret, struct err *err)
{
	cleanup_fd int overlay = memfd_create("overlay", MFD_CLOEXEC);
	struct machine_spec spec = {
		.shape = {.memory_bytes = MEMORY, .vcpus = vcpus, .accel = MACHINE_KVM},
		.monitor = &fix.monitor,
		.memory_fd = fix.memory,
		.pager_fd = pager_fd,
		.disk_fd = fix.disk,
		.overlay_fd = overlay,
		.kernel = kernel,
		.initrd = kernel ? fix.initrd : NULL,
		.cmdline = kernel ? "quiet" : NULL,
	};

	if (machine_overlay_init(overlay, DISK, err) < 0)
		return -EIO;
	return machine_start(&spec, ret, err);
}

/* A processor's count, by way of the monitor. The machine is paused. */
static uint32_t count_of(struct machine *m, unsigned vcpu)
{
	cleanup_fd int fd = memfd_create("page", MFD_CLOEXEC);
	uint32_t count = 0;
	struct err err;

	if (machine_read_memory(m, COUNTERS, 4096, fd, SOON, &err) < 0)
		printf("# %s\n", err.text);
	else
		file_pread_full(fd, &count, sizeof(count), vcpu * 64);
	return count;
}

/* Let it run until each of its processors has counted on. */
static bool counts_on(struct machine *m, unsigned vcpus)
{
	int64_t deadline = SOON;
	struct err err;
	uint32_t before[8];

	for (unsigned i = 0; i < vcpus; i++)
		before[i] = count_of(m, i);
	while (clock_left_ms(deadline)) {
		unsigned on = 0;

		if (machine_resume(m, SOON, &err) < 0)
			break;
		usleep(2000);
		if (machine_pause(m, SOON, &err) < 0)
			break;
		for (unsigned i = 0; i < vcpus; i++)
			on += count_of(m, i) != before[i];
		if (on == vcpus)
			return true;
	}
	return false;
}

static bool prints(struct machine *m, const char *what)
{
	int64_t deadline = SOON;

	while (clock_left_ms(deadline)) {
		cleanup_free char *text = machine_console(m);

		if (text && strstr(text, what))
			return true;
		if (machine_get_state(m) == MACHINE_ENDED)
			return false;
		usleep(1000);
	}
	return false;
}

static bool ends(struct machine *m, int ms)
{
	struct pollfd p = {.fd = machine_pidfd(m), .events = POLLIN};

	return poll(&p, 1, ms) == 1 && machine_get_state(m) == MACHINE_ENDED;
}

static void new_files(void)
{
	close_fd(&fix.memory);
	close_fd(&fix.state);
	fix.memory = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fix.state = memfd_create("state", MFD_CLOEXEC);
	if (ftruncate(fix.memory, MEMORY) < 0)
		abort();
}

/* Boot the counting guest, capture it, leave its memory and state in fix. */
static bool boot_and_capture(unsigned vcpus)
{
	cleanup_free char *kernel =
		write_kernel("count", guest_begin, (size_t)(guest_end - guest_begin));
	cleanup_machine struct machine *m = NULL;
	struct err err = {""};
	struct stat st;

	new_files();
	if (!works(start(kernel, vcpus, -1, &m, &err), "a machine starts"))
		return false;
	ok(prints(m, GREETING), "a booted machine's guest runs");
	if (machine_get_state(m) == MACHINE_ENDED) {
		machine_end_reason(m, &err);
		printf("# %s\n", err.text);
		return false;
	}
	is_int(machine_resume(m, SOON, &err), -EINVAL, "what runs cannot be resumed");
	if (!works(machine_pause(m, SOON, &err), "it is paused"))
		return false;
	ok(counts_on(m, vcpus), "all of the %u processors count", vcpus);
	works(machine_capture(m, fix.state, SOON, &err),
		"a machine's state is written while it counts");
	fstat(fix.state, &st);
	ok(st.st_size > 4096 && st.st_size < 1 << 20, "in %jd bytes", (intmax_t)st.st_size);
	fix.captured = count_of(m, 0);
	ok(counts_on(m, vcpus), "a captured machine goes on");
	works(machine_capture(m, fix.state, SOON, &err),
		"a machine that went on is captured again");
	fix.captured = count_of(m, 0);
	is_int(fcntl(fix.memory, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK), 0,
		"the memory of a machine is sealed");
	return true;
}

static void test_restore(unsigned vcpus)
{
	cleanup_machine struct machine *a = NULL, *b = NULL;
	cleanup_fd int again = memfd_create("again", MFD_CLOEXEC);
	struct err err = {""};

	works(start(NULL, vcpus, -1, &a, &err), "a standby");
	works(start(NULL, vcpus, -1, &b, &err), "a second standby starts");
	if (!a || !b)
		return;
	is_int(machine_resume(a, SOON, &err), -EINVAL, "a standby cannot be resumed");
	works(machine_ready(a, SOON, &err), "a standby gets ready");
	works(machine_restore(a, fix.state, SOON, &err), "the state is loaded");
	is_int(count_of(a, 0), fix.captured, "a restored machine has the memory of its capture");
	ok(counts_on(a, vcpus), "all %u processors go on from the capture", vcpus);
	works(machine_restore(b, fix.state, SOON, &err), "the other, too");
	is_int(count_of(b, 0), fix.captured, "from where the first one began");
	works(machine_capture(a, again, SOON, &err), "what was restored is captured");
	ok(lseek(again, 0, SEEK_END) == lseek(fix.state, 0, SEEK_END), "in as many bytes");
}

/* Before it reads a byte that a guest may have written, it has given up what it does not need. */
static void test_confined(void)
{
	cleanup_machine struct machine *m = NULL;
	cleanup_free char *path = NULL, *status = NULL;
	struct err err = {""};
	size_t len;

	works(start(NULL, 1, -1, &m, &err), "a standby");
	if (!m || !works(machine_ready(m, SOON, &err), "is ready"))
		return;
	path = str_printf("/proc/%d/status", machine_pid(m));
	works(file_read_all(AT_FDCWD, path, 65536, &status, &len, &err),
		"a monitor's status is read");
	if (!status || confine_host()->off)
		return;
	has_str(status, "Seccomp:\t2", "the monitor runs with a filter on its system calls");
	has_str(status, "Seccomp_filters:\t2", "by parbake and by itself");
	has_str(status, "NoNewPrivs:\t1", "for good");
	has_str(status, "CapEff:\t0000000000000000", "has no capability");
	has_str(status, "Threads:\t2", "the monitor has a thread for its processor");
}

static void test_pager(void)
{
	cleanup_machine struct machine *m = NULL;
	struct fake_pager pager;
	struct err err = {""};
	cleanup_fd int fd = pager_start(&pager, "ok\n", true);

	works(start(NULL, 1, fd, &m, &err), "a standby with a pager");
	close_fd(&fd);
	if (m && works(machine_restore(m, fix.state, SOON, &err), "it is restored"))
		ok(counts_on(m, 1), "a machine runs on pages that the pager gives");
	pager_stop(&pager);
	is_int((int64_t)pager.size, MEMORY,
		"all of a machine's memory was handed over to the pager");
	ok(pager.minor > 0, "%d pages were shared", pager.minor);
	is_int(pager.failed, 0, "the pager failed at no page");
	ok(m && ends(m, 1000), "a machine is dead within a second of its pager's end");
}

static void test_reset(void)
{
	cleanup_free char *kernel = write_kernel("reset", reset_code, sizeof(reset_code));
	cleanup_machine struct machine *m = NULL;
	struct err err = {""};

	new_files();
	if (!works(start(kernel, 1, -1, &m, &err), "a guest that resets starts"))
		return;
	ok(ends(m, 60000), "a reset ends its monitor");
	machine_end_reason(m, &err);
	has_str(err.text, "exited with status 0", "which says that it was one: %s", err.text);
}

/* It ends or is ignored: nothing that it does makes the monitor do what it must not. */
static void test_garbage(void)
{
	cleanup_free char *kernel =
		write_kernel("garbage", garbage_begin, (size_t)(garbage_end - garbage_begin));
	cleanup_machine struct machine *m = NULL;
	int64_t deadline = SOON;
	struct err err = {""};
	uint32_t count = 0;
	int r = 0;

	new_files();
	if (!works(start(kernel, 1, -1, &m, &err), "a guest that does its worst starts"))
		return;
	while (count < GARBAGE && clock_left_ms(deadline) && r == 0) {
		usleep(5000);
		r = machine_pause(m, SOON, &err);
		if (r == 0)
			count = count_of(m, 0);
		if (r == 0)
			r = machine_resume(m, SOON, &err);
	}
	ok(count >= GARBAGE || machine_get_state(m) == MACHINE_ENDED,
		"a hostile guest has written %u times to its devices", count);
	is_int(machine_end_signal(m), 0, "no signal has ended the monitor of a hostile guest");
	if (r == 0)
		works(machine_pause(m, SOON, &err), "which still does as it is told");
}

static void refuses(const uint8_t *bytes, size_t len, const char *why, const char *what)
{
	cleanup_machine struct machine *m = NULL;
	cleanup_fd int fd = memfd_create("bad", MFD_CLOEXEC);
	struct err err = {""};

	file_write_full(fd, bytes, len);
	if (start(NULL, 1, -1, &m, &err) < 0) {
		ok(false, "%s: %s", what, err.text);
		return;
	}
	is_int(machine_restore(m, fd, SOON, &err), -EBADMSG, "%s is refused", what);
	has_str(err.text, why, "the error has the reason: %s", err.text);
}

static void test_bad_state(void)
{
	static uint8_t bytes[1 << 20];
	ssize_t n = pread(fix.state, bytes, sizeof(bytes), 0);

	if (n < 4096) {
		ok(false, "there is a state");
		return;
	}
	refuses(bytes, 20, "none of parbake-vmm's", "a short record");
	refuses(bytes, (size_t)n - 8, "another length", "one that is cut");
	bytes[(size_t)n / 2] ^= 1;
	refuses(bytes, (size_t)n, "damaged", "one with a bit changed");
	bytes[8]++;
	refuses(bytes, (size_t)n, "version", "one of another version");
	memcpy(bytes, "QEVM", 4);
	refuses(bytes, (size_t)n, "none of parbake-vmm's", "one of QEMU's");
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_many(void)
{
	int good = 0, fds = count_fds();

	for (int i = 0; i < RESTORES; i++) {
		cleanup_machine struct machine *m = NULL;
		struct err err = {""};

		if (start(NULL, 1, -1, &m, &err) == 0 &&
			machine_restore(m, fix.state, SOON, &err) == 0 &&
			machine_resume(m, SOON, &err) == 0)
			good++;
		else
			printf("# %s\n", err.text);
	}
	is_int(good, RESTORES, "%d restores, one after the other", RESTORES);
	is_int(count_fds(), fds, "leave no descriptor");
}

/* A pause that comes too late leaves the machine running, and the next one works. */
static void test_late(void)
{
	cleanup_machine struct machine *m = NULL;
	struct err err = {""};

	works(start(NULL, 1, -1, &m, &err), "a standby");
	if (!m || !works(machine_restore(m, fix.state, SOON, &err), "is restored"))
		return;
	works(machine_resume(m, SOON, &err), "a restored machine runs");
	kill(machine_pid(m), SIGSTOP);
	is_int(machine_pause(m, clock_deadline(50), &err), -ETIMEDOUT,
		"a monitor that stands still does not pause it in time");
	kill(machine_pid(m), SIGCONT);
	is_int(machine_get_state(m), MACHINE_RUNNING,
		"a machine whose pause came too late runs on");
	works(machine_pause(m, SOON, &err),
		"a machine whose pause came too late is paused when it is asked again");
	ok(counts_on(m, 1), "a machine whose pause came too late counts on");
}

static void test_killed(void)
{
	cleanup_machine struct machine *m = NULL;
	struct err err = {""};

	works(start(NULL, 1, -1, &m, &err), "a standby");
	if (!m || !works(machine_restore(m, fix.state, SOON, &err), "is restored"))
		return;
	works(machine_resume(m, SOON, &err), "a machine that is restored once more runs");
	kill(machine_pid(m), SIGKILL);
	ok(ends(m, 10000), "a monitor that stands still is killed");
	is_int(machine_pause(m, SOON, &err), -ECONNABORTED, "calls tell: %s", err.text);
}

struct killer {
	int pidfd;
	unsigned after_us;
};

static void *kill_later(void *arg)
{
	const struct killer *k = arg;

	usleep(k->after_us);
	syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
	return NULL;
}

/* Restore, run, pause, capture, over and over, until something fails. */
static int live(struct machine *m, int state, struct err *err)
{
	int r = machine_restore(m, fix.state, SOON, err);

	while (r == 0) {
		r = machine_resume(m, SOON, err);
		if (r == 0)
			r = machine_pause(m, SOON, err);
		if (r == 0)
			r = machine_capture(m, state, SOON, err);
	}
	return r;
}

/* Whenever it is killed, whoever waits for it is told so at once. */
static void test_killed_anywhere(void)
{
	cleanup_fd int state = memfd_create("state", MFD_CLOEXEC);
	int told = 0, fds = count_fds();

	for (unsigned i = 0; i < KILLS; i++) {
		cleanup_machine struct machine *m = NULL;
		struct killer killer = {.after_us = i * 300};
		struct err err = {""};
		pthread_t thread;
		int r = start(NULL, 1, -1, &m, &err);

		if (r < 0)
			continue;
		killer.pidfd = machine_pidfd(m);
		pthread_create(&thread, NULL, kill_later, &killer);
		r = live(m, state, &err);
		pthread_join(thread, NULL);
		told += r == -ECONNABORTED;
		if (r != -ECONNABORTED)
			printf("# killed after %u us: %d, %s\n", killer.after_us, r, err.text);
	}
	is_int(told, KILLS, "%d monitors are killed, each a little later in its life", KILLS);
	is_int(count_fds(), fds, "monitors that are killed leave no descriptor");
}

/* ---- the host --------------------------------------------------------------------------- */

static bool set_up(void)
{
	cleanup_free char *program = NULL, *disk = NULL;
	struct err err = {""};

	snprintf(fix.dir, sizeof(fix.dir), "/tmp/parbake-kvm-XXXXXX");
	if (!mkdtemp(fix.dir))
		abort();
	is_int(paths_lib("parbake-vmm", &program, &err), 0, "the monitor is built");
	if (kvm_try_device(&err) < 0) {
		printf("# there is no KVM to run guests with: %s\n", err.text);
		return false;
	}
	snprintf(fix.monitor.name, sizeof(fix.monitor.name), "kvm");
	snprintf(fix.monitor.program, sizeof(fix.monitor.program), "%s", program ?: "");
	fix.monitor.has_kvm = fix.monitor.hands_over = true;
	fix.initrd = str_printf("%s/initrd", fix.dir);
	disk = str_printf("%s/disk", fix.dir);
	close(open(fix.initrd, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	close(open(disk, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	if (truncate(disk, DISK) < 0)
		abort();
	fix.disk = open(disk, O_RDONLY | O_CLOEXEC);
	return program != NULL;
}

int main(void)
{
	if (set_up()) {
		if (boot_and_capture(1)) {
			test_restore(1);
			test_confined();
			test_pager();
			test_bad_state();
			test_many();
			test_late();
			test_killed();
			test_killed_anywhere();
		}
		test_reset();
		test_garbage();
		if (boot_and_capture(8))
			test_restore(8);
	}
	file_remove_tree(AT_FDCWD, fix.dir, NULL);
	return tap_done();
}
