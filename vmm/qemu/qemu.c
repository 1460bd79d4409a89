/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The qemu driver. A machine is one QEMU process with QMP on a socket pair; args.c says what
 * it is given. Device state is a migration stream without memory (x-ignore-shared): a boot maps the
 * memory shared, so the stream leaves it out, and a restore maps the same bytes privately. What has
 * been restored is captured in another way (state.c).
 *
 * Round trips are what a restore is made of, so commands go out ahead of their answers: the
 * capabilities when the process starts, the descriptor and the load in one go. The end of a load or
 * a save is an event, not a poll.
 *
 * With a pager, QEMU must have handed its userfaultfd over before anything runs: the wrapper that is
 * linked into a QEMU of `make monitor`, or the preload library in any other, says so by an eventfd.
 * Without that (a setuid or static program ignores LD_PRELOAD) the guest would read zeros where
 * memory is not filled yet, so the restore fails.
 */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/sock.h"
#include "vmm/machine.h"
#include "vmm/qemu/qemu_private.h"
#include "vmm/qemu/state_private.h"
#include "vmm/qemu/qmp.h"

#define ERRORS_BYTES (8 * KIB) /* kept of the monitor's standard error */
#define END_WAIT_MS 1000
#define FINALIZE_POLL_NS 500000
#define STATE_MAGIC "QEVM" /* a migration stream's first bytes */

struct qemu {
	struct qmp *qmp;
	uint64_t setup_id; /* the last command of the start */
	bool ready;
	int ack_fd; /* eventfd of the preload library; -1: no pager */
	int base_fd; /* the state it was restored from; -1: none */
	bool migrated; /* a load or save has ended … */
	bool failed; /* … badly */
	unsigned stops; /* commands `stop` whose event is still to come */
	bool stopped; /* by itself */
};

/* What stands in the events, in words. */
static const struct {
	const char *status, *text;
} ends[] = {
	/* of query-status */
	{"internal-error", "the machine stopped with an internal error of KVM"},
	{"guest-panicked", "the guest's kernel panicked"},
	{"io-error", "the machine stopped at an error of its disk"},
	{"watchdog", "the machine's watchdog stopped it"},
	{"suspended", "the guest went to sleep, from which nothing wakes it"},
	/* of SHUTDOWN, and of query-status, too */
	{"shutdown", "the guest switched off"},
	{"guest-shutdown", "the guest switched off"},
	{"guest-reset", "the guest reset: its kernel panicked, or was told to reboot"},
	{"guest-panic", "the guest's kernel panicked"},
	{"subsystem-reset", "the guest reset a part of its machine"},
};

static void note_end(struct machine *m, const char *status)
{
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		if (!strcmp(status, ends[i].status))
			snprintf(m->end, sizeof(m->end), "%s", ends[i].text);
	}
}

static void note_disk_error(struct machine *m, const json_t *data)
{
	const char *operation = json_string_value(json_object_get(data, "operation")) ?: "?";
	const char *reason = json_string_value(json_object_get(data, "reason")) ?: "";

	/* "nospace" alone does not tell: it is false where errors are the guest's */
	if (json_is_true(json_object_get(data, "nospace")) ||
		!strcmp(reason, strerrordesc_np(ENOSPC)))
		snprintf(m->disk_error, sizeof(m->disk_error),
			"the host has no space left for what the sandbox writes to its disk: its "
			"writes fail");
	else
		snprintf(m->disk_error, sizeof(m->disk_error),
			"the host fails to %.16s the sandbox's disk: %.100s", operation,
			*reason ? reason : "it does not say why");
}

static void on_event(void *user, const char *name, const json_t *data)
{
	struct machine *m = user;
	struct qemu *q = m->driver;
	const char *status;

	if (!strcmp(name, "MIGRATION")) {
		status = json_string_value(json_object_get(data, "status")) ?: "";
		q->failed = !strcmp(status, "failed") || !strcmp(status, "cancelled");
		q->migrated = q->failed || !strcmp(status, "completed");
	} else if (!strcmp(name, "STOP")) {
		if (q->stops)
			q->stops--;
		else
			q->stopped = true;
	} else if (!strcmp(name, "SHUTDOWN")) {
		note_end(m, json_string_value(json_object_get(data, "reason")) ?: "");
	} else if (!strcmp(name, "BLOCK_IO_ERROR")) {
		note_disk_error(m, data);
	}
}

