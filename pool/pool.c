/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool as a whole: its files, opening and closing it, and reading its state.
 *
 * STATE/ (mode 0700, locked by the file `lock`, which names the daemon that holds it):
 *
 *     paused/ID.json            the record of a sandbox that is paused, or that its keeper will pause
 *     snapshots/ID.json         the record of a snapshot
 *     published/NAME:TAG.json   which key has published a template
 *     captures/ID-N, ID         the checkpoints of sandboxes and of snapshots, and one for each fork under way
 *     trash/                    what is being removed
 *
 * adopt.c says what each instant leaves there.
 *
 * The keepers' sockets are in PATHS_RUN/pool/, in a directory that belongs to this state directory,
 * so that two pools on a host do not adopt each other's sandboxes.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/paths.h"
#include "common/str.h"
#include "pool/adopt_private.h"
#include "pool/cgroup_private.h"
#include "pool/config.h"
#include "pool/guest_private.h"
#include "pool/handout_private.h"
#include "pool/limits_private.h"
#include "pool/keeper/keeper.h"
#include "pool/machine_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/published_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/stock_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"
#include "pool/work_private.h"

#define TICK_MS 2000
#define JOBS_PER_CPU 2

struct pool_later {
	LIST_ENTRY(pool_later) link;
	struct loop_timer *timer;
	pool_fn *fn;
	void *user;
	int error;
	char text[ERR_TEXT_MAX];
};

static void later_free(struct pool_later *l)
{
	LIST_REMOVE(l, link);
	free(l);
}

static void later_run(void *user)
{
	struct pool_later *l = user;

	l->fn(l->user, NULL, l->error, l->text);
	later_free(l);
}

void pool_later(struct pool *p, pool_fn *fn, void *user, int error, const char *text)
{
	struct pool_later *l;

	if (!fn)
		return;
	l = calloc(1, sizeof(*l));
	if (!l)
		abort();
	*l = (struct pool_later){.fn = fn, .user = user, .error = error};
	snprintf(l->text, sizeof(l->text), "%s", text);
	LIST_INSERT_HEAD(&p->later, l, link);
	l->timer = loop_defer(p->loop, later_run, l);
}

void pool_fail_later(struct pool *p, pool_fn *fn, void *user, int r, const struct err *err)
{
	pool_later(p, fn, user, -r, r ? err->text : "");
}

char *pool_path(const struct pool *p, const char *sub, const char *id)
{
	return str_printf("%s/%s/%s", p->state, sub, id);
}

char *pool_record_path(const struct pool *p, const char *sub, const char *id)
{
	return str_printf("%s/%s/%s.json", p->state, sub, id);
}

char *pool_capture_path(const struct pool *p, const char *id, unsigned generation)
{
	return str_printf("%s/captures/%s-%u", p->state, id, generation);
}

bool pool_record_name(const char *name, char ret[static POOL_ID_SIZE])
{
	if (strlen(name) != POOL_ID_LEN + strlen(".json") || strcmp(name + POOL_ID_LEN, ".json"))
		return false;
	memcpy(ret, name, POOL_ID_LEN);
	ret[POOL_ID_LEN] = '\0';
	return pool_id_valid(ret);
}

bool pool_capture_whole(const char *dir)
{
	cleanup_free char *last = str_printf("%s/capture.json", dir);

	return access(last, F_OK) == 0;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static int state_lock(struct pool *p, struct err *err)
{
	char who[64] = "";
	int fd = file_lock(p->state, "lock", true, false, err);

	if (fd == -EWOULDBLOCK) {
		cleanup_free char *path = str_printf("%s/lock", p->state);
		cleanup_fd int other = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = other < 0 ? 0 : read(other, who, sizeof(who) - 1);

		who[n < 0 ? 0 : n] = '\0';
		who[strcspn(who, "\n")] = '\0';
		return err_set(err, EWOULDBLOCK,
			"%s is in use by another pool (process %s): give this one a state "
			"directory of "
			"its own, or end that one",
			p->state, who[0] ? who : "unknown");
	}
	if (fd < 0)
		return fd;
	p->lock_fd = fd;
	snprintf(who, sizeof(who), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || file_pwrite_full(fd, who, strlen(who), 0) < 0)
		return err_sys(err, errno ? errno : EIO, "writing %s/lock", p->state);
	return 0;
}

static int places_make(struct pool *p, struct err *err)
{
	static const char *const subs[] = {"paused", "snapshots", "published", "captures", "trash"};
	cleanup_free char *real = NULL;
	char digest[DIGEST_TEXT_SIZE], name[64];
	int r = file_mkdir_p(p->config->state, 0700, err);

	if (r < 0)
		return r;
	real = realpath(p->config->state, NULL);
	if (!real)
		return err_sys(err, errno, "the state directory %s", p->config->state);
	p->state = steal_ptr(&real);
	r = state_lock(p, err);
	for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]) && r == 0; i++) {
		cleanup_free char *path = str_printf("%s/%s", p->state, subs[i]);

		r = file_mkdir_p(path, 0700, err);
	}
	if (r < 0)
		return r;
	digest_buffer(p->state, strlen(p->state), digest);
	snprintf(name, sizeof(name), "pool/%.12s", digest + strlen("sha256:"));
	return paths_sub(PATHS_RUN, name, &p->sockets, err);
}

static void tick(void *user)
{
	struct pool *p = user;
	struct err err;

	p->tick_timer = loop_timer(p->loop, clock_deadline(TICK_MS), tick, p);
	if (pool_store_refresh(p, &err) < 0)
		log_warn("%s", err.text);
	pool_versions_sweep(p);
	pool_cgroups_sweep(p->cgroups);
	pool_stock_measure(p);
	pool_memory_relieve(p);
	pool_published_collect(p);
	pool_stock_refill(p);
}

