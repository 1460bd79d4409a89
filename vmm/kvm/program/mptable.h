/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_MPTABLE_H
#define PARBAKE_VMM_KVM_MPTABLE_H

/* The MP table of a booting machine: how many processors there are, and which interrupt lines lead where. */
#include <stdint.h>

#define MPTABLE_BYTES 1024u

/* Write an MP table for @vcpus (1 … 8) processors to @to, MPTABLE_BYTES of room, which the guest sees at @at. */
void mptable_write(uint8_t *to, uint64_t at, unsigned vcpus);

#endif
