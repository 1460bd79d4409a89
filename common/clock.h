/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_CLOCK_H
#define PARBAKE_COMMON_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Now on CLOCK_MONOTONIC, in nanoseconds. */
static inline int64_t clock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/*
 * Now on CLOCK_BOOTTIME, in nanoseconds: as CLOCK_MONOTONIC, but it goes on while the host sleeps.
 * It is for times that were promised to somebody, leases above all. A deadline for work is on
 * CLOCK_MONOTONIC: it stands still when the work does.
 */
static inline int64_t clock_boot_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* Processor time that the process @pid, with all its threads, has used, in nanoseconds; 0: it is gone. */
static inline int64_t clock_process_ns(pid_t pid)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) < 0)
		return 0;
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* Likewise the calling thread. */
static inline int64_t clock_thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* Now on CLOCK_REALTIME, in nanoseconds since 1970. */
static inline int64_t clock_realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/*
 * A deadline is a CLOCK_MONOTONIC time in nanoseconds; CLOCK_NEVER does not pass. clock_deadline()
 * takes milliseconds from now; negative means never, and so does a time beyond what a clock can
 * show (292 years).
 */
#define CLOCK_NEVER INT64_MAX

static inline int64_t clock_after(int64_t now_ns, int64_t in_ms)
{
	int64_t at;

	if (in_ms < 0 || __builtin_mul_overflow(in_ms, 1000000, &at) ||
		__builtin_add_overflow(at, now_ns, &at))
		return CLOCK_NEVER;
	return at;
}

static inline int64_t clock_deadline(int64_t in_ms)
{
	return clock_after(clock_now_ns(), in_ms);
}

/* The same on CLOCK_BOOTTIME, for loop_timer_boot(). */
static inline int64_t clock_boot_deadline(int64_t in_ms)
{
	return clock_after(clock_boot_ns(), in_ms);
}

/* What is left until @deadline for poll(2): -1 never, 0 passed, rounded up. */
static inline int clock_left_ms(int64_t deadline)
{
	int64_t left;

	if (deadline == CLOCK_NEVER)
		return -1;
	left = (deadline - clock_now_ns() + 999999) / 1000000;
	return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

#endif
