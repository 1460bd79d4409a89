/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_KEEPER_KEEPER_PRIVATE_H
#define PARBAKE_POOL_KEEPER_KEEPER_PRIVATE_H

#include <stddef.h>

#include "common/limits.h"
#include "common/rpc.h"
#include "common/sock.h"
#include "pool/keeper/keeper.h"
#include "restore/sandbox.h"

/*
 * Messages between a daemon, its zygotes and their keepers. keeper.h says what each request does
 * and what its answer has. The fields by name:
 *
 *     daemon → zygote   {"op":"make", "capture":DIR?, "same_identity":bool} + the keeper's end of its connection
 *     zygote → daemon   {"event":"ended", "errno":N, "text":…}: the template cannot be opened; then it ends
 *
 *     keeper → daemon    {"event":"hello", "pid":N, "monitor_pid":N?} + pidfd of itself [+ of the machine],
 *                        first on each connection, and again when there is a machine
 *                        and when its disk fails ("text": machine_disk_error())
 *                        {"event":"ended", "errno":N, "text":…}: its machine is gone, and it goes
 *     daemon → keeper    {"op":OP, "n":N, …}
 *       ready, prepare, describe, settled, stats, console
 *       hand_out         "id", "record", "lease_ms", "pause_dir"?, "hostname"?
 *       renew            "lease_ms", "pause_dir"?, "record"?
 *       capture          "dir", "stop"
 */
enum keeper_op {
	KEEPER_READY,
	KEEPER_PREPARE,
	KEEPER_HAND_OUT,
	KEEPER_DESCRIBE,
	KEEPER_RENEW,
	KEEPER_CAPTURE,
	KEEPER_SETTLED,
	KEEPER_STATS,
	KEEPER_CONSOLE,
	KEEPER_OPS
};
const char *keeper_op_name(enum keeper_op op);

#define KEEPER_FDS 2 /* that a message has at most */
#define KEEPER_ID 63 /* bytes of an id */

/* A request, checked. Its strings are borrowed from @obj. */
struct keeper_request {
	enum keeper_op op;
	uint64_t n;
	json_t *obj; /* owned */
	const char *id, *hostname, *pause_dir, *dir; /* NULL where absent */
	json_t *record; /* borrowed; NULL where absent */
	uint64_t lease_ms;
	bool stop;
};
/*
 * On failure @ret->n is the number of the request where it could be read, else 0, so that the
 * failure can be answered.
 */
int keeper_request_parse(const char *text, size_t len, struct keeper_request *ret, struct err *err);
void keeper_request_clear(struct keeper_request *rq);
#define cleanup_keeper_request __attribute__((__cleanup__(keeper_request_clear)))

/* An answer or an event, checked. */
struct keeper_answer {
	json_t *obj; /* owned */
	const char *event; /* NULL: an answer, to @n */
	uint64_t n;
	int error; /* 0: "ok"; of an event: its "errno" */
	const char *text; /* "" where absent */
	int pid, monitor_pid; /* of hello; 0: absent */
};
int keeper_answer_parse(const char *text, size_t len, struct keeper_answer *ret, struct err *err);
void keeper_answer_clear(struct keeper_answer *a);
#define cleanup_keeper_answer __attribute__((__cleanup__(keeper_answer_clear)))

bool keeper_id_valid(const char *id);
/*
 * The event {"event":"ended"}: the machine is gone, or the template cannot be opened. New
 * reference.
 */
json_t *keeper_ended(int error, const char *text);

/* ---- between a zygote and its forks -------------------------------------------------------- */

/* What a keeper begins with. All of it belongs to the keeper. */
struct keeper_start {
	struct template *t;
	int conn; /* the daemon */
	int sockets; /* the directory */
	const char *capture; /* NULL: none */
	bool same_identity;
};
/* Called in the fork: the whole run of the keeper. */
_Noreturn void keeper_run(const struct keeper_start *start);

/* ---- between keeper.c and zygote.c ---------------------------------------------------------- */

/* The daemon's end of a keeper at @sock (owned on success), which is yet to say hello. */
int keeper_new(struct loop *l, int sock, const char *sockets, const struct keeper_ops *ops,
	void *user, struct keeper **ret, struct err *err);

/* The descriptors of `parbake zygote`. */
enum zygote_fd { ZYGOTE_FD_CONTROL = 3, ZYGOTE_FD_SOCKETS = 4 };

#endif
