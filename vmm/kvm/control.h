/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_CONTROL_H
#define PARBAKE_VMM_KVM_CONTROL_H

#include <stdint.h>

/*
 * The messages between parbake and its KVM monitor, over a pair of SOCK_SEQPACKET sockets. Both are
 * of one build, so numbers are in the processor's byte order. The first message is the setup; the
 * monitor answers it as it answers each request after it, in order. Requests may be sent ahead of
 * the answers.
 */

/* Descriptors in the monitor's process. */
enum kvm_fd {
	KVM_FD_CONTROL = 3,
	KVM_FD_KVM, /* /dev/kvm */
	KVM_FD_MEMORY,
	KVM_FD_DISK, /* the raw base */
	KVM_FD_OVERLAY,
	KVM_FD_CHANNEL, /* the agent's: a unix socket of streams */
	KVM_FD_CONSOLE, /* what the guest prints: a pipe */
	KVM_FD_PAGER, /* with KVM_SETUP_PAGER, as the next where it may be opened */
	KVM_FD_UFFD_DEV,
	KVM_FD_KERNEL, /* with KVM_SETUP_BOOT, as the next */
	KVM_FD_INITRD,
};

#define KVM_SETUP_BOOT 1u /* memory is shared with its owner, the guest starts at once */
#define KVM_SETUP_PAGER 2u /* memory is handed to a pager */
#define KVM_SETUP_UFFD_DEV 4u /* KVM_FD_UFFD_DEV is there */
#define KVM_SETUP_UNFILTERED 8u /* no seccomp filter: PARBAKE_CONFINE=off */

#define KVM_CMDLINE_MAX 2048

struct kvm_setup {
	uint32_t version; /* KVM_CONTROL_VERSION */
	uint32_t flags;
	uint64_t memory_bytes;
	uint32_t vcpus;
	uint32_t cmdline_len; /* its bytes follow, without a NUL */
};

#define KVM_CONTROL_VERSION 1u
/*
 * The version of state records and of all that a snapshot's guest sees of its machine: it is raised
 * when either changes.
 */
#define KVM_STATE_VERSION 1

enum kvm_command {
	KVM_READY, /* the answer to the setup */
	KVM_RESTORE, /* with a descriptor: the state record, a regular file */
	KVM_RESUME,
	KVM_PAUSE,
	KVM_CAPTURE, /* with a descriptor: a regular file, empty, for the state record */
	KVM_READ_MEMORY, /* with a descriptor: a memfd, emptied first */
	KVM_DISK_ERROR, /* not a request: the monitor sends it by itself, once, when its disk fails on the host's side */
};

struct kvm_request {
	uint32_t command;
	uint32_t unused;
	uint64_t offset, len; /* KVM_READ_MEMORY */
};

#define KVM_REPLY_TEXT 512

struct kvm_reply {
	uint32_t command;
	int32_t error; /* 0 or a positive errno */
	/* KVM_READY, KVM_RESTORE: what the steps took, ns (enum kvm_step) */
	uint32_t steps[16];
	char text[KVM_REPLY_TEXT]; /* only its used part is sent; NUL-terminated */
};

/* The steps of a start and of a restore. */
enum kvm_step {
	KVM_STEP_MEMORY, /* mapped, registered, handed over */
	KVM_STEP_VM,
	KVM_STEP_IRQCHIP,
	KVM_STEP_SLOTS,
	KVM_STEP_VCPUS,
	KVM_STEP_CPUID,
	KVM_STEP_DEVICES,
	KVM_STEP_THREADS,
	KVM_STEP_FILTER,
	KVM_STEP_READ, /* restore: the record read and checked */
	KVM_STEP_LOAD, /* restore: put into KVM */
	KVM_STEPS
};

#endif
