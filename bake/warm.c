/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warming the guest, and making it still. After guest_quiesce() nothing may be under way between
 * host and guest: the agent is asked whether any stream is open, and the capture is refused where
 * one is.
 */
#include "bake/warm.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bake/guest_install.h"
#include "bake/processes.h"
#include "bake/ready.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/str.h"
#include "restore/programs.h"

#define CALL_MS 120000
#define SLOW_CALL_MS 1200000 /* of what touches all memory or the whole disk */
#define CHECK_MS 60000
#define FLUSH_BYTES (4 << 20) /* more than the port has buffers for */

static void put_env(struct proto_out *body, const struct recipe *r)
{
	for (size_t i = 0; i < r->env.n; i++)
		proto_put_str(body, PROTO_T_ENV, r->env.items[i]);
}

static int start_context(struct oven *o, const struct recipe *r, struct err *err)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	cleanup_free char *home = r->user ? recipe_home(r) : NULL;
	struct proto_out body = {.buf = buf, .max = PROTO_BODY_MAX};
	int rc;

	if (!buf)
		abort();
	progress_stage(o->progress, "interpreter", NULL, 0);
	proto_put_str(&body, PROTO_T_ACTION, "start");
	if (home)
		proto_put_str(&body, PROTO_T_CWD, home);
	put_env(&body, r);
	rc = oven_call(o, PROTO_CONTEXT, &body, SLOW_CALL_MS, err);
	if (rc) {
		err_prefix(err, "start the interpreter");
		err_append(err, "\npython: steps need python3 and ipython3 among [root] packages");
		return rc;
	}
	progress_done(o->progress, NULL);
	return 0;
}

static int start_service(struct oven *o, const struct recipe *r, struct err *err)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out body = {.buf = buf, .max = PROTO_BODY_MAX};
	int rc;

	if (!buf)
		abort();
	proto_put_str(&body, PROTO_T_SHELL, r->start_command);
	proto_put_bool(&body, PROTO_T_DETACH, 1);
	put_env(&body, r);
	if (body.failed)
		return err_set(err, E2BIG, "[start] command and [env] are too long");
	rc = oven_call(o, PROTO_EXEC, &body, CALL_MS, err);
	if (rc)
		err_prefix(err, "[start] command");
	return rc;
}

static int run_steps(struct oven *o, const struct recipe *r, struct err *err)
{
	cleanup_free const char **env = guest_env(r, NULL);

	for (size_t i = 0; i < r->warm.n; i++) {
		const struct recipe_step *s = &r->warm.items[i];
		cleanup_free char *label = str_printf("[warm] %u", s->number);
		int rc = s->python ? oven_python(o, label, s->text, err)
				   : oven_shell(o, label, s->text, env, err);

		if (rc) {
			err_prefix(err, "%s:%u", s->file, s->line);
			return rc;
		}
	}
	return 0;
}

