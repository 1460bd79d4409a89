/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox, from a template's snapshot to an agent that answers under a new identity.
 *
 * The monitor starts first, because that takes longest; meanwhile the pager maps the working set
 * and the identity is made. Before the machine runs, SYNC, IDENTITY and THAW are already in its
 * channel (a spare gets no THAW: it was thawed when it was made). So the answer needs no round
 * trip: the agent wakes, reads the three in order and answers them. THAW is needed because a
 * snapshot is taken with the root file system frozen. It comes after IDENTITY, which writes to
 * memory alone, so that nothing that the freeze held up goes on before the clone has its own
 * identity. The HELLO that answers SYNC carries the nonce that the agent made at boot and that
 * lives only in memory: where the nonce is not the one in the config, this machine was not restored
 * from that snapshot.
 *
 * The overlay is a file without a name in the cache, on disk: what a hostile guest writes to its
 * disk must cost the host disk space, which the template's size bounds, and not memory. It is gone
 * with its last descriptor, however this process ends.
 */
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/file.h"
#include "common/paths.h"
#include "restore/checkpoint_private.h"
#include "restore/translations.h"
#include "vmm/boot.h"

#define BODY_BYTES 512
#define END_WAIT_MS 200
#define LAST_WORDS 600 /* bytes of the console quoted in an error */

/* The moment at offset @moment of struct sandbox_trace is now. */
static void mark(struct sandbox *sb, size_t moment)
{
	int64_t *at = (int64_t *)((char *)&sb->trace + moment);
	int64_t *cpu = (int64_t *)((char *)&sb->cpu + moment);

	*at = clock_now_ns();
	if (template_counts_cpu(sb->t))
		*cpu = clock_thread_ns() +
			(sb->machine ? clock_process_ns(machine_pid(sb->machine)) : 0);
}

/* ---- standby --------------------------------------------------------------------------------- */

/* A fresh one, or that of a capture. */
static int make_overlay(struct sandbox *sb, const struct checkpoint *c, struct err *err)
{
	const char *dir;
	int r = paths_get(PATHS_CACHE, &dir, err);

	if (r < 0)
		return r;
	sb->overlay_fd = file_scratch(dir, err);
	if (sb->overlay_fd < 0)
		return sb->overlay_fd;
	if (c)
		r = checkpoint_copy_overlay(c, sb->overlay_fd, err);
	else
		r = machine_overlay_init(sb->overlay_fd, template_config(sb->t)->disk_bytes, err);
	mark(sb, offsetof(struct sandbox_trace, overlay_made));
	return r;
}

static int start(struct sandbox *sb, const struct template_own *own, struct err *err)
{
	struct machine_spec spec = {.shape = *template_shape(sb->t),
		.monitor = template_monitor(sb->t),
		.disk_fd = template_disk_fd(sb->t),
		.overlay_fd = sb->overlay_fd,
		/* what is its own may be code */
		.translations_fd = own ? -1 : template_translations_fd(sb->t),
		.pager_fd = -1};
	cleanup_fd int memory = -1, pager = -1, channel = -1;
	int r = template_memory(sb->t, own, &memory, &pager, &sb->own_in, err);

	if (r < 0)
		return r;
	mark(sb, offsetof(struct sandbox_trace, memory_got));
	if (fstat(memory, &sb->memory) < 0)
		return err_sys(err, errno, "the machine's memory");
	if (own)
		r = snapshot_ranges_copy(own->ranges, &sb->own, err);
	if (r < 0)
		return r;
	spec.memory_fd = memory;
	spec.pager_fd = pager;
	r = machine_start(&spec, &sb->machine, err);
	mark(sb, offsetof(struct sandbox_trace, monitor_started));
	if (r < 0)
		return r;
	channel = machine_take_channel(sb->machine);
	r = guest_new(channel, &sb->guest, err);
	if (r < 0)
		return r;
	steal_fd(&channel);
	machine_watch(sb->machine, sb->guest);
	return 0;
}

/* @c: NULL, or checked to be of @t. */
static int make_standby(struct template *t, const struct checkpoint *c, bool same_identity,
	struct sandbox **ret, struct err *err)
{
	cleanup_sandbox struct sandbox *sb = calloc(1, sizeof(*sb));
	struct template_own own;
	int r = 0;

