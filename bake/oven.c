/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Booting the machine that is to be captured. The files that the machine needs are made here, have
 * no names, and are gone when the machine is.
 */
#include "bake/oven.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/str.h"
#include "vmm/boot.h"
#include "vmm/cmdline.h"

#define CALL_MS 60000
#define WORDS_LINES 12

void oven_explain(struct oven *o, struct err *err)
{
	cleanup_free char *words = o->machine ? machine_console(o->machine) : NULL;
	const char *p;
	unsigned lines = 0;

	if (!words || !*words)
		return;
	p = words + strlen(words);
	while (p > words && p[-1] == '\n')
		p--;
	for (const char *end = p; p > words; p--)
		if (p[-1] == '\n' && p != end && ++lines == WORDS_LINES)
			break;
	err_append(err, "\nthe console said last:\n%s", p);
}

int oven_call(struct oven *o, enum proto_type type, const struct proto_out *body, int64_t ms,
	struct err *err)
{
	return guest_call(o->guest, type, body, clock_deadline(ms), o->alive_fd, NULL, NULL, err);
}

static int introduce(struct oven *o, struct err *err)
{
	uint8_t buf[1024];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	struct guest_identity id;
	struct guest_exec_spec look = {
		.argv = (const char *const[]){"/bin/bash", "-c", ":", NULL}, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int rc = guest_identity_make(OVEN_HOSTNAME, &id, err);

	if (rc)
		return rc;
	guest_identity_body(&id, &body);
	rc = oven_call(o, PROTO_IDENTITY, &body, CALL_MS, err);
	if (rc) {
		err_prefix(err, "set the guest's clock and entropy");
		return rc;
	}
	/* a root without bash is no error: its steps run in sh */
	o->bash = guest_exec(o->guest, &look, clock_deadline(CALL_MS), o->alive_fd, &res, NULL) ==
			0 &&
		res.exit_code == 0;
	return 0;
}

static int start(struct oven *o, const struct oven_spec *spec, struct err *err)
{
	cleanup_free char *cmdline = NULL;
	struct machine_spec ms = {
		.shape = spec->shape,
		.monitor = spec->monitor,
		.memory_fd = o->memory_fd,
		.pager_fd = -1,
		.disk_fd = spec->disk_fd,
		.overlay_fd = o->overlay_fd,
		.kernel = spec->kernel,
		.initrd = spec->initrd,
	};
	cleanup_fd int channel = -1;
	int rc = machine_cmdline(spec->shape.accel, spec->settled, &cmdline, err);

	if (!rc && spec->shape.accel == MACHINE_TCG)
		rc = machine_tsc_khz(&o->tsc_khz, err);
	ms.cmdline = cmdline;
	if (!rc)
		rc = machine_start(&ms, &o->machine, err);
	if (rc)
		return rc;
	o->alive_fd = machine_pidfd(o->machine);
	channel = machine_take_channel(o->machine);
	if (channel < 0)
		return err_sys(err, -channel, "the agent's channel");
	rc = guest_new(channel, &o->guest, err);
	if (rc)
		return rc;
	steal_fd(&channel);
	machine_watch(o->machine, o->guest);
	return 0;
}

int oven_boot(const struct oven_spec *spec, struct oven *ret, struct err *err)
{
	struct oven *o = ret;
	int rc;

	*o = (struct oven)OVEN_INIT;
	o->shape = spec->shape;
	o->settled = spec->settled;
	o->progress = spec->progress;
	o->memory_fd = memfd_create("parbake-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (o->memory_fd < 0 || ftruncate(o->memory_fd, (off_t)spec->shape.memory_bytes))
		rc = err_sys(err, errno, "a machine's memory");
	else
		rc = o->overlay_fd = file_scratch(spec->scratch_dir, err);
	if (rc >= 0)
		rc = machine_overlay_init(o->overlay_fd, spec->disk_bytes, err);
	if (!rc)
		rc = start(o, spec, err);
	if (!rc)
		rc = machine_boot_wait(o->machine, o->guest, o->progress, &o->hello, err);
	if (!rc && !(o->hello.flags & PROTO_HELLO_ROOT)) {
		rc = err_set(err, EIO, "boot: the agent answers, but could not mount the root");
		oven_explain(o, err);
	}
	if (!rc)
		rc = introduce(o, err);
	if (rc)
		oven_clear(o);
	return rc;
}

void oven_clear(struct oven *o)
{
	json_decref(steal_ptr(&o->processes));
	guest_free(steal_ptr(&o->guest));
	machine_free(steal_ptr(&o->machine));
	close_fd(&o->memory_fd);
	close_fd(&o->overlay_fd);
	*o = (struct oven)OVEN_INIT;
}