/* The recipe's user must be there, with the home that relative paths of SDKs begin at. */
static int check_user(struct oven *o, const struct recipe *r, struct err *err)
{
	cleanup_free char *home = recipe_home(r);
	struct guest_exec_spec spec = {.shell = "[ \"$HOME\" = \"$PWD\" ]",
		.cwd = home,
		.user = r->user,
		.timeout_ms = CHECK_MS,
		.stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int rc = guest_exec(o->guest, &spec, clock_deadline(2 * CHECK_MS), o->alive_fd, &res, err);

	if (!rc && res.exit_code)
		rc = err_set(err, EINVAL, "the account's home is not %s", home);
	if (rc) {
		err_prefix(err, "[start] user = %s", r->user);
		err_append(
			err, "\nmake it in an [install] step: useradd -m -d %s %s", home, r->user);
	}
	return rc;
}

int guest_warm(struct oven *o, const struct recipe *r, struct err *err)
{
	int rc = r->user ? check_user(o, r, err) : 0;

	if (!rc && recipe_uses_python(r))
		rc = start_context(o, r, err);
	if (!rc && (r->start_command || r->ready || r->warm.n)) {
		progress_stage(o->progress, "warm", NULL, 0);
		if (r->start_command)
			rc = start_service(o, r, err);
		if (!rc && r->ready)
			rc = ready_wait(o, r, err);
		if (!rc)
			rc = run_steps(o, r, err);
		if (!rc)
			progress_done(o->progress, "%zu steps", r->warm.n);
	}
	if (rc)
		oven_explain(o, err);
	return rc;
}

/* Is nobody but us on the channel? */
static int check_idle(struct oven *o, struct err *err)
{
	struct guest_info info;
	int rc = guest_info(o->guest, clock_deadline(CALL_MS), o->alive_fd, &info, err);

	if (rc)
		return rc;
	return info.streams
		? err_set(err, EBUSY, "%u streams are still open in the guest", info.streams)
		: 0;
}

/*
 * The guest's end of the channel keeps what came last in the buffers it was received into.
 * Zeros are sent until they fill them all: what was lent to the guest went the same way.
 */
static int flush_channel(struct oven *o, struct err *err)
{
	static const char path[] = "/run/.parbake-flush";
	cleanup_fd int fd = memfd_create("parbake-zeros", MFD_CLOEXEC);
	uint8_t buf[128];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int rc;

	if (fd < 0 || ftruncate(fd, FLUSH_BYTES))
		return err_sys(err, errno, "a file of zeros");
	rc = guest_put_file(
		o->guest, fd, path, 0600, NULL, clock_deadline(CALL_MS), o->alive_fd, err);
	proto_put_str(&body, PROTO_T_PATH, path);
	if (!rc)
		rc = oven_call(o, PROTO_FILE_REMOVE, &body, CALL_MS, err);
	if (rc)
		err_prefix(err, "flush the channel");
	return rc;
}

/* What each clone does first, done once: then its code is there and bound, and what it makes is made. */
static int try_identity(struct oven *o, struct err *err)
{
	struct guest_identity id;
	uint8_t buf[512];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int rc = guest_identity_make(OVEN_HOSTNAME, &id, err);

	if (rc)
		return rc;
	guest_identity_body(&id, &body);
	rc = oven_call(o, PROTO_IDENTITY, &body, CALL_MS, err);
	explicit_bzero(&id, sizeof(id));
	explicit_bzero(buf, sizeof(buf));
	return rc;
}

/*
 * Whatever is made when a cell runs, raises or is interrupted is made by now, and what a sandbox runs is
 * counted from 1. An interpreter that is busy is the recipe's affair.
 */
static int prepare_contexts(struct oven *o, struct err *err)
{
	uint8_t buf[64];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int rc;

	proto_put_str(&body, PROTO_T_ACTION, "prepare");
	rc = oven_call(o, PROTO_CONTEXT, &body, CALL_MS, err);
	return rc == -EBUSY ? 0 : rc;
}

/*
 * A first process, as a sandbox's first command is one: what the kernel reads from the disk for it (shell,
 * loader, C library) stays in its cache. A root without a shell has none to keep.
 */
static int touch_shell(struct oven *o, const struct recipe *r, struct err *err)
{
	cleanup_free const char **env = guest_env(r, NULL);
	struct guest_exec_spec spec = {
		.shell = ":", .env = env, .timeout_ms = CHECK_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int rc = guest_exec(o->guest, &spec, clock_deadline(2 * CHECK_MS), o->alive_fd, &res, err);

	return rc == -ENOENT ? 0 : rc;
}

/*
 * The same for the programs that sandboxes will start. A translation of a program fits where its
 * code lies in the very pages that it was made from, so these must be in the snapshot. With KVM
 * nothing is translated: there it is the recipe's affair what is kept in memory.
 */
static int touch_programs(struct oven *o, const struct recipe *r, struct err *err)
{
	struct programs_one list[PROGRAMS_MAX];
	size_t n = programs_list(&r->programs, o->shape.accel == MACHINE_TCG && o->settled, list);
	cleanup_free const char **env = guest_env(r, NULL);
	int64_t deadline = clock_deadline(LIMIT_PROGRAMS_MS);

	for (size_t i = 0; i < n && clock_left_ms(deadline) > 0; i++) {
		int rc = programs_run(
			o->guest, o->alive_fd, env, &list[i], clock_left_ms(deadline), err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int guest_quiesce(struct oven *o, const struct recipe *r, struct err *err)
{
	static const struct {
		enum proto_type type;
		const char *what;
	} calls[] = {
		{PROTO_QUIESCE, "collect garbage"},
		{PROTO_SYNCFS, "sync the file system"},
		{PROTO_DROP_CACHES, "drop caches"},
		{PROTO_ZERO_FREE, "zero free memory"},
	};
	uint8_t buf[64];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int rc = 0;

	progress_stage(o->progress, "quiesce", NULL, 0);
	rc = try_identity(o, err);
	if (!rc)
		rc = prepare_contexts(o, err);
	if (!rc)
		rc = flush_channel(o, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct proto_out none = {0};

		if (calls[i].type == PROTO_DROP_CACHES && r->keep_caches)
			continue;
		if (calls[i].type == PROTO_ZERO_FREE)
			rc = touch_programs(o, r, err);
		/* what this leaves in free memory is zeroed, too */
		if (!rc && calls[i].type == PROTO_ZERO_FREE)
			rc = processes_read(o->guest, o->lent, clock_deadline(CALL_MS), o->alive_fd,
				&o->processes, err);
		if (!rc)
			rc = oven_call(o, calls[i].type, &none, SLOW_CALL_MS, err);
		if (!rc && calls[i].type == PROTO_DROP_CACHES)
			rc = touch_shell(o, r, err);
		if (rc) {
			err_prefix(err, "%s in the guest", calls[i].what);
			oven_explain(o, err);
			return rc;
		}
	}
	rc = check_idle(o, err);
	if (rc)
		return rc;
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, WARM_FREEZE_MS);
	rc = oven_call(o, PROTO_FREEZE, &body, CALL_MS, err);
	if (rc) {
		err_prefix(err, "freeze the guest's file system");
		return rc;
	}
	progress_done(o->progress, NULL);
	return 0;
}