int pool_new(struct loop *l, const struct config *config, struct pool **ret, struct err *err)
{
	struct pool *p = calloc(1, sizeof(*p));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int r;

	if (!p)
		abort();
	*p = (struct pool){.loop = l,
		.config = config,
		.lock_fd = -1,
		.opening = true,
		.slots = JOBS_PER_CPU * (unsigned)(cpus > 0 ? cpus : 1),
		.refill_at = clock_now_ns()};
	TAILQ_INIT(&p->sandboxes);
	TAILQ_INIT(&p->queue);
	p->store_dir = str_dup(config->store);
	r = places_make(p, err);
	if (r == 0)
		r = store_open(p->store_dir, true, &p->store, err);
	if (r == 0) {
		cleanup_free char *captures = str_printf("%s/captures", p->state);

		/* gc keeps what they need */
		r = store_captures_at(p->store, captures, err);
	}
	if (r == 0)
		r = pool_works_new(l, &p->works, err);
	if (r == 0) {
		p->cgroups = pool_cgroups_open(config->cgroup);
		r = pool_store_refresh(p, err);
	}
	if (r == 0)
		r = pool_adopt(p, err);
	if (r < 0) {
		pool_free(p);
		return r;
	}
	p->opening = false;
	pool_versions_configure(p);
	p->tick_timer = loop_timer(l, clock_deadline(TICK_MS), tick, p);
	pool_stock_refill(p);
	*ret = p;
	return 0;
}

void pool_configure(struct pool *p, const struct config *config)
{
	p->config = config;
	pool_versions_configure(p);
	pool_stock_refill(p);
	pool_handout_pump(p);
}

void pool_drain(struct pool *p)
{
	struct pool_version *v;

	if (p->draining)
		return;
	p->draining = true;
	pool_handout_fail_waiting(p, ESHUTDOWN, "the pool is shutting down");
	LIST_FOREACH(v, &p->versions, link)
		pool_stock_end(v);
}

void pool_free(struct pool *p)
{
	struct pool_sandbox *sb;
	struct pool_later *l;

	if (!p)
		return;
	p->draining = true;
	loop_timer_cancel(p->tick_timer);
	loop_timer_cancel(p->refill_timer);
	while (!LIST_EMPTY(&p->handouts))
		pool_handout_cancel(LIST_FIRST(&p->handouts));
	pool_transition_free_all(p);
	pool_publish_free(p->gc);
	while ((sb = TAILQ_FIRST(&p->sandboxes))) {
		if (sb->machine)
			sb->machine->sb = NULL;
		sb->machine = NULL;
		sb->held = 0;
		pool_sandbox_remove(sb);
	}
	pool_guests_bury(p);
	while (!LIST_EMPTY(&p->machines))
		pool_machine_free(LIST_FIRST(&p->machines));
	pool_versions_free(p);
	while ((l = LIST_FIRST(&p->later))) {
		loop_timer_cancel(l->timer);
		later_free(l);
	}
	pool_looking_free_all(p);
	pool_works_free(p->works);
	pool_cgroups_free(p->cgroups);
	pool_keys_free(p);
	store_free(p->store);
	close_fd(&p->lock_fd);
	free(p->store_dir);
	free(p->sockets);
	free(p->state);
	free(p);
}

/* ---- looking ---------------------------------------------------------------------------------- */

struct pool_sandbox *pool_find(struct pool *p, const char *id)
{
	return pool_sandbox_find(p, id);
}

struct pool_sandbox *pool_next(struct pool *p, const struct pool_sandbox *after)
{
	struct pool_sandbox *sb = after ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&p->sandboxes);

	while (sb && sb->state == POOL_ENDING)
		sb = TAILQ_NEXT(sb, link);
	return sb;
}

size_t pool_count(const struct pool *p, enum pool_state state)
{
	return p->counts[state];
}

size_t pool_size(const struct pool *p)
{
	return p->n_sandboxes;
}

void pool_sandbox_info(const struct pool_sandbox *sb, struct pool_sandbox_info *ret)
{
	const struct pool_record *n = &sb->record;

	*ret = (struct pool_sandbox_info){
		.id = n->id,
		.template_name = n->name,
		.template_tag = n->tag,
		.template_digest = n->digest,
		.key = n->key,
		.state = sb->state,
		.started_ms = n->started_ms,
		.end_ms = sb->state == POOL_PAUSED ? sb->paused_ms : sb->end_ms,
		.metadata = n->metadata,
		.env = sb->egress_env ? sb->egress_env : n->env,
		.allow = n->allow,
		.auto_pause = n->auto_pause,
		.auto_resume = n->auto_resume,
		.guarded_ports = n->guarded_ports,
		.mask_host = n->mask_host,
		.vcpus = n->vcpus,
		.memory_bytes = n->memory_bytes,
		.disk_bytes = n->disk_bytes,
		.mode = n->mode,
		.create_ns = sb->create_ns,
		.disk_error = sb->machine ? keeper_disk_error(sb->machine->keeper) : NULL,
		.exec_timeout_ms = n->exec_timeout_ms,
		.output_bytes = n->output_bytes,
		.exec_memory_bytes = n->exec_memory_bytes,
		.exec_pids = n->exec_pids,
		.user = n->user,
		.template_env = n->template_env,
	};
}

struct pool_listed *pool_sandbox_listed(struct pool_sandbox *sb)
{
	return &sb->shown;
}

void pool_on_create(struct pool *p,
	void (*fn)(void *user, const struct pool_sandbox_info *f, bool ok, const json_t *parts),
	void *user)
{
	p->on_create = fn;
	p->on_create_user = user;
}
