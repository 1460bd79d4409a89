/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemon, zygote and keeper: made, checked, sent and received. All ends run as one
 * user and trust each other's intentions, but not that the other is free of bugs or of the same
 * version: a keeper may be older than the daemon that adopts it. So a request that is not known is
 * refused by name, and a field that is not known is ignored.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/keeper/keeper_private.h"
#include "pool/keeper/limits.h"

#define HOSTNAME_MAX 63

static const char *const op_names[] = {
	[KEEPER_READY] = "ready",
	[KEEPER_PREPARE] = "prepare",
	[KEEPER_HAND_OUT] = "hand_out",
	[KEEPER_DESCRIBE] = "describe",
	[KEEPER_RENEW] = "renew",
	[KEEPER_CAPTURE] = "capture",
	[KEEPER_SETTLED] = "settled",
	[KEEPER_STATS] = "stats",
	[KEEPER_CONSOLE] = "console",
};
static_assert(sizeof(op_names) / sizeof(op_names[0]) == KEEPER_OPS, "all named");

const char *keeper_op_name(enum keeper_op op)
{
	return op_names[op];
}

bool keeper_id_valid(const char *id)
{
	size_t len = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789");

	return len > 0 && len <= KEEPER_ID && !id[len];
}

/* ---- requests ------------------------------------------------------------------------------ */

static int find_op(const char *name, enum keeper_op *ret, struct err *err)
{
	for (int i = 0; i < KEEPER_OPS; i++) {
		if (strcmp(op_names[i], name) == 0) {
			*ret = (enum keeper_op)i;
			return 0;
		}
	}
	return err_set(err, ENOSYS,
		"the keeper knows no request \"%.40s\"; it may be of an older parbake", name);
}

/* An absolute path that may be absent. */
static int get_path(const json_t *obj, const char *key, const char **ret, struct err *err)
{
	int r = json_get_string(obj, key, ret, err);

	if (r == -ENOENT) {
		*ret = NULL;
		return 0;
	}
	if (r < 0)
		return r;
	if ((*ret)[0] != '/' || strlen(*ret) >= LIMIT_PATH)
		return err_set(err, EINVAL, "\"%s\": not an absolute path of at most %d bytes", key,
			LIMIT_PATH - 1);
	return 0;
}

static int get_record(const json_t *obj, json_t **ret, struct err *err)
{
	cleanup_free char *text = NULL;
	json_t *record = json_object_get(obj, "record");

	*ret = NULL;
	if (!record)
		return 0;
	if (!json_is_object(record))
		return err_set(err, EINVAL, "\"record\": not an object");
	text = json_text(record);
	if (strlen(text) > LIMIT_KEEPER_RECORD)
		return err_set(
			err, E2BIG, "\"record\": more than %lu bytes as text", LIMIT_KEEPER_RECORD);
	*ret = record;
	return 0;
}

static int get_hostname(const json_t *obj, const char **ret, struct err *err)
{
	int r = json_get_string(obj, "hostname", ret, err);

	if (r == -ENOENT) {
		*ret = NULL;
		return 0;
	}
	if (r == 0 && (!**ret || strlen(*ret) > HOSTNAME_MAX))
		r = err_set(err, EINVAL, "\"hostname\": not 1 to %d bytes", HOSTNAME_MAX);
	return r;
}

static int parse_lease(struct keeper_request *rq, struct err *err)
{
	int r;

	if ((r = json_get_u64(rq->obj, "lease_ms", 0, LIMIT_LEASE_MS, &rq->lease_ms, err)) < 0 ||
		(r = get_path(rq->obj, "pause_dir", &rq->pause_dir, err)) < 0 ||
		(r = get_record(rq->obj, &rq->record, err)) < 0)
		return r;
	return 0;
}

static int parse_fields(struct keeper_request *rq, struct err *err)
{
	int r = 0;

	switch (rq->op) {
	case KEEPER_HAND_OUT:
		if ((r = parse_lease(rq, err)) < 0 ||
			(r = json_get_string(rq->obj, "id", &rq->id, err)) < 0 ||
			(r = get_hostname(rq->obj, &rq->hostname, err)) < 0)
			return r;
		if (!keeper_id_valid(rq->id))
			return err_set(
				err, EINVAL, "\"id\": not 1 to %d of a-z and 0-9", KEEPER_ID);
		return 0;
	case KEEPER_RENEW:
		return parse_lease(rq, err);
	case KEEPER_CAPTURE:
		r = get_path(rq->obj, "dir", &rq->dir, err);
		if (r == 0 && !rq->dir)
			r = err_set(err, EINVAL, "\"dir\" is missing");
		rq->stop = json_is_true(json_object_get(rq->obj, "stop"));
		return r;
	default:
		return 0;
	}
}

int keeper_request_parse(const char *text, size_t len, struct keeper_request *ret, struct err *err)
{
	const char *op;
	int r;

	*ret = (struct keeper_request){0};
	r = json_parse("request", text, len, &ret->obj, err);
	if (r < 0)
		return r;
	if ((r = json_get_u64(ret->obj, "n", 1, INT64_MAX, &ret->n, err)) < 0 ||
		(r = json_get_string(ret->obj, "op", &op, err)) < 0)
		return -EINVAL;
	r = find_op(op, &ret->op, err);
	if (r < 0)
		return r;
	r = parse_fields(ret, err);
	if (r < 0)
		err_prefix(err, "%s", op_names[ret->op]);
	return r == -ENOENT ? -EINVAL : r; /* a field is missing */
}

void keeper_request_clear(struct keeper_request *rq)
{
	json_decref(rq->obj);
	*rq = (struct keeper_request){0};
}

/* ---- answers ------------------------------------------------------------------------------- */

static int get_pid(const json_t *obj, const char *key, int *ret, struct err *err)
{
	uint64_t pid = 0;
	int r = json_get_u64(obj, key, 1, INT32_MAX, &pid, err);

	if (r < 0 && r != -ENOENT)
		return r;
	*ret = (int)pid;
	return 0;
}

int keeper_answer_parse(const char *text, size_t len, struct keeper_answer *ret, struct err *err)
{
	uint64_t code = 0;
	bool ok;
	int r;

	*ret = (struct keeper_answer){.text = ""};
	r = json_parse("answer", text, len, &ret->obj, err);
	if (r < 0)
		return r;
	if (json_object_get(ret->obj, "event")) {
		r = json_get_string(ret->obj, "event", &ret->event, err);
		ok = json_object_get(ret->obj, "errno") == NULL;
	} else {
		r = json_get_u64(ret->obj, "n", 1, INT64_MAX, &ret->n, err);
		ok = json_is_true(json_object_get(ret->obj, "ok"));
	}
	if (r == 0 && !ok)
		r = json_get_u64(ret->obj, "errno", ret->event ? 0 : 1, 4095, &code, err);
	if (r == 0 && json_object_get(ret->obj, "text"))
		r = json_get_string(ret->obj, "text", &ret->text, err);
	if (r < 0 || (r = get_pid(ret->obj, "pid", &ret->pid, err)) < 0 ||
		(r = get_pid(ret->obj, "monitor_pid", &ret->monitor_pid, err)) < 0)
		return r;
	ret->error = (int)code;
	return 0;
}

void keeper_answer_clear(struct keeper_answer *a)
{
	json_decref(a->obj);
	*a = (struct keeper_answer){.text = ""};
}

json_t *keeper_ended(int error, const char *text)
{
	json_t *obj = json_pack("{s:s}", "event", "ended");

	if (!obj)
		abort(); /* no memory */
	rpc_put_failure(obj, error, text);
	return obj;
}