	if (!sb)
		return err_set(err, ENOMEM, "no memory for a sandbox");
	sb->t = t;
	sb->overlay_fd = sb->state_fd = sb->own_in = -1;
	sb->trace.begin = clock_now_ns();
	if (c)
		r = checkpoint_lend(c, &own, &sb->state_fd, err);
	if (r == 0 && same_identity) {
		sb->keep_identity = true;
		checkpoint_get_identity(c, sb->machine_id, sb->hostname);
	}
	if (r < 0 || (r = make_overlay(sb, c, err)) < 0 ||
		(r = start(sb, c ? &own : NULL, err)) < 0) {
		err_prefix(err, "make a sandbox of %s", template_label(t));
		return r;
	}
	*ret = steal_ptr(&sb);
	return 0;
}

int sandbox_standby(struct template *t, struct sandbox **ret, struct err *err)
{
	return make_standby(t, NULL, false, ret, err);
}

int sandbox_standby_from(struct template *t, struct checkpoint *c, bool same_identity,
	struct sandbox **ret, struct err *err)
{
	int r = checkpoint_fits(c, t, err);

	return r < 0 ? r : make_standby(t, c, same_identity, ret, err);
}

/* ---- restore ------------------------------------------------------------------------------- */

static int failed(struct sandbox *sb, int r, struct err *err)
{
	if (r < 0)
		err_prefix(err, "restore %s", template_label(sb->t));
	return r;
}

static int load(struct sandbox *sb, int64_t deadline, struct err *err)
{
	int r;

	if (sb->stage != SANDBOX_STANDBY)
		return err_set(err, EALREADY, "it is restored already");
	r = machine_ready(sb->machine, deadline, err);
	mark(sb, offsetof(struct sandbox_trace, monitor_ready));
	if (r == 0)
		r = machine_restore(sb->machine,
			sb->state_fd >= 0 ? sb->state_fd : template_state_fd(sb->t), deadline, err);
	mark(sb, offsetof(struct sandbox_trace, state_loaded));
	sb->stage = r == 0 ? SANDBOX_LOADED : SANDBOX_FAILED;
	return r;
}

static void sent_done(void *user, const struct guest_reply *reply)
{
	struct sandbox_sent *s = user;

	s->done = true;
	s->at = clock_now_ns();
	s->sandbox->answered = s->sandbox->identity.done && s->sandbox->thaw.done;
	s->error = reply->error;
	snprintf(s->text, sizeof(s->text), "%s", reply->text ?: "");
}

static const struct guest_stream_ops sent_ops = {.done = sent_done};

/* SYNC, IDENTITY and maybe THAW into the channel, as far as it takes them now: all, it is empty. */
static int send_ahead(struct sandbox *sb, const char *hostname, struct err *err)
{
	struct guest_identity id;
	uint8_t buf[BODY_BYTES];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int r = guest_identity_make(
		!hostname && sb->keep_identity ? sb->hostname : hostname, &id, err);

	if (r < 0)
		return r;
	if (sb->keep_identity)
		memcpy(id.machine_id, sb->machine_id, sizeof(id.machine_id));
	id.named_only = sb->spare;
	memcpy(sb->machine_id, id.machine_id, sizeof(sb->machine_id));
	memcpy(sb->hostname, id.hostname, sizeof(sb->hostname));
	guest_identity_body(&id, &body);
	sb->identity.sandbox = sb->thaw.sandbox = sb;
	guest_sync_send(sb->guest);
	if (body.failed ||
		!guest_request(
			sb->guest, PROTO_IDENTITY, buf, body.len, &sent_ops, &sb->identity) ||
		(!sb->spare &&
			!guest_request(sb->guest, PROTO_THAW, NULL, 0, &sent_ops, &sb->thaw)))
		r = err_set(err, ENOBUFS, "the guest's channel takes no request");
	explicit_bzero(&id, sizeof(id));
	explicit_bzero(buf, sizeof(buf));
	return r < 0 ? r : guest_dispatch(sb->guest, err);
}

/* Both were answered: is it the machine of the snapshot, and does it know who it is? */
static int check_answers(struct sandbox *sb, struct err *err)
{
	const struct snapshot_config *c = template_config(sb->t);
	struct proto_hello hello;

	if (!guest_synced(sb->guest, &hello))
		return err_set(err, EPROTO, "the agent answered without saying hello");
	if (memcmp(hello.boot, c->boot_nonce, sizeof(hello.boot)) != 0)
		return err_set(err, EPROTO,
			"this machine was not restored from the snapshot: its boot nonce is "
			"another");
	if (sb->identity.error)
		return err_set(err, sb->identity.error, "the agent did not take its identity: %s",
			sb->identity.text);
	if (sb->thaw.error && sb->thaw.error != EINVAL) /* EINVAL: it was not frozen */
		return err_set(err, sb->thaw.error, "the root stays frozen: %s", sb->thaw.text);
	return 0;
}

