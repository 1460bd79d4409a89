/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a paused sandbox: its record in STATE/paused and its checkpoints in STATE/captures.
 *
 * The record is removed first. Checkpoints without a record are litter, so from that moment the
 * sandbox does not come back, whichever process dies. A record that was being written while its
 * sandbox ended is removed again.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/paused_private.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"
#include "pool/work_private.h"

struct paused_write {
	struct pool_sandbox *sb;
	char *dir, *name, *text;
	int error;
	struct err err;
	void (*done)(void *user, int error, const char *text);
	void *user;
};

static void rest_run(void *arg)
{
	struct paused_write *r = arg;

	r->error = err_of_files(
		-file_publish(r->dir, r->name, r->text, strlen(r->text), 0600, &r->err));
}

static void rest_done(void *arg)
{
	struct paused_write *r = arg;

	fault_point("pool.rest.noted");
	if (!pool_sandbox_put(r->sb)) {
		cleanup_free char *path = str_printf("%s/%s", r->dir, r->name);

		unlink(path);
	}
	r->done(r->user, r->error, r->error ? r->err.text : "");
	free(r->dir);
	free(r->name);
	free(r->text);
	free(r);
}

void pool_paused_write(
	struct pool_sandbox *sb, void (*done)(void *user, int error, const char *text), void *user)
{
	struct paused_write *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->sb = sb;
	pool_sandbox_hold(sb);
	r->dir = str_printf("%s/paused", sb->pool->state);
	r->name = str_printf("%s.json", sb->record.id);
	r->text = json_text(sb->record_json);
	r->done = done;
	r->user = user;
	pool_work(sb->pool->works, rest_run, rest_done, r);
}

void pool_paused_clear_one(struct pool_sandbox *sb, unsigned generation)
{
	cleanup_free char *path = pool_capture_path(sb->pool, sb->record.id, generation);
	struct err err;

	if (pool_trash(sb->pool, path, &err) < 0)
		log_warn("sandbox %s: %s", sb->record.id, err.text);
}

int pool_paused_clear(struct pool_sandbox *sb, struct err *err)
{
	cleanup_free char *path = pool_record_path(sb->pool, "paused", sb->record.id);

	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, errno, "removing %s", path);
	pool_paused_clear_one(sb, sb->record.generation);
	if (sb->capture && sb->capture != sb->record.generation)
		pool_paused_clear_one(sb, sb->capture);
	return 0;
}