/* The monitor has stopped it, and nobody asked for that: nothing of ours lets it run again. */
static void end_stopped(struct machine *m, const char *status)
{
	snprintf(m->end, sizeof(m->end), "the monitor stopped the machine by itself (%.40s)",
		status);
	note_end(m, status);
	proc_signal(&m->proc, SIGKILL);
	poll(&(struct pollfd){.fd = m->proc.pidfd, .events = POLLIN}, 1, END_WAIT_MS);
}

static void qemu_poll(struct machine *m)
{
	struct qemu *q = m->driver;
	cleanup_json json_t *status = NULL;

	qmp_poll(q->qmp, NULL); /* a breach is found again by whoever asks for something */
	if (!q->stopped || m->end[0])
		return;
	if (qmp_call(q->qmp, "query-status", NULL, clock_deadline(END_WAIT_MS), &status, NULL) < 0)
		status = NULL;
	end_stopped(m, json_string_value(json_object_get(status, "status")) ?: "no reason known");
}

static int qemu_event_fd(const struct machine *m)
{
	const struct qemu *q = m->driver;

	return qmp_fd(q->qmp);
}

/* The socket pairs and pipes; the child's ends are in @child, by their number there. */
struct child_fds {
	int qmp, channel, console, errors;
};

static void child_fds_close(struct child_fds *f)
{
	close_fd(&f->qmp);
	close_fd(&f->channel);
	close_fd(&f->console);
	close_fd(&f->errors);
}

static int make_fds(struct machine *m, bool pager, struct child_fds *child, struct err *err)
{
	struct qemu *q = m->driver;
	cleanup_fd int qmp_fd = -1;
	int pair[2] = {-1, -1};
	int r = console_new(LIMIT_CONSOLE_BYTES, &m->console, &child->console, err);

	if (r == 0)
		r = console_new(ERRORS_BYTES, &m->errors, &child->errors, err);
	if (r == 0)
		r = sock_pair(pair, err);
	if (r < 0)
		return r;
	m->channel_fd = pair[0];
	child->channel = pair[1];
	r = sock_pair(pair, err);
	if (r < 0)
		return r;
	qmp_fd = pair[0];
	child->qmp = pair[1];
	if (pager) {
		q->ack_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (q->ack_fd < 0)
			return err_sys(err, errno, "make an eventfd");
	}
	return steal_fd(&qmp_fd);
}

/* A descriptor of its own over a file that others have open too: to them its flags and offset are
 * nothing. */
static int reopen(int fd, const char *what, struct err *err)
{
	char path[64];
	int own;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDONLY | O_CLOEXEC);
	return own < 0 ? err_sys(err, errno, "%s: open it again", what) : own;
}

/* What the monitor's process gets that it could not open itself. -1: not needed, or not there. */
struct lent_fds {
	int disk, kernel, initrd, uffd_dev, kvm, translations;
};

static void lent_fds_close(struct lent_fds *l)
{
	close_fd(&l->disk);
	close_fd(&l->kernel);
	close_fd(&l->initrd);
	close_fd(&l->uffd_dev);
	close_fd(&l->kvm);
	close_fd(&l->translations);
}

static int lend(const struct machine_spec *spec, struct lent_fds *l, struct err *err)
{
	l->disk = reopen(spec->disk_fd, "the disk", err);
	if (l->disk < 0)
		return l->disk;
	if (spec->kernel &&
		((l->kernel = qemu_copy_file(spec->kernel, err)) < 0 ||
			(l->initrd = qemu_copy_file(spec->initrd, err)) < 0))
		return l->kernel < 0 ? l->kernel : l->initrd;
	if (spec->translations_fd > 0 &&
		(l->translations = reopen(spec->translations_fd, "translations", err)) < 0)
		return l->translations;
	if (spec->pager_fd >= 0) /* else there is userfaultfd(2) */
		l->uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (spec->shape.accel == MACHINE_KVM) {
		l->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
		if (l->kvm < 0)
			return err_sys(err, errno, "open /dev/kvm");
	}
	return 0;
}

