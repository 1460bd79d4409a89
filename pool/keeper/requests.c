/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that a keeper serves. A request that fails leaves the sandbox as it was, or ends it
 * where its machine is no longer fit for anything (a restore is tried once). In that case the
 * answer comes first, with what went wrong, and then the end.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/file.h"
#include "common/str.h"
#include "pool/keeper/process_private.h"
#include "vmm/console.h"
#include "common/smaps.h"

/* of a console's text in an answer: a byte of it is escaped as two at most */
#define CONSOLE_TEXT (LIMIT_RPC_BYTES / 2 - 1024)

/* The answer to @rq failed. */
static void refuse(
	struct keeper_process *k, const struct keeper_request *rq, int r, const struct err *err)
{
	keeper_process_answer(k, rq->n, rpc_failure(rq->n, -r, err->text), NULL, 0);
}

/* … and the machine is fit for nothing. */
static _Noreturn void give_up(
	struct keeper_process *k, const struct keeper_request *rq, int r, struct err *err)
{
	sandbox_explain(k->sb, err);
	/* first: who is answered takes the machine, and its name, for gone */
	keeper_process_clear(k);
	refuse(k, rq, r, err);
	keeper_process_end(k, -r, err->text);
}

/* Memory that the making took goes back, when the answer is out. */
static void trim(void *user)
{
	(void)user;
	malloc_trim(0);
}

/* ---- making -------------------------------------------------------------------------------- */

static void do_ready(struct keeper_process *k, const struct keeper_request *rq)
{
	struct err err;
	int r = machine_ready(sandbox_machine(k->sb), clock_deadline(LIMIT_CREATE_MS), &err);

	if (r < 0)
		give_up(k, rq, r, &err);
	keeper_process_answer(k, rq->n, json_object(), NULL, 0);
	loop_defer(k->l, trim, NULL);
}

static void restored(struct keeper_process *k)
{
	checkpoint_free(k->capture);
	k->capture = NULL;
	loop_defer(k->l, trim, NULL);
}

static void do_prepare(struct keeper_process *k, const struct keeper_request *rq)
{
	struct err err;
	int r;

	if (k->stage != KEEPER_STAGE_STANDBY) {
		refuse(k, rq, err_set(&err, EALREADY, "prepare: it is restored already"), &err);
		return;
	}
	r = sandbox_prepare(k->sb, clock_deadline(LIMIT_CREATE_MS), &err);
	if (r < 0)
		give_up(k, rq, r, &err);
	k->stage = KEEPER_STAGE_SPARE;
	keeper_process_answer(k, rq->n, json_object(), NULL, 0);
	restored(k);
}

/* ---- handing out --------------------------------------------------------------------------- */

static json_t *trace_parts(const struct sandbox_trace *t, int64_t since)
{
	const struct {
		const char *name;
		int64_t at;
	} parts[] = {
		{"overlay_made", t->overlay_made},
		{"memory_got", t->memory_got},
		{"monitor_started", t->monitor_started},
		{"monitor_ready", t->monitor_ready},
		{"state_loaded", t->state_loaded},
		{"asked", t->asked},
		{"resumed", t->resumed},
		{"hello", t->hello},
		{"identity", t->identity},
		{"thaw", t->thaw},
		{"answered", t->answered},
	};
	json_t *obj = json_object();

	/* what was done before the request came is not part of it */
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (parts[i].at >= since)
			json_object_set_new(obj, parts[i].name, json_integer(parts[i].at - since));
	}
	return obj;
}

/* Page faults of a process so far: minflt and majflt of proc(5), the tenth field and the twelfth. 0: it is
 * gone. */
