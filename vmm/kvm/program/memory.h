/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_MEMORY_H
#define PARBAKE_VMM_KVM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

/*
 * Guest memory: one mapping, which the guest sees in one or two pieces. Below MEMORY_LOW_END guest addresses are
 * offsets in it; what is more lies from MEMORY_HIGH on. Between them are the devices and interrupt controllers.
 */
#define MEMORY_PAGE 4096ull
#define MEMORY_LOW_END 0xc0000000ull
#define MEMORY_HIGH 0x100000000ull

struct memory {
	uint8_t *base;
	uint64_t bytes;
	bool shared; /* its file is shared with the owner: the machine boots */
};

/* Map @bytes of @fd; @shared or privately. */
int memory_map(struct memory *m, int fd, uint64_t bytes, bool shared, struct err *err);
/*
 * Hand the memory to the pager at the socket @pager_fd: a userfaultfd, made by @dev_fd (taken; -1:
 * by the system call), with missing and minor faults. From then on a thread that touches a page
 * waits for the pager; where the pager ends, this process is killed. This is never undone.
 */
int memory_hand_over(struct memory *m, int pager_fd, int dev_fd, struct err *err);
/* Where [@at, @at + @len) of the guest's addresses lies; NULL where not all of it is memory. Any thread. */
void *memory_at(const struct memory *m, uint64_t at, uint64_t len);
/*
 * Discard bytes that the guest has no more use for: the whole pages among them read as zeros from
 * now on. Any thread.
 */
void memory_discard(const struct memory *m, uint64_t at, uint64_t len);

/* The bytes of the lower piece. */
static inline uint64_t memory_low(const struct memory *m)
{
	return m->bytes < MEMORY_LOW_END ? m->bytes : MEMORY_LOW_END;
}

#endif
