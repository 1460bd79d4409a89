/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine as a whole: what a capture needs (sync, freeze, zeroing free memory,
 * dropping caches, quiescing), what is going on in it, and its end.
 *
 * Whatever may wait for a disk runs in a worker. A freeze cannot be taken back by killing its
 * worker, so it always runs to its end, and is undone there where nobody wants it any
 * more. It also ends by itself, by a timer on monotonic time, which stands still in a
 * snapshot.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/utsname.h>

#include "agent/agent.h"
#include "agent/context.h"
#include "agent/main.h"
#include "agent/pump.h"
#include "agent/request.h"
#include "agent/tree.h"
#include "agent/wipe.h"
#include "agent/worker.h"

#define MEMINFO_MAX 4096

struct job {
	struct worker worker;
	struct stream *stream; /* NULL: nobody waits any more */
	unsigned type;
};

/* The timer of a freeze; also: has it passed while freezing? */
static struct timer machine_thaw_timer;
static bool machine_thaw_due;

/* ---- in workers ----------------------------------------------------------------------- */

/* A line of /proc/meminfo, in bytes; 0 where it is not there. */
static uint64_t meminfo_get(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

static void meminfo_read(char text[MEMINFO_MAX])
{
	int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, MEMINFO_MAX - 1);

	close_fd(&fd);
	text[n > 0 ? n : 0] = '\0';
}

static int file_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), res = 0;

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		res = -errno;
	close_fd(&fd);
	return res;
}

static int work_syncfs(
	const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	(void)arg, (void)data, (void)control, (void)reply;
	if (syncfs(agent.root) < 0)
		return fail_set(f, errno, "cannot sync the root: %s", strerror(errno));
	return 0;
}

static int work_freeze(
	const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	(void)arg, (void)data, (void)control, (void)reply;
	if (ioctl(agent.root, FIFREEZE, 0) < 0)
		return fail_set(f, errno, "cannot freeze the root: %s", strerror(errno));
	return 0;
}

static int work_drop(
	const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	int res = file_put("/proc/sys/vm/drop_caches", "3");

	(void)arg, (void)data, (void)control, (void)reply;
	return res < 0 ? fail_set(f, -res, "cannot drop caches: %s", strerror(-res)) : 0;
}

/* Pages, slabs and stacks that are free: see kernel/patches. What is zero already is not written. */
static int work_zero(
	const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	int res = file_put("/proc/sys/vm/zero_free", "1");

	(void)arg, (void)data, (void)control, (void)reply;
	if (res == -ENOENT)
		return fail_set(f, ENOSYS,
			"this kernel cannot zero its free memory (it has no vm.zero_free): use "
			"parbake's own");
	return res < 0 ? fail_set(f, -res, "cannot zero free memory: %s", strerror(-res)) : 0;
}

/*
 * The end: what is written is on the disk, then reset. Without ACPI a machine has no way to
 * switch itself off; the monitor takes a reset as the end (it is started so).
 */
static int work_shutdown(
	const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	(void)arg, (void)data, (void)control, (void)reply;
	sync();
	if (agent.rooted)
		mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	reboot(RB_AUTOBOOT);
	return fail_set(f, errno, "cannot reset: %s", strerror(errno));
}

/* ---- thawing -------------------------------------------------------------------------- */

static int machine_thaw(void)
{
	int res = ioctl(agent.root, FITHAW, 0) < 0 ? -errno : 0;

	timer_stop(&machine_thaw_timer);
	if (res == 0 || res == -EINVAL)
		agent.frozen = false;
	return res;
}

static void machine_thaw_late(void *user)
{
	(void)user;
	agent_log("the root was frozen for too long: thawing it");
	machine_thaw_due = true; /* where it is not frozen yet, job_done() does it */
	machine_thaw();
}

/* ---- jobs ----------------------------------------------------------------------------- */

static void job_done(void *user, int err, const char *text, const uint8_t *body, uint32_t len)
{
	struct proto_out out = {.buf = (uint8_t *)body, .len = len, .max = len};
	struct job *j = user;

	if (j->type == PROTO_FREEZE && err) {
		agent.frozen = false;
		timer_stop(&machine_thaw_timer);
	} else if (j->type == PROTO_FREEZE && (machine_thaw_due || !j->stream)) {
		machine_thaw();
		err = ETIMEDOUT;
		text = "freezing the root took longer than it was to stay frozen";
	}
	if (j->stream && err)
		stream_reply_error(j->stream, err, text);
	else if (j->stream)
		stream_reply(j->stream, &out);
	free(j);
}

static void job_abort(struct stream *s)
{
	struct job *j = stream_user(s);

	j->stream = NULL;
	if (j->type == PROTO_FREEZE || j->type == PROTO_SHUTDOWN) /* these run to their end */
		return;
	worker_kill(&j->worker);
	free(j);
}

static void job_cancel(struct stream *s)
{
	job_abort(s);
	stream_reply_error(s, ECANCELED, "canceled");
}

static const struct stream_ops job_ops = {.cancel = job_cancel, .abort = job_abort};

