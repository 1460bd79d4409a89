/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon finds when it starts, at whatever moment the daemon before it was killed.
 *
 * It looks in two places, and nothing else records sandboxes: the sockets of keepers (the sandboxes
 * that run) and STATE (the sandboxes that are paused). A keeper that answers has a lease and a
 * record. A keeper without a lease has no socket, and has ended with its daemon. So this is what
 * can be found for each transition, whenever the daemon was killed in it:
 *
 *   create   Before the lease there is nothing to find: a keeper that is asked for a lease by a
 *            daemon that has gone ends. With the lease there is a running sandbox, whether or not
 *            its client was told of it; its lease ends it. With auto_pause its record may be
 *            missing yet: it is written here.
 *   kill     The keeper and its machine are killed together. A socket that nobody listens on is
 *            left: it is unlinked here. A record without a whole checkpoint is cleared. Of a paused
 *            sandbox the record is removed first: a checkpoint without a record is litter.
 *   pause    (1) paused/ID.json is there, and the keeper answers: the sandbox runs, and the record
 *            is cleared.
 *            (2) The keeper is writing the checkpoint captures/ID-N: it does not answer until that
 *            is done, or ends with it done. It is waited for, and the files of its sandbox are left
 *            alone meanwhile.
 *            (3) capture.json is there: the checkpoint is whole, the keeper ends by itself, the
 *            sandbox is paused.
 *   resume   (1) The keeper has no lease yet: it ended with the daemon, and the sandbox is still
 *            paused.
 *            (2) The sandbox runs, restored from captures/ID-N, and its record says generation N +
 *            1. The record in paused/ says N still, and both stay until the keeper says that its
 *            machine has all of its memory (settle.c). Then captures/ID-N is cleared, and the
 *            record in paused/ is written anew where the lease pauses the sandbox, else cleared.
 *            (The keeper may end by its lease before a daemon comes. Then the sandbox is seen as
 *            paused in ID-N again, as it was before; only what was given up with the lease is
 *            lost.)
 *   lease    The end of a lease with auto_pause is a pause from (2) on, by the keeper alone. (After
 *            a resume whose daemon was killed before it wrote the record anew, the record says N,
 *            and checkpoint N + 1 is there.)
 *   fork     The checkpoint of a fork, whole or not, belongs to no record: it is litter, as the
 *            client that asked for the fork is gone. Keepers with a lease run, and hold what they
 *            need open; the others have ended.
 *   snapshot A record without a whole checkpoint, or with a checkpoint that was to be published, is
 *            litter, and so is the checkpoint.
 *   removal  A checkpoint is removed by a rename into trash/, and then at leisure: what lies there
 *            is litter.
 *
 * A record that another version of parbake wrote, and this one cannot read, is nothing to be
 * cleared: its sandbox goes on by its lease, and its files stay, until a daemon comes that can.
 *
 * A keeper that does not answer (it is stopped, or takes long over a checkpoint) is waited for
 * without holding up the start. Where it has said nothing for STUCK_MS, nobody can tell whose
 * sandbox it has or until when: it is killed.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/str.h"
#include "pool/adopt_private.h"
#include "pool/cgroup_private.h"
#include "pool/config.h"
#include "pool/disk_private.h"
#include "pool/guest_private.h"
#include "pool/keeper/keeper.h"
#include "pool/lease_private.h"
#include "pool/machine_private.h"
#include "pool/paused_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/settle_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"
#include "pool/work_private.h"

#define ADOPT_MS 3000 /* for all together, before the daemon goes on without the rest */
#define STUCK_MS 60000

/*
 * ---- paused sandboxes
 * -------------------------------------------------------------------------------
 */

static void trash(struct pool *p, const char *path)
{
	struct err err;

	if (pool_trash(p, path, &err) < 0)
		log_warn("%s", err.text);
}

static void noted(void *user, int error, const char *text)
{
	char *id = user;

	if (error)
		log_warn("sandbox %s: %s", id, text);
	free(id);
}

