/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp filter of a confined process.
 *
 * It lists what is denied, not what is allowed. The program that it confines may be any version of
 * a monitor with any version of its libraries, and a monitor that is killed by a call that nobody
 * foresaw is of no use. Denied are the calls that reach other processes, the network, names in the
 * file system, other namespaces, keys, clocks, and the kernel's larger and rarer parts; and all
 * calls that are newer than this list. They fail with EPERM (or with ENOSYS, where programs try a
 * call and can do without it). Some calls that are allowed are narrowed: the process may make
 * threads but no processes, may send signals to itself alone, and may not outlive its parent, have
 * the kernel send SIGIO to any process (fcntl(2), ioctl(2)), or type into a terminal.
 *
 * The kernel runs a new filter once for each system call that there is, to know which of them it
 * allows whatever their arguments. So the filter is a binary search over runs of numbers, and not a
 * list of comparisons: that took longer than all the rest of confining.
 *
 * With QEMU this filter comes before QEMU's own -sandbox, which denies execve once QEMU has
 * started.
 */
#include <assert.h>
#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "common/confine_private.h"

#ifndef __x86_64__
#error "the numbers of system calls are those of x86_64"
#endif

#define NEWEST 462 /* mseal, Linux 6.10: what comes behind it is not there */
/* newer than some headers */
#define NR_cachestat 451
#define NR_fchmodat2 452
#define NR_statmount 457
#define NR_listmount 458

static_assert(sizeof(((struct confine_ready *)0)->filter[0]) == sizeof(struct sock_filter) &&
		sizeof(struct sock_filter) == 8,
	"one instruction");

static const short denied[] = {
	/* the network */
	SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_connect, SYS_accept,
	/* other processes */
	SYS_fork, SYS_vfork, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
	SYS_process_madvise, SYS_process_mrelease, SYS_pidfd_open, SYS_pidfd_getfd,
	SYS_pidfd_send_signal, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
	SYS_get_robust_list, SYS_migrate_pages, SYS_move_pages,
	/* names in the file system: nothing is made, changed, linked or removed */
	SYS_creat, SYS_mkdir, SYS_mkdirat, SYS_rmdir, SYS_mknod, SYS_mknodat, SYS_link, SYS_linkat,
	SYS_symlink, SYS_symlinkat, SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat,
	SYS_renameat2, SYS_truncate, SYS_chmod, SYS_fchmod, SYS_fchmodat, NR_fchmodat2, SYS_chown,
	SYS_fchown, SYS_lchown, SYS_fchownat, SYS_utime, SYS_utimes, SYS_futimesat, SYS_utimensat,
	SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr,
	SYS_fremovexattr, SYS_inotify_add_watch, SYS_fanotify_init, SYS_fanotify_mark,
	SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_quotactl, SYS_quotactl_fd, SYS_mincore,
	NR_cachestat,
	/* namespaces and mounts */
	SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount,
	SYS_open_tree, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr,
	NR_statmount, NR_listmount,
	/* System V and POSIX IPC */
	SYS_shmget, SYS_shmat, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
	SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink,
	SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
	/* keys, and users (there is none to become) */
	SYS_add_key, SYS_request_key, SYS_keyctl, SYS_setuid, SYS_setgid, SYS_setreuid,
	SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_setgroups,
	SYS_capset,
	/* the host as a whole */
	SYS_reboot, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module,
	SYS_delete_module, SYS_swapon, SYS_swapoff, SYS_acct, SYS_sethostname, SYS_setdomainname,
	SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_syslog,
	SYS_vhangup, SYS_iopl, SYS_ioperm,
	/* large and rare */
	SYS_bpf, SYS_perf_event_open, SYS_modify_ldt, SYS_personality, SYS_lookup_dcookie,
	SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl, SYS_nfsservctl, SYS_memfd_secret,
	SYS_vmsplice};

/* Tried by programs, which then do without. */
static const short absent[] = {SYS_clone3 /* its flags lie in memory */, SYS_io_uring_setup,
	SYS_io_uring_enter, SYS_io_uring_register};

/* Denied where argument @arg is @value, and, where there are @bits, the one behind it has any of them. */
static const struct {
	short nr, arg;
	unsigned value, bits;
} narrowed[] = {
	{SYS_prctl, 0, PR_SET_PDEATHSIG, 0},
	{SYS_prctl, 0, PR_SET_MM, 0},
	{SYS_fcntl, 1, F_SETOWN, 0},
	{SYS_fcntl, 1, F_SETOWN_EX, 0},
	{SYS_fcntl, 1, F_SETSIG, 0},
	{SYS_fcntl, 1, F_SETFL, O_ASYNC},
	{SYS_ioctl, 1, FIOSETOWN, 0},
	{SYS_ioctl, 1, SIOCSPGRP, 0},
	{SYS_ioctl, 1, FIOASYNC, 0},
	{SYS_ioctl, 1, TIOCSTI, 0}, /* types into the terminal it was started from */
	{SYS_ioctl, 1, TIOCLINUX, 0},
	{SYS_ioctl, 1, TIOCSCTTY, 0},
	{SYS_ioctl, 1, TIOCSPGRP, 0},
};