static void map_optional(struct proc_spec *ps, int from, int to)
{
	if (from >= 0)
		proc_map_fd(ps, from, to);
}

static int launch(struct machine *m, const struct machine_spec *spec, const struct child_fds *child,
	const struct lent_fds *lent, const struct monitor_facts *facts, struct err *err)
{
	cleanup_qemu_args struct qemu_args args = {0}, env = {0};
	struct qemu *q = m->driver;
	struct confine confine;
	struct proc_spec ps = {.die_with_parent = true, .cwd = "/", .confine = &confine};
	struct stat disk;
	int preload, firmware, r = qemu_preload(facts, &preload, err);

	if (r < 0)
		return r;
	if (fstat(lent->disk, &disk) < 0)
		return err_sys(err, errno, "the disk");
	r = qemu_confine_make(facts->program, &spec->shape, (uint64_t)disk.st_size,
		spec->pager_fd >= 0 && lent->uffd_dev < 0, &confine, &firmware, err);
	if (r < 0)
		return r;
	qemu_args_make(&args, facts->program, firmware >= 0, spec);
	qemu_env_make(&env, preload >= 0, spec->pager_fd >= 0, lent->uffd_dev >= 0, lent->kvm >= 0);
	ps.argv = (const char *const *)args.items;
	ps.env = (const char *const *)env.items;
	proc_map_fd(&ps, child->errors, 2);
	proc_map_fd(&ps, spec->memory_fd, QEMU_FD_MEMORY);
	proc_map_fd(&ps, lent->disk, QEMU_FD_DISK);
	proc_map_fd(&ps, spec->overlay_fd, QEMU_FD_OVERLAY);
	proc_map_fd(&ps, child->qmp, QEMU_FD_QMP);
	proc_map_fd(&ps, child->channel, QEMU_FD_CHANNEL);
	proc_map_fd(&ps, child->console, QEMU_FD_CONSOLE);
	map_optional(&ps, preload, QEMU_FD_PRELOAD);
	map_optional(&ps, spec->pager_fd, QEMU_FD_PAGER);
	map_optional(&ps, q->ack_fd, QEMU_FD_ACK);
	map_optional(&ps, lent->uffd_dev, QEMU_FD_UFFD_DEV);
	map_optional(&ps, lent->kvm, QEMU_FD_KVM);
	map_optional(&ps, lent->kernel, QEMU_FD_KERNEL);
	map_optional(&ps, lent->initrd, QEMU_FD_INITRD);
	map_optional(&ps, firmware, QEMU_FD_FIRMWARE);
	map_optional(&ps, lent->translations, QEMU_FD_TRANSLATIONS);
	return proc_start(&ps, &m->proc, err);
}

static int run(struct machine *m, const struct machine_spec *spec, const struct child_fds *child,
	struct err *err)
{
	struct lent_fds lent = {-1, -1, -1, -1, -1, -1};
	int r = lend(spec, &lent, err);

	if (r == 0)
		r = launch(m, spec, child, &lent, spec->monitor, err);
	lent_fds_close(&lent);
	return r;
}

static int send_setup(struct qemu *q, struct err *err)
{
	json_t *caps = json_pack("{s:[{s:s,s:b},{s:s,s:b}]}", "capabilities", "capability",
		"x-ignore-shared", "state", 1, "capability", "events", "state", 1);
	int r = qmp_send(q->qmp, "qmp_capabilities", NULL, -1, NULL, err);

	if (r < 0) {
		json_decref(caps);
		return r;
	}
	return qmp_send(q->qmp, "migrate-set-capabilities", caps, -1, &q->setup_id, err);
}

static int qemu_start(struct machine *m, const struct machine_spec *spec, struct err *err)
{
	struct child_fds child = {-1, -1, -1, -1};
	struct qemu *q = calloc(1, sizeof(*q));
	cleanup_fd int qmp_fd = -1;
	int r;

	if (!q)
		return err_set(err, ENOMEM, "out of memory");
	m->driver = q;
	q->ack_fd = q->base_fd = -1;
	r = make_fds(m, spec->pager_fd >= 0, &child, err);
	if (r >= 0) {
		qmp_fd = r;
		r = run(m, spec, &child, err);
	}
	child_fds_close(&child);
	if (r == 0)
		r = qmp_new(qmp_fd, m->proc.pidfd, on_event, m, &q->qmp, err);
	if (r < 0)
		return r;
	steal_fd(&qmp_fd);
	return send_setup(q, err);
}

