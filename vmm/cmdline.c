/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's command line. QEMU's emulator hands the guest the host's own time stamp counter. A
 * guest kernel would calibrate it against the emulated PIT, which fails whenever the host is busy;
 * so the host measures the rate, once, against a clock that it can trust, and puts it on the
 * guest's command line.
 */
#include "vmm/cmdline.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/str.h"

#define MEASURE_NS 50000000LL
#define CACHE_NAME "tsc.json"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

#define CMDLINE                                                                                    \
	"console=ttyS0 quiet reboot=t panic=-1 tsc=reliable no_timer_check "                       \
	"lapic_timer_khz=1000000 "                                                                 \
	"rcupdate.rcu_cpu_stall_suppress=1 rcupdate.rcu_expedited=1 "                              \
	"sysctl.vm.compaction_proactiveness=0 init_on_alloc=1 parbake.root=/dev/vda"

static int64_t raw_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* One instant on both clocks: of some tries, the one with the least time between the readings. */
static void read_both(int64_t *ret_ns, uint64_t *ret_tsc)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 16; i++) {
		int64_t before = raw_ns();
		uint64_t tsc = __rdtsc();
		int64_t after = raw_ns();

		if (after - before < best) {
			best = after - before;
			*ret_ns = before + (after - before) / 2;
			*ret_tsc = tsc;
		}
	}
}

static uint64_t measure_khz(void)
{
	struct timespec nap = {.tv_nsec = MEASURE_NS};
	int64_t ns0 = 0, ns1 = 0;
	uint64_t tsc0 = 0, tsc1 = 0;

	read_both(&ns0, &tsc0);
	nanosleep(&nap, NULL);
	read_both(&ns1, &tsc1);
	/* 64 bit hold 50 ms of any counter times 10⁶ with room to spare, unless preempted for minutes */
	return (uint64_t)((unsigned __int128)(tsc1 - tsc0) * 1000000 / (uint64_t)(ns1 - ns0));
}

static int read_cache(const char *path, const char *boot_id, uint64_t *ret)
{
	cleanup_json json_t *obj = NULL;
	const char *id;
	int r = json_read_file(AT_FDCWD, path, &obj, NULL);

	if (r < 0)
		return r;
	r = json_get_string(obj, "boot_id", &id, NULL);
	if (r < 0)
		return r;
	if (strcmp(id, boot_id))
		return -ESTALE;
	return json_get_u64(obj, "khz", 1, UINT32_MAX, ret, NULL);
}

int machine_tsc_khz(uint64_t *ret, struct err *err)
{
	cleanup_free char *boot_id = NULL, *path = NULL, *text = NULL;
	cleanup_json json_t *obj = NULL;
	const char *run;
	uint64_t khz;
	int r = paths_get(PATHS_RUN, &run, err);

	if (r < 0)
		return r;
	r = file_read_all(AT_FDCWD, BOOT_ID, 256, &boot_id, NULL, err);
	if (r < 0)
		return r;
	boot_id[strcspn(boot_id, "\n")] = '\0';
	path = str_printf("%s/" CACHE_NAME, run);
	if (read_cache(path, boot_id, ret) == 0)
		return 0;
	khz = measure_khz();
	if (khz == 0 || khz > UINT32_MAX)
		return err_set(err, EIO,
			"the rate of the time stamp counter came out as %" PRIu64 " kHz", khz);
	obj = json_pack("{s:s, s:I}", "boot_id", boot_id, "khz", (json_int_t)khz);
	text = json_text(obj);
	r = file_publish(run, CACHE_NAME, text, strlen(text), 0600, err);
	if (r < 0)
		return r;
	*ret = khz;
	return 0;
}

bool machine_tsc_same(uint64_t a_khz, uint64_t b_khz)
{
	uint64_t apart = a_khz > b_khz ? a_khz - b_khz : b_khz - a_khz;

	return apart * 1000 <= (a_khz > b_khz ? a_khz : b_khz);
}

int machine_cmdline(enum machine_accel accel, bool settled, char **ret, struct err *err)
{
	const char *more = settled ? " norandmaps" : "";
	uint64_t khz;
	int r;

	if (accel != MACHINE_TCG) {
		*ret = str_printf(CMDLINE "%s", more);
		return 0;
	}
	r = machine_tsc_khz(&khz, err);
	if (r < 0)
		return r;
	*ret = str_printf(CMDLINE " clearcpuid=rep_good tsc_early_khz=%" PRIu64 "%s", khz, more);
	return 0;
}
