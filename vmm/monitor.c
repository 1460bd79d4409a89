/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is the same for every monitor: the state that a machine is in, the calls that the state
 * allows, and how the machine's end is reported. The drivers do the rest.
 *
 * A machine's process is reaped only by machine_free(). Until then its pidfd stays, and how it
 * ended can be asked again and again (waitid with WNOWAIT).
 */
#include "vmm/monitor.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/confine.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/str.h"
#include "vmm/machine.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* bytes quoted in an error; a kernel's panic is a long story */
#define LAST_WORDS_MONITOR 500
#define LAST_WORDS_GUEST 1200

static const char *const accel_names[] = {
	[MACHINE_TCG] = "tcg",
	[MACHINE_KVM] = "kvm",
};
static_assert(sizeof(accel_names) / sizeof(accel_names[0]) == MACHINE_KVM + 1, "all named");

static const char *const state_names[] = {
	[MACHINE_STANDBY] = "a standby",
	[MACHINE_PAUSED] = "paused",
	[MACHINE_RUNNING] = "running",
	[MACHINE_ENDED] = "ended",
};
static_assert(sizeof(state_names) / sizeof(state_names[0]) == MACHINE_ENDED + 1, "all named");

const char *machine_accel_name(enum machine_accel accel)
{
	return accel_names[accel];
}

static const char *machine_state_name(enum machine_state state)
{
	return state_names[state];
}