static void qemu_release(struct machine *m)
{
	struct qemu *q = m->driver;

	if (!q)
		return;
	qmp_free(q->qmp);
	close_fd(&q->ack_fd);
	close_fd(&q->base_fd);
	free(q);
	m->driver = NULL;
}

static int qemu_ready(struct machine *m, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;
	int r;

	if (q->ready)
		return 0;
	r = qmp_wait(q->qmp, q->setup_id, deadline, NULL, err);
	q->ready = r == 0;
	return r;
}

/* Clones load the same file at the same time. */
static int reopen_state(int state_fd, struct err *err)
{
	cleanup_fd int fd = -1;
	char magic[4];
	struct stat st;

	if (fstat(state_fd, &st) < 0)
		return err_sys(err, errno, "device state");
	if (!S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "device state: not a regular file");
	fd = reopen(state_fd, "device state", err);
	if (fd < 0)
		return fd;
	if (file_pread_full(fd, magic, sizeof(magic), 0) < 0 || memcmp(magic, STATE_MAGIC, 4))
		return err_set(err, EBADMSG, "device state: not a QEMU migration stream");
	return steal_fd(&fd);
}

/* Pass @fd, then load from or save to it; returns when that has ended. */
static int migrate(
	struct machine *m, const char *command, int fd, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;
	uint64_t id;
	int r = qmp_send(q->qmp, "getfd", json_pack("{s:s}", "fdname", "state"), fd, NULL, err);

	q->migrated = false;
	q->failed = false;
	if (r == 0)
		r = qmp_send(q->qmp, command, json_pack("{s:s}", "uri", "fd:state"), -1, &id, err);
	if (r == 0)
		r = qmp_wait(q->qmp, id, deadline, NULL, err);
	if (r == 0)
		r = qmp_wait_flag(q->qmp, &q->migrated, deadline, err);
	return r;
}

static int qemu_restore(struct machine *m, int state_fd, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;
	cleanup_fd int fd = reopen_state(state_fd, err);
	uint64_t acked;
	int r;

	if (fd < 0)
		return fd;
	r = migrate(m, "migrate-incoming", fd, deadline, err);
	if (r < 0)
		return r;
	if (q->failed) {
		/* it ends now, and has said why */
		poll(&(struct pollfd){.fd = m->proc.pidfd, .events = POLLIN}, 1, END_WAIT_MS);
		return err_set(err, EBADMSG, "the monitor could not load the device state");
	}
	if (q->ack_fd >= 0 && read(q->ack_fd, &acked, sizeof(acked)) != (ssize_t)sizeof(acked))
		return err_set(err, ENOTSUP,
			"the monitor did not hand its memory to the pager: the preload library had "
			"no effect");
	q->base_fd = steal_fd(&fd);
	q->ready = true;
	return 0;
}

static int qemu_resume(struct machine *m, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;

	return qmp_call(q->qmp, "cont", NULL, deadline, NULL, err);
}

static int qemu_pause(struct machine *m, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;

	cleanup_json json_t *status = NULL;
	uint64_t id;
	const char *name;
	int r = qmp_send(q->qmp, "stop", NULL, -1, NULL, err);

	if (r < 0)
		return r;
	q->stops++;
	/* one that had stopped already did not for us */
	r = qmp_send(q->qmp, "query-status", NULL, -1, &id, err);
	if (r == 0)
		r = qmp_wait(q->qmp, id, deadline, &status, err);
	/* it takes commands in their order: whenever it comes to that one, this one is next */
	if (r == -ETIMEDOUT)
		qmp_send(q->qmp, "cont", NULL, -1, NULL, NULL);
	if (r < 0)
		return r;
	name = json_string_value(json_object_get(status, "status")) ?: "in no state";
	if (strcmp(name, "paused") != 0) {
		end_stopped(m, name);
		return err_set(err, ECONNABORTED, "%s", m->end);
	}
	return 0;
}

