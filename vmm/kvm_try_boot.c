/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trying KVM with our own kernel: two machines boot beside each other, one under KVM, one emulated,
 * until an agent answers. So the bound is the host's own: on a busy or slow one both are slow. They
 * are compared by the processor time that each has used until its hello; the time that passes
 * counts only where a machine uses none. A monitor that does not emulate has its machine boot
 * alone, with a bound of its own.
 */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/limits.h"
#include "vmm/cmdline.h"
#include "vmm/guest/guest.h"
#include "vmm/kvm_try.h"

#define MEMORY (128 * MIB)
#define DISK (16 * MIB)
#define SLICE_MS 100
#define SYNC_MS 500
#define IDLE_TIMES                                                                                 \
	4 /* an answer that takes so many times as long as emulation's counts as none … */
#define IDLE_MS 5000 /* … after that long */
#define ALONE_CPU_MS 30000 /* where nothing is there to compare with */

struct racer {
	enum machine_accel accel;
	struct machine *machine;
	struct guest *guest;
	int memory, disk, overlay;
	bool answered, ended;
	int64_t cpu_ns, took_ns; /* until it answered or ended; of one that runs: so far */
};

#define RACER_INIT(a)                                                                              \
	{                                                                                          \
		.accel = (a), .memory = -1, .disk = -1, .overlay = -1                              \
	}

static void racer_clear(struct racer *r)
{
	guest_free(r->guest);
	machine_free(r->machine);
	close_fd(&r->memory);
	close_fd(&r->disk);
	close_fd(&r->overlay);
}

static int make_file(const char *name, uint64_t bytes, struct err *err)
{
	cleanup_fd int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return err_sys(err, errno, "memory for a machine");
	return steal_fd(&fd);
}

static int make_disk(struct racer *r, struct err *err)
{
	cleanup_fd int disk = make_file("parbake-disk", DISK, err);
	char path[64];

	if (disk < 0)
		return disk;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", disk);
	r->disk = open(path, O_RDONLY | O_CLOEXEC);
	if (r->disk < 0)
		return err_sys(err, errno, "a disk for a machine");
	r->overlay = make_file("parbake-overlay", 0, err);
	return r->overlay < 0 ? r->overlay : machine_overlay_init(r->overlay, DISK, err);
}

/* The root is an empty disk: the agent answers all the same. */
static int start(struct racer *r, const struct monitor_facts *facts, const char *kernel,
	const char *initrd, struct err *err)
{
	struct machine_spec spec = {
		.shape = {.memory_bytes = MEMORY, .vcpus = 1, .accel = r->accel},
		.monitor = facts,
		.pager_fd = -1,
		.kernel = kernel,
		.initrd = initrd,
	};
	cleanup_free char *cmdline = NULL;
	cleanup_fd int channel = -1;
	int rc = r->memory = make_file("parbake-memory", MEMORY, err);

	if (rc >= 0)
		rc = make_disk(r, err);
	if (rc >= 0)
		rc = machine_cmdline(r->accel, false, &cmdline, err);
	if (rc < 0)
		return rc;
	spec.cmdline = cmdline;
	spec.memory_fd = r->memory;
	spec.disk_fd = r->disk;
	spec.overlay_fd = r->overlay;
	rc = machine_start(&spec, &r->machine, err);
	if (rc < 0)
		return rc;
	channel = machine_take_channel(r->machine);
	rc = guest_new(channel, &r->guest, err);
	if (rc < 0)
		return rc;
	steal_fd(&channel);
	guest_sync_send(r->guest);
	return 0;
}

/* Take in what has come of it. */
static void look(struct racer *r, int64_t begun_ns)
{
	if (!r->machine || r->answered || r->ended)
		return;
	/* a channel that has broken is no end: the machine's is what counts, and it is near */
	guest_dispatch(r->guest, NULL);
	r->answered = guest_synced(r->guest, NULL);
	r->ended = !r->answered && machine_get_state(r->machine) == MACHINE_ENDED;
	r->took_ns = clock_now_ns() - begun_ns;
	if (!r->ended)
		r->cpu_ns = clock_process_ns(machine_pid(r->machine));
}

