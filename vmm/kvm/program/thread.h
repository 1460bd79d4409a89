/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_THREAD_H
#define PARBAKE_VMM_KVM_THREAD_H

#include <pthread.h>

#include "common/err.h"

/*
 * Threads of the monitor. Start a thread with a small stack, which takes no signal but @sig (0:
 * none).
 */
int thread_start(void *(*fn)(void *), void *arg, int sig, struct err *err);

#endif