int machine_accel_parse(const char *name, enum machine_accel *ret)
{
	for (size_t i = 0; i < sizeof(accel_names) / sizeof(accel_names[0]); i++) {
		if (!strcmp(name, accel_names[i])) {
			*ret = (enum machine_accel)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- a machine's life ------------------------------------------------------------------- */

static bool opened_as(int fd, int mode)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == mode;
}

static int check_spec(const struct machine_spec *spec, struct err *err)
{
	const struct machine_shape *shape = &spec->shape;

	if (shape->memory_bytes < LIMIT_MEMORY_MIN || shape->memory_bytes > LIMIT_MEMORY_MAX ||
		shape->memory_bytes % (2 * MIB))
		return err_set(err, EINVAL,
			"memory of %llu bytes: not a multiple of 2 MiB from 64 MiB to 64 GiB",
			(unsigned long long)shape->memory_bytes);
	if (shape->vcpus < 1 || shape->vcpus > LIMIT_VCPUS)
		return err_set(err, EINVAL, "%u vcpus: from 1 to %d", shape->vcpus, LIMIT_VCPUS);
	if (spec->memory_fd < 0 || spec->disk_fd < 0 || spec->overlay_fd < 0)
		return err_set(err, EINVAL, "a machine needs memory, a disk and its overlay");
	if (!opened_as(spec->disk_fd, O_RDONLY) || !opened_as(spec->overlay_fd, O_RDWR))
		return err_set(
			err, EINVAL, "a disk is opened read-only and its overlay read-write");
	if (spec->kernel && (!spec->initrd || !spec->cmdline))
		return err_set(
			err, EINVAL, "a boot needs a kernel, an initramfs and a command line");
	if (spec->kernel && spec->pager_fd >= 0)
		return err_set(err, EINVAL, "a machine that boots has no pager");
	return 0;
}

int machine_start(const struct machine_spec *spec, struct machine **ret, struct err *err)
{
	struct machine_spec whole = *spec;
	struct machine *m;
	int r = check_spec(spec, err);

	if (r == 0 && !whole.monitor)
		r = monitor_probe_for(spec->shape.accel, &whole.monitor, err);
	if (r == 0 && spec->shape.accel == MACHINE_KVM && !whole.monitor->has_kvm)
		r = err_set(err, ENODEV, "KVM does not work here: %s", whole.monitor->why_not_kvm);
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(err, ENOMEM, "out of memory");
	m->ops = monitor_ops_of(whole.monitor);
	m->state = spec->kernel ? MACHINE_RUNNING : MACHINE_STANDBY;
	m->booted = spec->kernel != NULL;
	m->shape = spec->shape;
	m->proc = (struct proc)PROC_INIT;
	m->channel_fd = -1;
	m->on_console = spec->console;
	m->user = spec->user;
	r = m->ops->start(m, &whole, err);
	if (r < 0) {
		err_prefix(err, "start %s", m->ops->name);
		machine_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void machine_free(struct machine *m)
{
	if (!m)
		return;
	proc_kill(&m->proc);
	machine_tell_console(m);
	m->ops->release(m);
	console_free(m->console);
	console_free(m->errors);
	close_fd(&m->channel_fd);
	free(m);
}

void machine_tell_console(struct machine *m)
{
	char buf[4096];
	size_t n;

	if (!m->on_console || !m->console)
		return;
	while ((n = console_read(m->console, &m->console_pos, buf, sizeof(buf))) > 0)
		m->on_console(m->user, buf, n);
}

enum machine_state machine_get_state(struct machine *m)
{
	machine_tell_console(m);
	if (m->state != MACHINE_ENDED)
		m->ops->poll(m);
	if (m->state != MACHINE_ENDED && proc_ended(&m->proc))
		m->state = MACHINE_ENDED;
	return m->state;
}

/* The end of every call: the console told, and where the monitor has ended, how. */
static int finish(struct machine *m, const char *what, int r, struct err *err)
{
	struct err why;

	machine_tell_console(m);
	if (r == 0)
		return 0;
	m->ops->poll(m); /* it may have said why */
	if (proc_ended(&m->proc)) {
		m->state = MACHINE_ENDED;
		machine_end_reason(m, &why);
		return err_set(err, ECONNABORTED, "%s: %s", what, why.text);
	}
	err_prefix(err, "%s", what);
	return r;
}

static int begin(struct machine *m, const char *what, unsigned allowed, struct err *err)
{
	enum machine_state state = machine_get_state(m);

	if (state == MACHINE_ENDED)
		return finish(m, what, -ECONNABORTED, err);
	if (!(allowed & 1u << state))
		return err_set(
			err, EINVAL, "%s: the machine is %s", what, machine_state_name(state));
	return 0;
}

#define IN(state) (1u << MACHINE_##state)

int machine_ready(struct machine *m, int64_t deadline, struct err *err)
{
	int r = begin(m, "start", IN(STANDBY) | IN(PAUSED) | IN(RUNNING), err);

	return r < 0 ? r : finish(m, "start", m->ops->ready(m, deadline, err), err);
}

int machine_restore(struct machine *m, int state_fd, int64_t deadline, struct err *err)
{
	int r = begin(m, "restore", IN(STANDBY), err);

	if (r < 0)
		return r;
	r = m->ops->restore(m, state_fd, deadline, err);
	if (r == 0)
		m->state = MACHINE_PAUSED;
	return finish(m, "restore", r, err);
}

int machine_resume(struct machine *m, int64_t deadline, struct err *err)
{
	int r = begin(m, "resume", IN(PAUSED), err);

	if (r < 0)
		return r;
	r = m->ops->resume(m, deadline, err);
	if (r == 0)
		m->state = MACHINE_RUNNING;
	return finish(m, "resume", r, err);
}

int machine_pause(struct machine *m, int64_t deadline, struct err *err)
{
	int r = begin(m, "pause", IN(RUNNING), err);

	if (r < 0)
		return r;
	r = m->ops->pause(m, deadline, err);
	if (r == 0)
		m->state = MACHINE_PAUSED;
	return finish(m, "pause", r, err);
}

int machine_capture(struct machine *m, int state_fd, int64_t deadline, struct err *err)
{
	int r = begin(m, "capture", IN(PAUSED), err);

	if (r < 0)
		return r;
	return finish(m, "capture", m->ops->capture(m, state_fd, deadline, err), err);
}

int machine_read_memory(
	struct machine *m, uint64_t offset, uint64_t len, int fd, int64_t deadline, struct err *err)
{
	int r = begin(m, "read memory", IN(PAUSED), err);

	if (r < 0)
		return r;
	if (offset > MACHINE_READ_MAX || len > MACHINE_READ_MAX - offset ||
		offset + len > m->shape.memory_bytes)
		return err_set(err, EINVAL, "read memory: beyond what can be read so");
	r = m->ops->read_memory(m, offset, len, fd, deadline, err);
	return finish(m, "read memory", r, err);
}

int machine_save_translations(struct machine *m, int fd, int64_t deadline, struct err *err)
{
	int r = begin(m, "save translations", fd < 0 ? IN(PAUSED) | IN(RUNNING) : IN(PAUSED), err);

	if (r < 0)
		return r;
	if (m->booted || m->shape.accel != MACHINE_TCG)
		return err_set(
			err, ENOTSUP, "save translations: only of an emulated, restored machine");
	return finish(m, "save translations", m->ops->save_translations(m, fd, deadline, err), err);
}

int machine_translated(
	struct machine *m, struct machine_translated *ret, int64_t deadline, struct err *err)
{
	int r = begin(m, "count translations", IN(PAUSED) | IN(RUNNING), err);

	if (r < 0)
		return r;
	if (m->shape.accel != MACHINE_TCG)
		return err_set(err, ENOTSUP, "count translations: only of an emulated machine");
	return finish(m, "count translations", m->ops->translated(m, ret, deadline, err), err);
}

int machine_pid(const struct machine *m)
{
	return m->proc.pid;
}

int machine_pidfd(const struct machine *m)
{
	return m->proc.pidfd;
}

int machine_event_fd(const struct machine *m)
{
	return m->ops->event_fd(m);
}

const char *machine_disk_error(const struct machine *m)
{
	return m->disk_error[0] ? m->disk_error : NULL;
}

int machine_take_channel(struct machine *m)
{
	return steal_fd(&m->channel_fd);
}

char *machine_console(struct machine *m)
{
	cleanup_free char *guest = console_text(m->console);
	cleanup_free char *monitor = console_text(m->errors);

	machine_tell_console(m);
	if (!guest || !monitor)
		return steal_ptr(&guest);
	return str_printf("%s%s%s", guest, *guest && *monitor ? "\n" : "", monitor);
}

/* The last of what @c holds, at most @max bytes. */
static void quote(struct console *c, const char *who, size_t max, struct err *err)
{
	cleanup_free char *text = c ? console_text(c) : NULL;
	size_t len = text ? strlen(text) : 0;

	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		text[--len] = '\0';
	if (!len)
		return;
	err_append(err, "\n%s said last:\n%s", who, console_tail(text, max));
}

/* How it ended. False: it has not. */
static bool get_end(const struct machine *m, siginfo_t *ret)
{
	*ret = (siginfo_t){0};
	return m->proc.pidfd >= 0 &&
		waitid((idtype_t)P_PIDFD, (id_t)m->proc.pidfd, ret, WEXITED | WNOHANG | WNOWAIT) ==
		0 &&
		ret->si_pid != 0;
}

int machine_end_signal(const struct machine *m)
{
	siginfo_t info;

	return get_end(m, &info) && info.si_code != CLD_EXITED ? info.si_status : 0;
}

void machine_end_reason(struct machine *m, struct err *err)
{
	siginfo_t info;

	if (!get_end(m, &info))
		err_set(err, ECONNABORTED, "the monitor has not ended");
	else if (m->end[0])
		err_set(err, ECONNABORTED, "%s", m->end);
	else if (info.si_code == CLD_EXITED && info.si_status == 0)
		err_set(err, ECONNABORTED,
			"the guest reset or switched off: the monitor exited with status 0");
	else if (info.si_code == CLD_EXITED)
		err_set(err, ECONNABORTED, "the monitor exited with status %d", info.si_status);
	else
		err_set(err, ECONNABORTED, "the monitor was killed by signal %d (%s)",
			info.si_status, sigdescr_np(info.si_status) ?: "unknown");
	quote(m->errors, "the monitor", LAST_WORDS_MONITOR, err);
	quote(m->console, "the guest's console", LAST_WORDS_GUEST, err);
}
