/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a parbake-vmm gives up before it starts (common/confine.h does it). It opens nothing by
 * name, so the one file that it may open is its own program, which is to be started. The monitor
 * gives up the rest by itself, once it has set itself up (program/filter.c).
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/limits.h"
#include "common/proc.h"
#include "vmm/console.h"
#include "vmm/kvm/kvm_private.h"

/* its descriptors, and one of KVM's for each processor */
#define FILES 64
/* processors, the main thread, the watch; KVM has threads of its own, which are not counted */
#define THREADS 32
/* beside the guest's memory: stacks, tables */
#define OWN_MEMORY (64 * MIB)
#define OVERLAY_SLACK (64 * MIB) /* of an overlay: its tables are 1/4096 of its data and less */
#define VERSION_MS 30000

static struct {
	pthread_mutex_t lock;
	int files; /* -1: not yet, or the host has no Landlock */
	char program[4096]; /* that it is for */
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER, .files = -1};

static int find_files(const char *program, int *ret, struct err *err)
{
	const struct confine_path path = {.path = program};
	int r = 0;

	pthread_mutex_lock(&kept.lock);
	if (strcmp(kept.program, program) != 0) {
		r = confine_files_new(&path, 1, err);
		if (r >= -1) {
			close_fd(&kept.files);
			kept.files = r;
			snprintf(kept.program, sizeof(kept.program), "%s", program);
			r = 0;
		}
	}
	*ret = kept.files;
	pthread_mutex_unlock(&kept.lock);
	return r;
}

int kvm_confine_make(const char *program, const struct machine_shape *shape, uint64_t disk_bytes,
	bool uffd_call, struct confine *ret, struct err *err)
{
	int r;

	*ret = (struct confine)CONFINE_INIT;
	r = find_files(program, &ret->files_fd, err);
	if (r < 0)
		return r;
	ret->may = CONFINE_MAY_EXEC | (uffd_call ? CONFINE_MAY_UFFD : 0);
	ret->killed_first = true;
	confine_limit(ret, RLIMIT_CORE, 0);
	confine_limit(ret, RLIMIT_NOFILE, FILES);
	confine_limit(ret, RLIMIT_NPROC, THREADS);
	confine_limit(ret, RLIMIT_FSIZE, disk_bytes + disk_bytes / 64 + OVERLAY_SLACK);
	confine_limit(ret, RLIMIT_DATA, shape->memory_bytes + OWN_MEMORY);
	confine_limit(ret, RLIMIT_MEMLOCK, 0);
	confine_limit(ret, RLIMIT_MSGQUEUE, 0);
	confine_limit(ret, RLIMIT_RTPRIO, 0);
	return 0;
}

int kvm_prepare(const struct monitor_facts *facts, struct err *err)
{
	int files;

	confine_host();
	console_stop();
	return find_files(facts->program, &files, err);
}

int kvm_confined(const struct monitor_facts *facts, struct err *err)
{
	static const struct machine_shape shape = {.memory_bytes = 256 * MIB, .vcpus = 1};
	const char *const argv[] = {facts->program, "--version", NULL};
	cleanup_free char *out = NULL;
	struct confine confine;
	struct proc_spec spec = {
		.argv = argv, .confine = &confine, .die_with_parent = true, .cwd = "/"};
	int r = kvm_confine_make(facts->program, &shape, GIB, false, &confine, err);

	return r < 0 ? r : proc_output(&spec, VERSION_MS, 64 * KIB, &out, err);
}
