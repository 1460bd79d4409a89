/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether KVM works here is found out by trying it, and the quick tries agree with the real thing: our kernel's boot.
 * What is right depends on the host, so each kind of host is told by what it does, and each has something to hold.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/paths.h"
#include "tests/unit/tap.h"
#include "vmm/kernel.h"
#include "vmm/kvm_try.h"

static bool definite(int r)
{
	return r == 0 || r == -EIO || r == -ETIME;
}

/* @facts boots our kernel; what comes of it under KVM. */
static int boot(const struct monitor_facts *facts, struct err *err)
{
	cleanup_free char *kernel = NULL, *initrd = NULL;
	int r = machine_kernel_path(&kernel, err);

	if (r == 0)
		r = paths_lib("initramfs.cpio", &initrd, err);
	return r < 0 ? r : kvm_try_boot(facts, kernel, initrd, err);
}

static void test_verdict(const struct monitor_facts *facts, bool device, int mode)
{
	struct err err = {""};
	int64_t begun = clock_now_ns();
	int r = boot(facts, &err);

	printf("# %s: %d, %s (%lld ms)\n", facts->program, r, r < 0 ? err.text : "it boots",
		(long long)(clock_now_ns() - begun) / 1000000);
	if (!device) {
		ok(r < 0, "without a device nothing boots under KVM");
		return;
	}
	ok(definite(r), "the boot under KVM has an outcome");
	if (r < 0)
		ok(err.text[0] && !strchr(err.text, '\n'),
			"one line says why a boot under KVM came to nothing");
	ok(mode == 0 || r < 0, "where kernel mode is interpreted, our kernel does not do better");
	is_int(facts->has_kvm, mode == 0 && r == 0, "what was found before is the same");
}

static void test_choice(const struct monitor_facts *facts)
{
	enum machine_accel accel = MACHINE_TCG;
	cleanup_free char *why = NULL;
	struct err err = {""};
	int r;

	unsetenv("PARBAKE_ACCEL");
	is_int(monitor_default_accel(&accel, &err), 0, "there is an accelerator");
	is_int(accel, facts->has_kvm ? MACHINE_KVM : MACHINE_TCG, "KVM where it works, only there");
	why = monitor_accel_reason(facts, accel);
	has_str(why, facts->has_kvm ? "kvm works" : facts->why_not_kvm, "a sentence says why");
	setenv("PARBAKE_ACCEL", "tcg", 1);
	is_int(monitor_default_accel(&accel, &err), 0, "tcg can be asked for");
	is_int(accel, MACHINE_TCG, "tcg is given where it is asked for");
	setenv("PARBAKE_ACCEL", "kvm", 1);
	r = monitor_default_accel(&accel, &err);
	is_int(r, facts->has_kvm ? 0 : -ENODEV, "kvm is given where it works, else refused");
	if (r < 0)
		has_str(err.text, facts->why_not_kvm, "with why not");
	unsetenv("PARBAKE_ACCEL");
}

static void test_host(void)
{
	cleanup_free char *a = kvm_try_host(), *b = kvm_try_host();

	is_str(a, b, "a host is the same twice");
	ok(!strchr(a, '\n') && strlen(a) > 20, "what names a host is one line");
}

int main(void)
{
	const struct monitor_facts *facts = NULL;
	struct err err = {""};
	bool device = kvm_try_device(&err) == 0;
	int mode = 0;

	printf("# device: %s\n", device ? "it opens" : err.text);
	test_host();
	if (device) {
		mode = kvm_try_kernel_mode(&err);
		printf("# kernel mode: %d, %s\n", mode, mode < 0 ? err.text : "good");
		ok(definite(mode), "kernel mode has an outcome");
	} else {
		ok(kvm_try_kernel_mode(&err) < 0, "kernel mode needs the device");
	}
	is_int(monitor_probe(&facts, &err), 0, "there is a monitor");
	test_choice(facts);
	for (unsigned i = 0; monitor_candidate(i, &facts, &err) == 0; i++)
		test_verdict(facts, device, mode);
	return tap_done();
}