static void add(struct confine_ready *f, unsigned short code, unsigned k, unsigned char yes,
	unsigned char no)
{
	assert(f->n < CONFINE_FILTER_MAX);
	f->filter[f->n].code = code;
	f->filter[f->n].yes = yes;
	f->filter[f->n].no = no;
	f->filter[f->n++].k = k;
}

static void load(struct confine_ready *f, size_t offset)
{
	add(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

/* The low half of an argument: all that is compared here are ints and flags. */
static void load_arg(struct confine_ready *f, int arg)
{
	load(f, offsetof(struct seccomp_data, args) + (size_t)arg * 8);
}

static void end(struct confine_ready *f, unsigned action)
{
	add(f, BPF_RET | BPF_K, action, 0, 0);
}

/* Signals: the first argument is a process, which must be this one. */
static void only_itself(struct confine_ready *f)
{
	load_arg(f, 0);
	assert(f->n_self < sizeof(f->self) / sizeof(f->self[0]));
	f->self[f->n_self++] = f->n;
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
	end(f, SECCOMP_RET_ALLOW);
	end(f, SECCOMP_RET_ERRNO | EPERM);
}

static void only_threads(struct confine_ready *f)
{
	load_arg(f, 0);
	add(f, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
	end(f, SECCOMP_RET_ALLOW);
	end(f, SECCOMP_RET_ERRNO | EPERM);
}

static void all_but(struct confine_ready *f, int nr)
{
	for (size_t i = 0; i < sizeof(narrowed) / sizeof(narrowed[0]); i++) {
		if (narrowed[i].nr != nr)
			continue;
		load_arg(f, narrowed[i].arg);
		add(f, BPF_JMP | BPF_JEQ | BPF_K, narrowed[i].value, 0, narrowed[i].bits ? 3 : 1);
		if (narrowed[i].bits) {
			load_arg(f, narrowed[i].arg + 1);
			add(f, BPF_JMP | BPF_JSET | BPF_K, narrowed[i].bits, 0, 1);
		}
		end(f, SECCOMP_RET_ERRNO | EPERM);
	}
	end(f, SECCOMP_RET_ALLOW);
}

/* What becomes of each call. */
enum fate { ALLOWED, DENIED, ABSENT, ITSELF, THREADS, NARROWED };

static void leaf(struct confine_ready *f, enum fate fate, int nr)
{
	switch (fate) {
	case ALLOWED:
		end(f, SECCOMP_RET_ALLOW);
		break;
	case DENIED:
		end(f, SECCOMP_RET_ERRNO | EPERM);
		break;
	case ABSENT:
		end(f, SECCOMP_RET_ERRNO | ENOSYS);
		break;
	case ITSELF:
		only_itself(f);
		break;
	case THREADS:
		only_threads(f);
		break;
	case NARROWED:
		all_but(f, nr);
		break;
	}
}

/* The numbers from starts[0] up to starts[n], which is behind the last run. */
static void search(
	struct confine_ready *f, const unsigned char *fates, const unsigned short *starts, size_t n)
{
	size_t jump;

	if (n == 1) {
		leaf(f, fates[starts[0]], starts[0]);
		return;
	}
	add(f, BPF_JMP | BPF_JGE | BPF_K, starts[n / 2], 0, 1);
	jump = f->n;
	add(f, BPF_JMP | BPF_JA, 0, 0, 0);
	search(f, fates, starts, n / 2);
	f->filter[jump].k = (unsigned)(f->n - jump - 1);
	search(f, fates, starts + n / 2, n - n / 2);
}

static void decide(unsigned may, unsigned char *fates)
{
	for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
		fates[denied[i]] = DENIED;
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		fates[absent[i]] = ABSENT;
	for (size_t i = 0; i < sizeof(narrowed) / sizeof(narrowed[0]); i++)
		fates[narrowed[i].nr] = NARROWED;
	fates[SYS_kill] = fates[SYS_tgkill] = ITSELF;
	fates[SYS_clone] = THREADS;
	if (!(may & CONFINE_MAY_EXEC))
		fates[SYS_execve] = fates[SYS_execveat] = DENIED;
	if (!(may & CONFINE_MAY_ACCEPT))
		fates[SYS_accept4] = DENIED;
	if (!(may & CONFINE_MAY_MEMFD))
		fates[SYS_memfd_create] = DENIED;
	if (!(may & CONFINE_MAY_UFFD))
		fates[SYS_userfaultfd] = DENIED;
}

void confine_filter_make(struct confine_ready *f)
{
	unsigned char fates[NEWEST + 1] = {ALLOWED};
	unsigned short starts[NEWEST + 1];
	size_t n = 0;

	decide(f->c->may, fates);
	for (unsigned short nr = 0; nr <= NEWEST; nr++) {
		/* what looks at arguments stands alone */
		if (nr == 0 || fates[nr] != fates[nr - 1] || fates[nr] >= ITSELF)
			starts[n++] = nr;
	}
	load(f, offsetof(struct seccomp_data, arch));
	add(f, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	end(f, SECCOMP_RET_KILL_PROCESS);
	load(f, offsetof(struct seccomp_data, nr));
	/* x32's numbers are above as well */
	add(f, BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1);
	end(f, SECCOMP_RET_ERRNO | ENOSYS);
	search(f, fates, starts, n);
}