/* Where the machine has ended, that is the reason; its channel may have told us a moment before its
 * pidfd. */
static int why_ended(struct sandbox *sb, int r, struct err *err)
{
	struct pollfd pfd = {.fd = machine_pidfd(sb->machine), .events = POLLIN};

	if (r == -ETIMEDOUT || poll(&pfd, 1, END_WAIT_MS) <= 0)
		return r;
	machine_get_state(sb->machine);
	machine_end_reason(sb->machine, err);
	return -ECONNABORTED;
}

/* LOADED or SPARE → ACTIVE. Whatever comes of it, there is one try. */
static int activate(struct sandbox *sb, const char *hostname, int64_t deadline, struct err *err)
{
	int r;

	sb->stage = SANDBOX_FAILED;
	sb->answered = sb->identity.done = false;
	sb->thaw = (struct sandbox_sent){.done = sb->spare};
	r = fault_point("restore.activate.begin");
	if (r < 0)
		return err_sys(err, -r, "hand it out");
	r = send_ahead(sb, hostname, err);
	mark(sb, offsetof(struct sandbox_trace, asked));
	if (r < 0 || (r = machine_resume(sb->machine, deadline, err)) < 0)
		return r;
	mark(sb, offsetof(struct sandbox_trace, resumed));
	r = guest_wait(sb->guest, &sb->answered, deadline, machine_pidfd(sb->machine), err);
	mark(sb, offsetof(struct sandbox_trace, answered));
	sb->trace.hello = guest_synced_at(sb->guest);
	sb->trace.identity = sb->identity.at;
	sb->trace.thaw = sb->spare ? sb->identity.at : sb->thaw.at;
	if (r == 0)
		r = check_answers(sb, err);
	if (r < 0)
		return why_ended(sb, r, err);
	sb->stage = SANDBOX_ACTIVE;
	return 0;
}

/* The same for a first cell. Agents of older snapshots do not know it (EINVAL). */
static int exercise(struct sandbox *sb, int64_t deadline, struct err *err)
{
	uint8_t buf[64];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int r;

	if (!template_config(sb->t)->context ||
		sb->state_fd >= 0) /* a checkpoint's is the user's */
		return 0;
	proto_put_str(&body, PROTO_T_ACTION, "exercise");
	r = guest_call(sb->guest, PROTO_CONTEXT, &body, deadline, machine_pidfd(sb->machine), NULL,
		NULL, err);
	return r == -EINVAL || r == -EBUSY ? 0 : r < 0 ? why_ended(sb, r, err) : 0;
}

int sandbox_prepare(struct sandbox *sb, int64_t deadline, struct err *err)
{
	int r = load(sb, deadline, err);

	/* an answer now makes the next one warm: pages are there, code is translated */
	if (r == 0)
		r = activate(sb, NULL, deadline, err);
	if (r == 0)
		r = exercise(sb, deadline, err);
	if (r == 0) {
		r = machine_pause(sb->machine, deadline, err);
		sb->stage = r == 0 ? SANDBOX_SPARE : SANDBOX_FAILED;
		sb->spare = sb->keep_identity = true;
	}
	return failed(sb, r, err);
}

int sandbox_activate(struct sandbox *sb, const char *hostname, int64_t deadline, struct err *err)
{
	int r;

	if (sb->stage != SANDBOX_SPARE)
		return failed(sb, err_set(err, EINVAL, "it is not a spare"), err);
	r = activate(sb, hostname, deadline, err);
	return failed(sb, r, err);
}

int sandbox_restore(struct sandbox *sb, const char *hostname, int64_t deadline, struct err *err)
{
	int r = load(sb, deadline, err);

	if (r == 0)
		r = activate(sb, hostname, deadline, err);
	return failed(sb, r, err);
}

int sandbox_create(struct template *t, const char *hostname, int64_t deadline, struct sandbox **ret,
	struct err *err)
{
	cleanup_sandbox struct sandbox *sb = NULL;
	int r = fault_point("restore.create.begin");

	if (r < 0)
		return err_sys(err, -r, "create a sandbox");
	r = sandbox_standby(t, &sb, err);
	if (r == 0)
		r = sandbox_restore(sb, hostname, deadline, err);
	if (r < 0) {
		if (sb)
			sandbox_explain(sb, err);
		return r;
	}
	*ret = steal_ptr(&sb);
	return 0;
}