static uint64_t count_faults(int pid)
{
	cleanup_free char *path = str_printf("/proc/%d/stat", pid);
	cleanup_free char *text = NULL;
	unsigned long long minor, major;
	const char *behind;

	if (file_read_all(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
		return 0;
	behind = strrchr(text, ')'); /* its name may hold anything */
	if (!behind ||
		sscanf(behind, ") %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu", &minor, &major) != 2)
		return 0;
	return minor + major;
}

/* The answer to hand_out and describe, with what goes along. */
static void answer_handed(struct keeper_process *k, uint64_t n, bool with_notes)
{
	json_t *obj = json_copy(k->handed);
	int fds[2] = {machine_pidfd(sandbox_machine(k->sb)), k->channel};

	json_object_set_new(obj, "end_ns", json_integer(k->end_ns));
	if (with_notes) {
		json_object_set_new(obj, "id", json_string(k->id));
		json_object_set_new(obj, "state", json_string("running"));
		json_object_set(obj, "record", k->record);
	}
	keeper_process_answer(k, n, obj, fds, 2);
}

static int hand_out(struct keeper_process *k, const struct keeper_request *rq, struct err *err)
{
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	int r = fault_point("keeper.hand-out.named");

	if (r < 0)
		return err_sys(err, -r, "hand it out");
	if (k->stage == KEEPER_STAGE_SPARE)
		r = sandbox_activate(k->sb, rq->hostname, deadline, err);
	else
		r = sandbox_restore(k->sb, rq->hostname, deadline, err);
	if (r < 0)
		return r;
	r = k->channel = sandbox_release_channel(k->sb, err);
	if (r < 0)
		return r;
	r = fault_point("keeper.hand-out.answered");
	return r < 0 ? err_sys(err, -r, "hand it out") : 0;
}

static void do_hand_out(struct keeper_process *k, const struct keeper_request *rq, int64_t read_at)
{
	struct err err;
	int pid = machine_pid(sandbox_machine(k->sb)), r;

	if (k->id[0]) {
		refuse(k, rq, err_set(&err, EALREADY, "hand_out: it is %s already", k->id), &err);
		return;
	}
	/* named first: a daemon that comes after one that goes from here on finds it */
	r = keeper_process_name(k, rq->id, &err);
	if (r < 0) {
		refuse(k, rq, r, &err);
		return;
	}
	/* one that was gone before may have a successor, which has looked already: to that nobody asked */
	if (keeper_process_alone(k))
		keeper_process_end(k, 0, "who asked for it has gone");
	k->record = rq->record ? json_incref(rq->record) : json_object();
	r = hand_out(k, rq, &err);
	if (r < 0)
		give_up(k, rq, r, &err);
	k->stage = KEEPER_STAGE_HANDED;
	keeper_process_lease(k, rq->lease_ms, rq->pause_dir);
	k->handed =
		json_pack("{s:o, s:i, s:I}", "trace", trace_parts(sandbox_trace(k->sb), read_at),
			"monitor_pid", pid, "faults", (json_int_t)count_faults(pid));
	answer_handed(k, rq->n, false);
	restored(k);
}

/* ---- under a lease ------------------------------------------------------------------------- */

static void do_renew(struct keeper_process *k, const struct keeper_request *rq)
{
	keeper_process_lease(k, rq->lease_ms, rq->pause_dir);
	if (rq->record) {
		json_decref(k->record);
		k->record = json_incref(rq->record);
	}
	keeper_process_answer(
		k, rq->n, json_pack("{s:I}", "end_ns", (json_int_t)k->end_ns), NULL, 0);
}

static void do_capture(struct keeper_process *k, const struct keeper_request *rq)
{
	struct checkpoint_info info;
	struct err err;
	int r = keeper_process_capture(k, rq->dir, !rq->stop, &info, &err);

	if (r < 0) {
		refuse(k, rq, r, &err);
		return;
	}
	if (rq->stop)
		keeper_process_clear(k);
	keeper_process_answer(k, rq->n,
		json_pack("{s:I, s:I, s:I}", "memory_bytes", (json_int_t)info.memory_bytes,
			"disk_bytes", (json_int_t)info.disk_bytes, "stopped_ns",
			(json_int_t)info.stopped_ns),
		NULL, 0);
	if (rq->stop)
		keeper_process_end(k, 0, "it is paused");
	loop_defer(k->l, trim, NULL);
}

static void do_settled(struct keeper_process *k, const struct keeper_request *rq)
{
	struct err err;
	int r = sandbox_wait_memory(k->sb, clock_now_ns(), &err);

	if (r < 0 && r != -ETIMEDOUT)
		refuse(k, rq, r, &err);
	else
		keeper_process_answer(k, rq->n, json_pack("{s:b}", "settled", r == 0), NULL, 0);
}

/* ---- looking at it ------------------------------------------------------------------------- */

/* Of the machine, which only root may look into. *@ret_rough: it may not be told apart here. */
static int measure(int pid, struct smaps *ret, bool *ret_rough, struct err *err)
{
	int r = smaps_read(pid, ret, err);

	*ret_rough = r == -EACCES;
	if (*ret_rough)
		r = smaps_read_rough(pid, ret, err);
	return r == -ESRCH ? err_set(err, ESRCH, "its monitor is gone") : r;
}

static void do_stats(struct keeper_process *k, const struct keeper_request *rq)
{
	int pid = machine_pid(sandbox_machine(k->sb)), r;
	struct smaps monitor, own;
	struct stat overlay;
	struct err err;
	bool rough;

	if ((r = measure(pid, &monitor, &rough, &err)) < 0 ||
		(r = smaps_read(getpid(), &own, &err)) < 0) {
		refuse(k, rq, r, &err);
		return;
	}
	if (fstat(sandbox_overlay_fd(k->sb), &overlay) < 0) {
		refuse(k, rq, err_sys(&err, errno, "the disk's overlay"), &err);
		return;
	}
	keeper_process_answer(k, rq->n,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "memory_private",
			(json_int_t)monitor.guest_private, "memory_shared",
			(json_int_t)(monitor.guest_pss - monitor.guest_private), "monitor_private",
			(json_int_t)(monitor.pss - monitor.guest_pss), "keeper_private",
			(json_int_t)own.pss, "disk_bytes", (json_int_t)overlay.st_blocks * 512,
			"cpu_ns", (json_int_t)clock_process_ns(pid), "faults",
			(json_int_t)count_faults(pid), "rough", rough),
		NULL, 0);
	loop_defer(k->l, trim, NULL);
}

static void do_console(struct keeper_process *k, const struct keeper_request *rq)
{
	cleanup_free char *text = machine_console(sandbox_machine(k->sb));
	const char *tail = text ? console_tail(text, CONSOLE_TEXT) : "";

	keeper_process_answer(
		k, rq->n, json_pack("{s:o}", "text", json_lossy(tail, strlen(tail))), NULL, 0);
}

void keeper_process_serve(struct keeper_process *k, struct keeper_request *rq, int64_t read_at)
{
	struct err err;

	if (k->stage != KEEPER_STAGE_HANDED &&
		(rq->op == KEEPER_DESCRIBE || rq->op == KEEPER_RENEW || rq->op == KEEPER_CAPTURE ||
			rq->op == KEEPER_SETTLED)) {
		refuse(k, rq,
			err_set(&err, EINVAL, "%s: it is not handed out yet",
				keeper_op_name(rq->op)),
			&err);
		return;
	}
	switch (rq->op) {
	case KEEPER_READY:
		do_ready(k, rq);
		return;
	case KEEPER_PREPARE:
		do_prepare(k, rq);
		return;
	case KEEPER_HAND_OUT:
		do_hand_out(k, rq, read_at);
		return;
	case KEEPER_DESCRIBE:
		answer_handed(k, rq->n, true);
		return;
	case KEEPER_RENEW:
		do_renew(k, rq);
		return;
	case KEEPER_CAPTURE:
		do_capture(k, rq);
		return;
	case KEEPER_SETTLED:
		do_settled(k, rq);
		return;
	case KEEPER_STATS:
		do_stats(k, rq);
		return;
	case KEEPER_CONSOLE:
		do_console(k, rq);
		return;
	case KEEPER_OPS:
		break;
	}
	abort(); /* keeper_request_parse() lets no other through */
}
