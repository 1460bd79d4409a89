/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp filter: the system calls that the monitor makes once it serves a guest: these and no
 * others, with the numbers of ioctl(2) and the kinds of madvise(2) that it uses, and signals to
 * itself alone. Whatever else is tried ends the process. What is listed here stands in
 * docs/security.md too; a test holds them together.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/kvm/program/vm.h"

#define FILTER_MAX 160

static const short plain[] = {
	/* devices */
	SYS_sendmsg, SYS_recvmsg, SYS_preadv, SYS_pwritev, SYS_pread64, SYS_pwrite64, SYS_fallocate,
	SYS_ftruncate, SYS_getrandom, SYS_write,
	/* the main thread, the watch on the pager */
	SYS_epoll_wait, SYS_epoll_ctl, SYS_sendto, SYS_recvfrom, SYS_read, SYS_fstat,
	SYS_newfstatat, SYS_close, SYS_clock_gettime, SYS_getpid,
	/* threads, signals, the end */
	SYS_futex, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group,
	/* a thread that was started before the filter begins behind it */
	SYS_set_robust_list, SYS_rseq, SYS_rt_sigprocmask, SYS_gettid};

static const unsigned ioctls[] = {KVM_RUN, KVM_IRQ_LINE,
	/* pause and resume */
	KVM_GET_CLOCK, KVM_SET_CLOCK, KVM_KVMCLOCK_CTRL,
	/* capture */
	KVM_GET_MP_STATE, KVM_GET_REGS, KVM_GET_SREGS, KVM_GET_DEBUGREGS, KVM_GET_XSAVE,
	KVM_GET_XSAVE2, KVM_GET_XCRS, KVM_GET_LAPIC, KVM_GET_VCPU_EVENTS, KVM_GET_MSRS,
	KVM_GET_IRQCHIP, KVM_GET_TSC_KHZ,
	/* restore */
	KVM_SET_MP_STATE, KVM_SET_REGS, KVM_SET_SREGS, KVM_SET_DEBUGREGS, KVM_SET_XSAVE,
	KVM_SET_XCRS, KVM_SET_LAPIC, KVM_SET_VCPU_EVENTS, KVM_SET_MSRS, KVM_SET_IRQCHIP,
	KVM_SET_TSC_KHZ, KVM_SET_CPUID2};

static const unsigned advices[] = {MADV_DONTNEED, MADV_REMOVE};

struct filter {
	unsigned short n;
	struct sock_filter at[FILTER_MAX];
};

static void add(
	struct filter *f, unsigned short code, unsigned k, unsigned char yes, unsigned char no)
{
	f->at[f->n++] = (struct sock_filter){.code = code, .jt = yes, .jf = no, .k = k};
}

static void load(struct filter *f, size_t offset)
{
	add(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void end(struct filter *f, unsigned action)
{
	add(f, BPF_RET | BPF_K, action, 0, 0);
}

/* Call @nr, where argument @arg is one of @values; all else of it is the end. */
static void narrow(struct filter *f, int nr, int arg, const unsigned *values, unsigned n)
{
	/* over this block, which ends for itself */
	add(f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, (unsigned char)(n * 2 + 2));
	load(f, offsetof(struct seccomp_data, args) + (size_t)arg * 8);
	for (unsigned i = 0; i < n; i++) {
		add(f, BPF_JMP | BPF_JEQ | BPF_K, values[i], 0, 1);
		end(f, SECCOMP_RET_ALLOW);
	}
	end(f, SECCOMP_RET_KILL_PROCESS);
}

int filter_install(struct err *err)
{
	static struct filter f;
	const unsigned self = (unsigned)getpid();
	struct sock_fprog prog = {.filter = f.at};

	load(&f, offsetof(struct seccomp_data, arch));
	add(&f, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	end(&f, SECCOMP_RET_KILL_PROCESS);
	load(&f, offsetof(struct seccomp_data, nr));
	narrow(&f, SYS_ioctl, 1, ioctls, sizeof(ioctls) / sizeof(ioctls[0]));
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		add(&f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)plain[i], 0, 1);
		end(&f, SECCOMP_RET_ALLOW);
	}
	narrow(&f, SYS_madvise, 2, advices, sizeof(advices) / sizeof(advices[0]));
	narrow(&f, SYS_tgkill, 0, &self, 1);
	narrow(&f, SYS_kill, 0, &self, 1);
	end(&f, SECCOMP_RET_KILL_PROCESS);
	prog.len = f.n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) !=
			0)
		return err_sys(err, errno ?: ESRCH, "give up system calls");
	return 0;
}