int sandbox_wait_memory(struct sandbox *sb, int64_t deadline, struct err *err)
{
	struct pollfd pfd = {.fd = sb->own_in, .events = POLLIN};
	char byte;
	int n;

	if (sb->own_in < 0)
		return 0;
	do {
		n = poll(&pfd, 1, clock_left_ms(deadline));
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return err_set(err, ETIMEDOUT, "its memory is not all there yet");
	if (read(sb->own_in, &byte, 1) == 1) {
		close_fd(&sb->own_in);
		return 0;
	}
	err_set(err, ECONNABORTED, "it did not get all of the memory of its checkpoint");
	return sb->machine ? why_ended(sb, -ECONNABORTED, err) : -ECONNABORTED;
}

/* The monitor is gone before its file counts: it could still write to it. */
int sandbox_train(struct sandbox *sb, int64_t deadline, struct err *err)
{
	cleanup_publish struct publish p = PUBLISH_INIT;
	int r = 0;

	if (sb->stage != SANDBOX_ACTIVE && sb->stage != SANDBOX_SPARE)
		return err_set(err, EINVAL, "keep translations: it has not answered");
	if (sb->state_fd >= 0)
		return err_set(err, EINVAL, "keep translations: it was made from a capture");
	if (sb->stage == SANDBOX_ACTIVE)
		r = machine_pause(sb->machine, deadline, err);
	sb->stage = SANDBOX_FAILED;
	if (r == 0)
		r = translations_begin(&p, err);
	if (r == 0)
		r = machine_save_translations(sb->machine, p.fd, deadline, err);
	if (r < 0)
		return r;
	machine_free(sb->machine);
	sb->machine = NULL;
	return translations_commit(&p, template_memory_key(sb->t), template_monitor(sb->t), err);
}

void sandbox_free(struct sandbox *sb)
{
	if (!sb)
		return;
	if (sb->guest)
		guest_free(sb->guest);
	machine_free(sb->machine);
	close_fd(&sb->overlay_fd);
	close_fd(&sb->state_fd);
	close_fd(&sb->own_in);
	snapshot_ranges_clear(&sb->own);
	free(sb);
}

/* ---- looking at it ------------------------------------------------------------------------- */

struct guest *sandbox_guest(struct sandbox *sb)
{
	return sb->guest;
}

int sandbox_release_channel(struct sandbox *sb, struct err *err)
{
	int fd;

	if (sb->stage != SANDBOX_ACTIVE || !sb->guest)
		return err_set(err, EINVAL, "it is not handed out, or its channel is gone already");
	fd = fcntl(guest_fd(sb->guest), F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return err_sys(err, errno, "the agent's channel");
	guest_free(sb->guest);
	sb->guest = NULL;
	return fd;
}

struct machine *sandbox_machine(struct sandbox *sb)
{
	return sb->machine;
}

const struct sandbox_trace *sandbox_trace(const struct sandbox *sb)
{
	return &sb->trace;
}

const struct sandbox_trace *sandbox_cpu(const struct sandbox *sb)
{
	return &sb->cpu;
}

void sandbox_mark_result(struct sandbox *sb)
{
	if (!sb->trace.first_result)
		mark(sb, offsetof(struct sandbox_trace, first_result));
}

int sandbox_overlay_fd(const struct sandbox *sb)
{
	return sb->overlay_fd;
}

void sandbox_explain(struct sandbox *sb, struct err *err)
{
	cleanup_free char *console = NULL;
	bool ended;
	size_t len;

	/* a channel that ended is a machine that does, or is about to; a pager's end is a signal's */
	if (sb->guest)
		ended = guest_dispatch(sb->guest, NULL) < 0;
	else
		ended = sb->machine && machine_end_signal(sb->machine);
	template_explain(sb->t, ended, err);
	if (ended)
		err_append(err, "\n`parbake verify %s` reads what it is made of, in the cache too",
			template_label(sb->t));
	/* of a machine that has ended the error has them already */
	if (!sb->machine || strstr(err->text, " said last:"))
		return;
	console = machine_console(sb->machine);
	len = console ? strlen(console) : 0;
	while (len && (console[len - 1] == '\n' || console[len - 1] == ' '))
		console[--len] = '\0';
	if (len)
		err_append(err, "\nthe console said last:\n%s",
			len > LAST_WORDS ? console + len - LAST_WORDS : console);
}
