/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processor time comes from the clocks of thread and process, to the nanosecond; page faults from getrusage(2) and
 * /proc/PID/stat. Both are there for everybody. Instructions and system calls are the kernel's to count
 * (perf_event_open(2)): instructions need a processor whose counters this machine may use, system calls the
 * tracepoint of their entry. A counter is inherited by what the counted thread starts, so it has the monitor too.
 */
#include "benches/cost.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/str.h"

const char *const cost_names[] = {
	[COST_CPU] = "cpu_ns",
	[COST_INSTRUCTIONS] = "instructions",
	[COST_MINOR] = "minor_faults",
	[COST_MAJOR] = "major_faults",
	[COST_CALLS] = "system_calls",
};
const char *const cost_titles[] = {
	[COST_CPU] = "cpu",
	[COST_INSTRUCTIONS] = "instr",
	[COST_MINOR] = "minor",
	[COST_MAJOR] = "major",
	[COST_CALLS] = "calls",
};
const char *const cost_whose_names[] = {
	[COST_OWN] = "own",
	[COST_MONITOR] = "monitor",
	[COST_PAGER] = "pager",
};
static_assert(sizeof(cost_names) / sizeof(cost_names[0]) == COSTS, "every cost has a name");
static_assert(sizeof(cost_titles) / sizeof(cost_titles[0]) == COSTS, "every cost has a title");

/* ---- what this host counts ----------------------------------------------------------------- */

static struct {
	int64_t calls_id; /* of the tracepoint; -1: none */
	char why[COSTS][160];
} host;
static pthread_once_t host_known = PTHREAD_ONCE_INIT;

static int open_counter(uint32_t type, uint64_t config)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = type, .config = config, .inherit = 1};

	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* The number of the tracepoint at the entry of system calls. */
static int64_t find_calls(void)
{
	static const char *const places[] = {"/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
		"/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		cleanup_free char *text = NULL;

		if (file_read_all(AT_FDCWD, places[i], 64, &text, NULL, NULL) == 0)
			return strtoll(text, NULL, 10);
	}
	return -1;
}

static void try_counter(enum cost cost, uint32_t type, uint64_t config, const char *absent)
{
	cleanup_fd int fd = open_counter(type, config);
	const char *why = fd >= 0 ? NULL
		: errno == EACCES || errno == EPERM
		? "this user may not count them (kernel.perf_event_paranoid, CAP_PERFMON)"
		: errno == ENOENT || errno == EOPNOTSUPP || errno == ENODEV ? absent
									    : strerror(errno);

	if (why)
		snprintf(host.why[cost], sizeof(host.why[cost]), "%s", why);
}

static void look_at_host(void)
{
	host.calls_id = find_calls();
	try_counter(COST_INSTRUCTIONS, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS,
		"this processor shows no counter of them, as in most virtual machines");
	if (host.calls_id >= 0)
		try_counter(COST_CALLS, PERF_TYPE_TRACEPOINT, (uint64_t)host.calls_id,
			"the kernel has no tracepoint for them");
	else
		snprintf(host.why[COST_CALLS], sizeof(host.why[COST_CALLS]),
			"no tracepoint raw_syscalls:sys_enter (is tracefs mounted, and may this "
			"user read it?)");
}

const char *cost_absent(enum cost cost)
{
	pthread_once(&host_known, look_at_host);
	return host.why[cost];
}

void cost_open(struct cost_counters *ret)
{
	*ret = (struct cost_counters){-1, -1};
	if (!*cost_absent(COST_INSTRUCTIONS))
		ret->instructions = open_counter(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
	if (!*cost_absent(COST_CALLS))
		ret->calls = open_counter(PERF_TYPE_TRACEPOINT, (uint64_t)host.calls_id);
}

void cost_close(struct cost_counters *c)
{
	if (c->instructions >= 0)
		close(c->instructions);
	if (c->calls >= 0)
		close(c->calls);
	*c = (struct cost_counters){-1, -1};
}

/* ---- reading ------------------------------------------------------------------------------- */

static int64_t read_counter(int fd)
{
	uint64_t value;

	return fd >= 0 && read(fd, &value, sizeof(value)) == sizeof(value) ? (int64_t)value : -1;
}

void cost_faults(pid_t pid, int64_t *ret_minor, int64_t *ret_major)
{
	cleanup_free char *path = str_printf("/proc/%d/stat", pid);
	cleanup_free char *text = NULL;
	unsigned long minor, major;
	const char *after;

	*ret_minor = *ret_major = 0;
	if (file_read_all(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
		return;
	/* the name may hold anything but ends with the last bracket; faults are fields 10 and 12 */
	after = strrchr(text, ')');
	if (!after ||
		sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %lu %*u %lu", &minor, &major) != 2)
		return;
	*ret_minor = (int64_t)minor;
	*ret_major = (int64_t)major;
}

int64_t cost_cpu_now(pid_t monitor)
{
	return clock_thread_ns() + (monitor ? clock_process_ns(monitor) : 0);
}

void cost_read(const struct cost_counters *c, pid_t monitor, pid_t pager, struct cost_reading *ret)
{
	const pid_t pids[COST_WHOSE] = {[COST_MONITOR] = monitor, [COST_PAGER] = pager};
	struct rusage own;

	*ret = (struct cost_reading){
		.instructions = read_counter(c->instructions), .calls = read_counter(c->calls)};
	getrusage(RUSAGE_THREAD, &own);
	ret->cpu[COST_OWN] = clock_thread_ns();
	ret->minor[COST_OWN] = own.ru_minflt;
	ret->major[COST_OWN] = own.ru_majflt;
	for (int i = 0; i < COST_WHOSE; i++) {
		if (!pids[i])
			continue;
		ret->cpu[i] = clock_process_ns(pids[i]);
		cost_faults(pids[i], &ret->minor[i], &ret->major[i]);
	}
}

void cost_between(const struct cost_reading *before, const struct cost_reading *after,
	struct cost_sample *ret)
{
	*ret = (struct cost_sample){0};
	for (int i = 0; i < COST_WHOSE; i++) {
		ret->cpu_of[i] = after->cpu[i] - before->cpu[i];
		ret->total[COST_CPU] += ret->cpu_of[i];
		ret->total[COST_MINOR] += after->minor[i] - before->minor[i];
		ret->total[COST_MAJOR] += after->major[i] - before->major[i];
	}
	ret->total[COST_INSTRUCTIONS] = before->instructions < 0 || after->instructions < 0
		? -1
		: after->instructions - before->instructions;
	ret->total[COST_CALLS] =
		before->calls < 0 || after->calls < 0 ? -1 : after->calls - before->calls;
}