/* Why the newest migration failed, by the monitor. */
static int migrate_error(struct qemu *q, int64_t deadline, struct err *err)
{
	cleanup_json json_t *info = NULL;
	const char *desc = NULL;

	if (qmp_call(q->qmp, "query-migrate", NULL, deadline, &info, NULL) == 0)
		desc = json_string_value(json_object_get(info, "error-desc"));
	return err_set(
		err, EIO, "write the device state: %.500s", desc ?: "the monitor does not say why");
}

/*
 * The event says that the stream is complete; the migration thread then still has to let go of the
 * machine and its file, which no event tells.
 */
static int wait_finalized(struct qemu *q, int64_t deadline, struct err *err)
{
	const struct timespec pace = {.tv_nsec = FINALIZE_POLL_NS};

	for (;;) {
		cleanup_json json_t *status = NULL;
		const char *name;
		int r = qmp_call(q->qmp, "query-status", NULL, deadline, &status, err);

		if (r < 0)
			return r;
		name = json_string_value(json_object_get(status, "status"));
		if (!name || strcmp(name, "finish-migrate"))
			return 0;
		nanosleep(&pace, NULL);
	}
}

static int qemu_capture(struct machine *m, int state_fd, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;
	char magic[4];
	int r;

	if (ftruncate(state_fd, 0) < 0 || lseek(state_fd, 0, SEEK_SET) < 0)
		return err_sys(err, errno, "empty the device state's file");
	if (!m->booted)
		return qemu_state_save(q->qmp, q->base_fd, state_fd, deadline, err);
	r = migrate(m, "migrate", state_fd, deadline, err);
	if (r < 0)
		return r;
	if (q->failed)
		return migrate_error(q, deadline, err);
	r = wait_finalized(q, deadline, err);
	if (r < 0)
		return r;
	if (file_pread_full(state_fd, magic, sizeof(magic), 0) < 0 || memcmp(magic, STATE_MAGIC, 4))
		return err_set(err, EIO, "the monitor wrote no device state");
	return 0;
}

static int qemu_read_memory(
	struct machine *m, uint64_t offset, uint64_t len, int fd, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;

	return qemu_memory_save(q->qmp, offset, len, fd, deadline, err);
}

static int qemu_save_translations(struct machine *m, int fd, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;

	return qemu_translations_save(q->qmp, fd, deadline, err);
}

static int qemu_translated(
	struct machine *m, struct machine_translated *ret, int64_t deadline, struct err *err)
{
	struct qemu *q = m->driver;

	return qemu_translations_count(q->qmp, ret, deadline, err);
}

static const char *const cpu_models[] = {
	/*
	 * Under emulation `max` depends on the monitor's version alone. Without erms, which says that `rep stosb` is
	 * the fast way to clear memory: emulated it is a loop of bytes, and kernel and libc have better ones. Nested
	 * virtualisation is off here as below: a sandbox has no use for it, and less of the emulator is in its reach.
	 */
	[MACHINE_TCG] = "max,erms=off,svm=off",
	/* no nested virtualisation: its state is large, and a sandbox has no use for it */
	[MACHINE_KVM] = "host,migratable=on,vmx=off,svm=off",
};
static_assert(sizeof(cpu_models) / sizeof(cpu_models[0]) == MACHINE_KVM + 1, "all named");

const char *qemu_cpu_model(enum machine_accel accel)
{
	return cpu_models[accel];
}

const struct monitor_ops monitor_qemu = {
	.name = "qemu",
	.candidates = 2,
	.cpu_model = qemu_cpu_model,
	.probe = qemu_probe,
	.forget = qemu_forget,
	.confined = qemu_confined,
	.prepare = qemu_prepare,
	.start = qemu_start,
	.ready = qemu_ready,
	.restore = qemu_restore,
	.resume = qemu_resume,
	.pause = qemu_pause,
	.capture = qemu_capture,
	.read_memory = qemu_read_memory,
	.save_translations = qemu_save_translations,
	.translated = qemu_translated,
	.poll = qemu_poll,
	.event_fd = qemu_event_fd,
	.release = qemu_release,
};