/* When a checkpoint became whole. */
static int64_t paused_at(const char *capture)
{
	cleanup_free char *last = str_printf("%s/capture.json", capture);
	struct stat st;

	if (stat(last, &st) < 0)
		return clock_realtime_ns() / 1000000;
	return (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

/* The generation of the checkpoint that the sandbox is paused in; 0: none. */
static unsigned rests_in(const struct pool_sandbox *sb)
{
	/* one before: it ran, and still needed the checkpoint that it came from */
	for (unsigned n = sb->record.generation + 1; n && n + 1 >= sb->record.generation; n--) {
		cleanup_free char *capture = pool_capture_path(sb->pool, sb->record.id, n);

		if (pool_capture_whole(capture))
			return n;
	}
	return 0;
}

/* The record of one that does not run: paused, or litter. */
static void paused_read(struct pool *p, const char *id, const char *path)
{
	cleanup_free char *capture = NULL;
	cleanup_json json_t *record = NULL;
	struct pool_sandbox *sb = NULL;
	struct err err = {0};

	if (json_read_file(AT_FDCWD, path, &record, &err) == 0)
		sb = pool_sandbox_new(p, record, POOL_PAUSED, &err);
	if (!sb || strcmp(sb->record.id, id)) {
		log_error("%s cannot be read, and is left as it is: %s", path,
			sb ? "it is another's" : err.text);
		if (sb)
			pool_sandbox_remove(sb);
		return;
	}
	sb->capture = rests_in(sb);
	if (!sb->capture) {
		if (pool_paused_clear(sb, &err) < 0)
			log_warn("%s", err.text);
		pool_sandbox_remove(sb);
		return;
	}
	capture = pool_capture_path(p, id, sb->capture);
	sb->paused_ms = paused_at(capture);
	sb->disk_bytes = pool_disk_of_capture(capture);
	pool_sandbox_list(sb);
	log_info("sandbox %s: paused", id);
}

static bool adopting(const struct pool *p, const char *id)
{
	const struct pool_machine *m;

	LIST_FOREACH(m, &p->machines, link) {
		if (m->path && (m->use == POOL_USE_ADOPTED || m->use == POOL_USE_FOREIGN) &&
			!strcmp(strrchr(m->path, '/') + 1, id))
			return true;
	}
	return false;
}

/* Look at what STATE/paused has of @id. */
static void adopt_record(struct pool *p, const char *id)
{
	cleanup_free char *path = pool_record_path(p, "paused", id);
	struct pool_sandbox *sb = pool_sandbox_find(p, id);

	if (sb && sb->machine && sb->capture)
		return; /* settle.c says when */
	if (sb && sb->machine && sb->record.auto_pause)
		pool_paused_write(sb, noted, str_dup(id));
	else if (sb && sb->machine)
		unlink(path);
	else if (!sb && access(path, F_OK) == 0)
		paused_read(p, id, path);
}

/* May the checkpoint @name be needed? It is a snapshot's, or "ID-N" of a sandbox. */
static bool capture_needed(struct pool *p, const char *name)
{
	char id[POOL_ID_SIZE], rest;
	const struct pool_sandbox *sb;
	unsigned n;

	if (pool_id_valid(name)) {
		cleanup_free char *path = pool_record_path(p, "snapshots", name);

		return access(path, F_OK) == 0;
	}
	if (sscanf(name, "%20[a-z0-9]-%9u%c", id, &n, &rest) != 2 || !pool_id_valid(id))
		return false;
	sb = pool_sandbox_find(p, id);
	if (!sb) {
		cleanup_free char *path = pool_record_path(p, "paused", id);

		/* a record that is there and could not be read is another version's */
		return adopting(p, id) || access(path, F_OK) == 0;
	}
	/* one that runs may just now be pausing, by its lease */
	return n == sb->capture || (sb->machine && n >= sb->record.generation);
}

/* Each name in a directory, which @fn may remove. */
static void each(struct pool *p, const char *path,
	void (*fn)(struct pool *p, const char *path, const char *name))
{
	cleanup_dir DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		cleanup_free char *one = str_printf("%s/%s", path, e->d_name);

		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			fn(p, one, e->d_name);
	}
}

static void adopt_paused(struct pool *p, const char *path, const char *name)
{
	char id[POOL_ID_SIZE];

	if (!pool_record_name(name, id))
		trash(p, path); /* what a publish left behind */
	else if (!adopting(p, id))
		adopt_record(p, id);
}

static void litter(struct pool *p, const char *path, const char *name)
{
	(void)name;
	trash(p, path);
}

static void adopt_snapshot(struct pool *p, const char *path, const char *name)
{
	cleanup_json json_t *record = NULL;
	cleanup_free char *capture = NULL;
	char id[POOL_ID_SIZE];

	struct err err;
	int r = -ENOENT;

	if (pool_record_name(name, id))
		r = pool_snapshot_find(p, id, &record, &capture, &err);
	if (r == -EPROTONOSUPPORT)
		log_error("snapshot %s is left as it is: %s", id, err.text);
	else if (r < 0 || json_object_get(record, "publish"))
		trash(p, path);
}

static void adopt_capture(struct pool *p, const char *path, const char *name)
{
	if (!capture_needed(p, name))
		trash(p, path);
}

/* What is known of @id, now that its machine is: its record, and its checkpoints (of the generations there can
 * be; others' are not looked at, they may be being made). */
static void adopt_late(struct pool *p, const char *id)
{
	const struct pool_sandbox *sb;

	adopt_record(p, id);
	sb = pool_sandbox_find(p, id);
	for (unsigned n = sb && sb->record.generation ? sb->record.generation - 1 : 0;
		sb && n <= sb->record.generation + 1; n++) {
		cleanup_free char *path = pool_capture_path(p, id, n);

		adopt_capture(p, path, strrchr(path, '/') + 1);
	}
}

/* ---- what runs -------------------------------------------------------------------------------- */

static int sandbox_adopt(struct pool_machine *m, const json_t *reply, int channel, struct err *err)
{
	struct pool *p = m->pool;
	const json_t *record = json_object_get(reply, "record");
	const char *name = strrchr(m->path, '/') + 1;
	struct pool_sandbox *sb;
	struct pool_record fields;
	uint64_t end, monitor;
	int r = json_get_u64(reply, "end_ns", 0, INT64_MAX, &end, err);

	if (r == 0)
		r = json_get_u64(reply, "monitor_pid", 0, INT32_MAX, &monitor, err);
	if (r == 0)
		r = pool_record_read(record, &fields, err);
	sb = r == 0 ? pool_sandbox_new(p, (json_t *)record, POOL_RUNNING, err) : NULL;
	if (sb && (strcmp(sb->record.id, name) || pool_sandbox_find(p, name))) {
		err_set(err, EINVAL, "its record is that of another sandbox");
		pool_sandbox_remove(sb);
		sb = NULL;
	}
	if (!sb) {
		close(channel);
		return r < 0 ? r : -EINVAL;
	}
	sb->version = pool_version_of(p, &sb->record);
	sb->version->sandboxes++;
	r = pool_guest_open(sb, channel, err);
	if (r < 0) {
		pool_sandbox_remove(sb);
		return r;
	}
	m->version = sb->version;
	m->use = POOL_USE_SANDBOX;
	m->sb = sb;
	sb->machine = m;
	sb->cgroup = pool_cgroup_new(p->cgroups, sb->record.id, (int)monitor,
		sb->record.memory_bytes, p->config->machine_pids, sb->record.vcpus);
	pool_sandbox_list(sb);
	pool_lease_set(sb, (int64_t)end);
	pool_settle_adopted(sb);
	return 0;
}

struct stuck {
	struct pool *pool;
	char *path;
};

/* Nobody knows whose it was; what lies in STATE may say. */
static void stuck_gone(void *user, int error, const char *text)
{
	struct stuck *l = user;

	(void)error;
	(void)text;
	unlink(l->path);
	adopt_late(l->pool, strrchr(l->path, '/') + 1);
	free(l->path);
	free(l);
}

static void stuck_kill(struct pool_machine *m, const char *why)
{
	struct stuck *l = malloc(sizeof(*l));

	if (!l)
		abort();
	*l = (struct stuck){.pool = m->pool, .path = str_dup(m->path)};
	log_warn("sandbox %s is ended: %s", strrchr(m->path, '/') + 1, why);
	pool_machine_end(m, stuck_gone, l);
}

static void stuck_passed(void *user)
{
	struct pool_machine *m = user;

	m->timer = NULL;
	stuck_kill(m, "its keeper has not answered since the pool started");
}

static void described(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	struct pool *p = m->pool;
	const char *id = strrchr(m->path, '/') + 1;
	int channel = error == 0 && n_fds == 2 ? fds[1] : -1, r;
	struct err err;

	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] != channel)
			close(fds[i]);
	}
	if (error == ECONNRESET || m->use != POOL_USE_ADOPTED) {
		close_fd(&channel);
		return; /* its end is about to be told */
	}
	loop_timer_cancel(m->timer);
	m->timer = NULL;
	if (error) {
		stuck_kill(m, text);
		return;
	}
	if (channel < 0) {
		stuck_kill(m, "its keeper gave no channel");
		return;
	}
	r = sandbox_adopt(m, reply, channel, &err);
	if (r == -EPROTONOSUPPORT) {
		m->use = POOL_USE_FOREIGN;
		log_error("sandbox %s is not adopted and goes on by its lease: %s", id, err.text);
	} else if (r < 0) {
		stuck_kill(m, err.text);
	} else {
		log_info("sandbox %s: adopted", id);
		if (!p->opening)
			adopt_late(p, id);
	}
}