static void job_start(struct stream *s, unsigned type, worker_fn *fn)
{
	struct job *j = agent_alloc(sizeof(*j));
	struct fail f;

	j->stream = s;
	j->type = type;
	if (worker_start(&j->worker, fn, NULL, -1, job_done, j, &f) < 0) {
		stream_reply_error(s, f.err, f.text);
		free(j);
		return;
	}
	if (type == PROTO_FREEZE)
		agent.frozen = true;
	stream_set(s, &job_ops, j);
}

static void machine_freeze(struct stream *s, const struct request *r)
{
	uint64_t ms = r->timeout_ms ? r->timeout_ms : AGENT_FREEZE_MS_DEFAULT;

	if (agent.frozen || !agent.rooted) {
		stream_reply_error(
			s, EBUSY, agent.frozen ? "the root is frozen already" : "there is no root");
		return;
	}
	machine_thaw_due = false;
	job_start(s, PROTO_FREEZE, work_freeze);
	if (agent.frozen)
		timer_arm(&machine_thaw_timer, ms < AGENT_FREEZE_MS_MAX ? ms : AGENT_FREEZE_MS_MAX,
			machine_thaw_late, NULL);
}

/* ---- the other requests --------------------------------------------------------------- */

static void machine_info(struct stream *s)
{
	uint8_t buf[1024];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	static char text[MEMINFO_MAX];
	struct utsname name;

	meminfo_read(text);
	uname(&name);
	proto_put(&o, PROTO_T_NONCE, agent.boot, sizeof(agent.boot));
	proto_put_u64(&o, PROTO_T_COUNTER, agent.counter);
	proto_put_u64(&o, PROTO_T_UPTIME_NS, (uint64_t)agent_now());
	proto_put_u64(&o, PROTO_T_MEM_TOTAL, meminfo_get(text, "MemTotal:"));
	proto_put_u64(&o, PROTO_T_MEM_FREE, meminfo_get(text, "MemFree:"));
	proto_put_u64(&o, PROTO_T_MEM_CACHED, meminfo_get(text, "\nCached:"));
	proto_put_u32(&o, PROTO_T_CONTEXTS, context_count());
	proto_put_u32(&o, PROTO_T_STREAMS, wire_streams(agent_wire) - 1);
	proto_put_str(&o, PROTO_T_KERNEL, name.release);
	stream_reply(s, &o);
}

struct quiesce {
	struct stream *stream;
};

static void quiesce_done(void *user, const char *late)
{
	struct quiesce *q = user;
	char text[160];

	reap_all();
	wire_trim(agent_wire);
	pump_wipe();
	malloc_trim(0);
	registers_wipe();
	if (q->stream && exec_detached_ended()[0]) {
		stream_reply_error(q->stream, ECHILD, exec_detached_ended());
	} else if (q->stream && late) {
		snprintf(text, sizeof(text), "context '%.64s' is not idle", late);
		stream_reply_error(q->stream, EBUSY, text);
	} else if (q->stream) {
		stream_reply(q->stream, NULL);
	}
	free(q);
}

static void quiesce_abort(struct stream *s)
{
	struct quiesce *q = stream_user(s);

	q->stream = NULL;
}

static const struct stream_ops quiesce_ops = {.abort = quiesce_abort};

static void machine_reset(void *user)
{
	(void)user;
	reboot(RB_AUTOBOOT);
}

static void machine_shutdown(struct stream *s)
{
	static struct timer deadline;

	context_kill_all();
	if (!agent.machine) {
		loop_quit();
		return;
	}
	if (agent.frozen)
		machine_thaw();
	tree_kill_all();
	kill(-1, SIGKILL);
	timer_arm(&deadline, AGENT_SHUTDOWN_MS, machine_reset, NULL);
	job_start(s, PROTO_SHUTDOWN, work_shutdown);
}

void machine_request(struct stream *s, unsigned type, struct request *r)
{
	struct quiesce *q;
	int res;

	if (!agent.machine &&
		(type == PROTO_FREEZE || type == PROTO_THAW || type == PROTO_ZERO_FREE ||
			type == PROTO_DROP_CACHES)) {
		stream_reply_error(s, EPERM, "not in a machine: this is not ours to do");
		return;
	}
	switch (type) {
	case PROTO_SYNCFS:
		job_start(s, type, work_syncfs);
		break;
	case PROTO_FREEZE:
		machine_freeze(s, r);
		break;
	case PROTO_THAW:
		res = machine_thaw();
		if (res < 0)
			stream_reply_error(s, -res,
				res == -EINVAL ? "the root is not frozen" : strerror(-res));
		else
			stream_reply(s, NULL);
		break;
	case PROTO_ZERO_FREE:
		job_start(s, type, work_zero);
		break;
	case PROTO_DROP_CACHES:
		job_start(s, type, work_drop);
		break;
	case PROTO_INFO:
		machine_info(s);
		break;
	case PROTO_SHUTDOWN:
		machine_shutdown(s);
		break;
	case PROTO_QUIESCE:
		q = agent_alloc(sizeof(*q));
		q->stream = s;
		stream_set(s, &quiesce_ops, q);
		context_ask_all(CONTEXT_COLLECT, AGENT_QUIESCE_MS, quiesce_done, q);
		break;
	}
}
