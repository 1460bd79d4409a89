/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_THREAD_H
#define PARBAKE_VMM_KVM_THREAD_H

#include <pthread.h>

#include "common/err.h"

/* Start a thread with a small stack, which takes no signals but those that it asks for. */
int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, struct err *err);

#endif