void pool_adopt_ended(struct pool_machine *m, const char *text)
{
	struct pool *p = m->pool;
	const char *id = strrchr(m->path, '/') + 1;

	log_info("sandbox %s: ended before it was adopted: %s", id, text);
	unlink(m->path);
	m->use = POOL_USE_DYING;
	if (!p->opening)
		adopt_late(p, id);
}

static void adopt_socket(struct pool *p, const char *path, const char *name)
{
	struct pool_machine *m;
	struct err err;
	int r;

	r = pool_id_valid(name) ? pool_machine_adopt(p, path, &m, &err) : -ENOENT;
	if (r == 0) {
		keeper_describe(m->keeper, described, m);
	} else if (r == -ECONNREFUSED || r == -ENOENT) {
		unlink(path); /* nobody listens there */
	} else {
		log_warn("sandbox %s could not be adopted: %s", name, err.text);
	}
}

static unsigned adopting_count(const struct pool *p)
{
	const struct pool_machine *m;
	unsigned n = 0;

	LIST_FOREACH(m, &p->machines, link)
		n += m->use == POOL_USE_ADOPTED;
	return n;
}

int pool_adopt(struct pool *p, struct err *err)
{
	cleanup_free char *paused = str_printf("%s/paused", p->state);
	cleanup_free char *captures = str_printf("%s/captures", p->state);
	cleanup_free char *snapshots = str_printf("%s/snapshots", p->state);
	cleanup_free char *bin = str_printf("%s/trash", p->state);
	int64_t deadline = clock_deadline(ADOPT_MS);
	struct pool_machine *m;
	int r = 0;

	each(p, bin, litter);
	each(p, p->sockets, adopt_socket);
	while (r == 0 && adopting_count(p) && clock_now_ns() < deadline)
		r = loop_once(p->loop, deadline, err);
	if (r < 0)
		return r;
	LIST_FOREACH(m, &p->machines, link) {
		if (m->use == POOL_USE_ADOPTED)
			m->timer = loop_timer(p->loop, clock_deadline(STUCK_MS), stuck_passed, m);
	}
	if (adopting_count(p))
		log_warn(
			"%u sandboxes of the pool before have not answered yet", adopting_count(p));
	each(p, paused, adopt_paused);
	each(p, snapshots, adopt_snapshot);
	each(p, captures, adopt_capture);
	return 0;
}
