/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the monitor: a few, small, started once. */
#include "vmm/kvm/program/thread.h"

#include <limits.h>
#include <signal.h>

#define STACK_BYTES (64 * 1024)

int thread_start(void *(*fn)(void *), void *arg, int sig, struct err *err)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int r;

	sigfillset(&all);
	if (sig)
		sigdelset(&all, sig);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return r ? err_sys(err, r, "start a thread") : 0;
}