static void wait_some(const struct racer *a, const struct racer *b)
{
	struct pollfd p[4];
	nfds_t n = 0;

	for (int i = 0; i < 2; i++) {
		const struct racer *r = i ? b : a;

		if (!r->machine || r->answered || r->ended)
			continue;
		/* that of a guest which is dead to us says so for ever */
		if (guest_events(r->guest))
			p[n++] = (struct pollfd){
				.fd = guest_fd(r->guest), .events = guest_events(r->guest)};
		p[n++] = (struct pollfd){.fd = machine_event_fd(r->machine), .events = POLLIN};
	}
	poll(p, n, SLICE_MS);
}

/* The first line of how it ended: what follows are registers and a console. */
static int tell_end(struct racer *kvm, struct err *err)
{
	struct err why;

	machine_end_reason(kvm->machine, &why);
	return err_set(err, EIO, "our kernel does not boot under KVM here: %.*s",
		(int)strcspn(why.text, "\n"), why.text);
}

/* 1: go on. */
static int judge(struct racer *kvm, const struct racer *tcg, struct err *err)
{
	if (kvm->answered && (!tcg->answered || kvm->cpu_ns <= tcg->cpu_ns))
		return 0;
	if (kvm->ended)
		return tell_end(kvm, err);
	if (!tcg->machine && kvm->cpu_ns > ALONE_CPU_MS * 1000000LL)
		return err_set(err, ETIME,
			"our kernel has not booted under KVM here after %d ms of processor time",
			ALONE_CPU_MS);
	if (tcg->answered && (kvm->answered || kvm->cpu_ns > tcg->cpu_ns))
		return err_set(err, ETIME,
			"our kernel boots more slowly under KVM here than emulated (%lld ms of "
			"processor time, and no end, to %lld)",
			(long long)kvm->cpu_ns / 1000000, (long long)tcg->cpu_ns / 1000000);
	if (tcg->answered && kvm->took_ns > tcg->took_ns * IDLE_TIMES &&
		kvm->took_ns > tcg->took_ns + IDLE_MS * 1000000LL)
		return err_set(err, ETIME,
			"our kernel stands still under KVM here, and boots in %lld ms emulated",
			(long long)tcg->took_ns / 1000000);
	if (kvm->took_ns > LIMIT_BOOT_MS * 1000000LL)
		return err_set(err, ETIMEDOUT,
			"our kernel does not boot within %d s, neither under KVM nor emulated",
			LIMIT_BOOT_MS / 1000);
	return 1;
}

int kvm_try_boot(
	const struct monitor_facts *facts, const char *kernel, const char *initrd, struct err *err)
{
	cleanup_with(racer_clear) struct racer kvm = RACER_INIT(MACHINE_KVM);
	cleanup_with(racer_clear) struct racer tcg = RACER_INIT(MACHINE_TCG);
	struct monitor_facts trusted = *facts;
	int64_t begun = clock_now_ns(), synced = begun;
	int r;

	trusted.has_kvm = true;
	r = start(&kvm, &trusted, kernel, initrd, err);
	if (r == 0 && facts->emulates)
		r = start(&tcg, &trusted, kernel, initrd, err);
	if (r < 0)
		return r;
	while ((r = judge(&kvm, &tcg, err)) > 0) {
		wait_some(&kvm, &tcg);
		look(&tcg, begun);
		look(&kvm, begun);
		/* a port that is not open yet loses what is sent to it */
		if (clock_now_ns() - synced > SYNC_MS * 1000000LL) {
			guest_sync_send(kvm.guest);
			if (tcg.guest)
				guest_sync_send(tcg.guest);
			synced = clock_now_ns();
		}
	}
	return r;
}
