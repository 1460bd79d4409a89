/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_WIPE_H
#define AGENT_WIPE_H
/*
 * What the agent forgets before its memory goes into a snapshot. Its freed heap is wiped as it is freed, by
 * wipe.c itself; buffers that live on have a function of their own (pump_wipe).
 */

/*
 * Zero the vector registers of the calling thread: a copy or a comparison leaves the last bytes of what it
 * went over in them, the kernel saves them with the thread, and each child is made with a copy.
 */
void registers_wipe(void);

#endif
