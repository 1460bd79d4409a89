/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peers that are machines. All of them run the same monitor with the same devices over the
 * same disk and get the same three requests laid into their channel before they run; what differs
 * is where memory comes from.
 *
 * The eager peer's snapshot is made here from the template's own: a machine restored and not yet
 * run is written out by the monitor with its memory, which this driver leaves out only where
 * memory is shared.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "benches/boot.h"
#include "benches/first.h"
#include "benches/peers/peers.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/paths.h"
#include "restore/sandbox_private.h"
#include "store/image.h"
#include "vmm/machine.h"

#define BODY_BYTES 512

/* ---- parbake itself ------------------------------------------------------------------------ */

static int parbake_once(struct peers *p, int64_t *ret_answer, int64_t *ret_output, struct err *err)
{
	cleanup_sandbox struct sandbox *sb = NULL;
	int64_t begin = clock_now_ns();
	int r = sandbox_create(p->template, NULL, clock_deadline(LIMIT_CREATE_MS), &sb, err);

	if (r < 0)
		return r;
	*ret_answer = sandbox_trace(sb)->answered - begin;
	r = bench_first_exec(sandbox_guest(sb), machine_pidfd(sandbox_machine(sb)), err);
	*ret_output = clock_now_ns() - begin;
	return r;
}

/* ---- a machine over a memory of its own ----------------------------------------------------- */

struct restored {
	struct machine *machine;
	struct guest *guest;
};

static void restored_clear(struct restored *r)
{
	if (r->guest)
		guest_free(r->guest);
	machine_free(r->machine);
}

/* Started and its state loaded: paused. The clock's begin is the caller's. */
static int restore(
	struct peers *p, int memory_fd, int state_fd, struct restored *ret, struct err *err)
{
	cleanup_fd int overlay = -1, channel = -1;
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	struct machine_spec spec = {.shape = *template_shape(p->template),
		.monitor = template_monitor(p->template),
		.memory_fd = memory_fd,
		.pager_fd = -1,
		.disk_fd = template_disk_fd(p->template)};
	const char *cache;
	int r;

	if ((r = paths_get(PATHS_CACHE, &cache, err)) < 0 ||
		(r = overlay = file_scratch(cache, err)) < 0 ||
		(r = machine_overlay_init(overlay, template_config(p->template)->disk_bytes, err)) <
			0)
		return r;
	spec.overlay_fd = overlay;
	r = machine_start(&spec, &ret->machine, err);
	if (r < 0)
		return r;
	channel = machine_take_channel(ret->machine);
	r = guest_new(channel, &ret->guest, err);
	if (r < 0)
		return r;
	steal_fd(&channel);
	r = machine_ready(ret->machine, deadline, err);
	return r < 0 ? r : machine_restore(ret->machine, state_fd, deadline, err);
}

struct waiting {
	unsigned left;
	bool done;
	int error;
};

static void one_done(void *user, const struct guest_reply *reply)
{
	struct waiting *w = user;

	if (reply->error && reply->error != EINVAL) /* EINVAL: THAW where nothing is frozen */
		w->error = reply->error;
	w->done = --w->left == 0;
}

/* As a create does: SYNC, IDENTITY and THAW lie there when it wakes. */
static int run_to_answer(struct peers *p, struct restored *m, struct err *err)
{
	static const struct guest_stream_ops ops = {.done = one_done};
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	struct waiting w = {.left = 2};
	struct guest_identity id;
	uint8_t buf[BODY_BYTES];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	struct proto_hello hello;
	int r = guest_identity_make(NULL, &id, err);

	if (r < 0)
		return r;
	guest_identity_body(&id, &body);
	guest_sync_send(m->guest);
	if (!guest_request(m->guest, PROTO_IDENTITY, buf, body.len, &ops, &w) ||
		!guest_request(m->guest, PROTO_THAW, NULL, 0, &ops, &w))
		return err_set(err, ENOBUFS, "the guest's channel takes no request");
	if ((r = guest_dispatch(m->guest, err)) < 0 ||
		(r = machine_resume(m->machine, deadline, err)) < 0 ||
		(r = guest_wait(m->guest, &w.done, deadline, machine_pidfd(m->machine), err)) < 0)
		return r;
	if (w.error)
		return err_set(err, w.error, "the agent did not take its identity");
	if (!guest_synced(m->guest, &hello) ||
		memcmp(hello.boot, template_config(p->template)->boot_nonce, sizeof(hello.boot)) !=
			0)
		return err_set(
			err, EPROTO, "this machine was not restored: its boot nonce is another");
	return 0;
}

static int restore_once(struct peers *p, int memory_fd, int state_fd, int64_t *ret_answer,
	int64_t *ret_output, struct err *err)
{
	__attribute__((__cleanup__(restored_clear))) struct restored m = {0};
	int64_t begin = clock_now_ns();
	int r = restore(p, memory_fd, state_fd, &m, err);

	if (r == 0)
		r = run_to_answer(p, &m, err);
	*ret_answer = clock_now_ns() - begin;
	if (r == 0)
		r = bench_first_exec(m.guest, machine_pidfd(m.machine), err);
	*ret_output = clock_now_ns() - begin;
	return r;
}

/* ---- private file -------------------------------------------------------------------------- */

/* A file in memory, as templating monitors keep theirs on tmpfs. */
static int file_prepare(struct peers *p, struct err *err)
{
	const struct store_layer *l = store_layer(p->manifest, STORE_MEDIA_MEMORY);
	cleanup_fd int blob = -1, fd = memfd_create("parbake-file", MFD_CLOEXEC);
	cleanup_image struct image *img = NULL;
	int r;

	if (fd < 0)
		return err_sys(err, errno, "make a memory file");
	if (!l)
		return err_set(err, ENOENT, "the template has no memory");
	if ((r = store_blob_open(p->store, l->digest, l->bytes, &blob, err)) < 0 ||
		(r = image_open(blob, &img, err)) < 0 ||
		(r = image_expand(
			 img, fd, template_config(p->template)->memory_raw_digest, NULL, err)) < 0)
		return r;
	p->memory_fd = steal_fd(&fd);
	return 0;
}

static int file_once(struct peers *p, int64_t *ret_answer, int64_t *ret_output, struct err *err)
{
	return restore_once(
		p, p->memory_fd, template_state_fd(p->template), ret_answer, ret_output, err);
}

/* ---- eager --------------------------------------------------------------------------------- */

static int eager_prepare(struct peers *p, struct err *err)
{
	__attribute__((__cleanup__(restored_clear))) struct restored m = {0};
	cleanup_fd int fd = -1;
	const char *cache;
	struct stat st;
	int r;

	if (p->memory_fd < 0)
		return err_set(err, ENOENT, "there is no memory file to begin with");
	if ((r = paths_get(PATHS_CACHE, &cache, err)) < 0 ||
		(r = fd = file_scratch(cache, err)) < 0 ||
		(r = restore(p, p->memory_fd, template_state_fd(p->template), &m, err)) < 0)
		return r;
	/* a restored machine's memory is left out, being its own: here it is wanted */
	m.machine->booted = true;
	r = m.machine->ops->capture(m.machine, fd, clock_deadline(LIMIT_BOOT_MS), err);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at the monitor's snapshot");
	if ((uint64_t)st.st_size < template_config(p->template)->memory_data_bytes)
		return err_set(err, EIO, "the monitor's snapshot of %lld bytes holds no memory",
			(long long)st.st_size);
	p->eager_bytes = (uint64_t)st.st_size;
	p->eager_fd = steal_fd(&fd);
	return 0;
}

static int eager_once(struct peers *p, int64_t *ret_answer, int64_t *ret_output, struct err *err)
{
	int64_t begin = clock_now_ns(), before;
	cleanup_fd int memory = memfd_create("parbake-eager", MFD_CLOEXEC);
	int r;

	if (memory < 0 || ftruncate(memory, (off_t)template_config(p->template)->memory_bytes) < 0)
		return err_sys(err, errno, "make the machine's memory");
	before = clock_now_ns() - begin;
	r = restore_once(p, memory, p->eager_fd, ret_answer, ret_output, err);
	*ret_answer += before;
	*ret_output += before;
	return r;
}

/* ---- boot ---------------------------------------------------------------------------------- */

struct booting {
	int64_t begin, output;
};

static int booted(void *user, struct machine *m, struct guest *g, struct err *err)
{
	struct booting *b = user;
	int r = bench_first_exec(g, machine_pidfd(m), err);

	b->output = clock_now_ns() - b->begin;
	return r;
}

static int boot_once(struct peers *p, int64_t *ret_answer, int64_t *ret_output, struct err *err)
{
	struct booting b = {.begin = clock_now_ns()};
	int r = bench_boot(p->store, p->manifest, p->template, ret_answer, booted, &b, err);

	*ret_output = b.output;
	return r;
}

const struct peer peer_parbake = {
	.name = "parbake, cold create",
	.short_name = "parbake",
	.answers = true,
	.every = 1,
	.once = parbake_once,
};

const struct peer peer_file = {
	.name = "private map of a tmpfs file",
	.short_name = "private file",
	.answers = true,
	.every = 1,
	.prepare = file_prepare,
	.once = file_once,
};

const struct peer peer_eager = {
	.name = "QEMU's snapshot, eager",
	.short_name = "eager",
	.answers = true,
	.every = 1,
	.prepare = eager_prepare,
	.once = eager_once,
};

const struct peer peer_boot = {
	.name = "cold boot",
	.short_name = "boot",
	.answers = true,
	.every = 5,
	.once = boot_once,
};

void peers_clear(struct peers *p)
{
	peer_crun_clear(p);
	close_fd(&p->memory_fd);
	close_fd(&p->eager_fd);
	if (p->template)
		template_free(p->template);
	p->template = NULL;
}
