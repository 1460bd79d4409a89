/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_REQUEST_H
#define PARBAKE_AGENT_REQUEST_H

#include "agent/agent.h"
#include "agent/wire.h"

/*
 * A request's fields, parsed and checked once for every kind of request, and the
 * handlers of all of them. Strings are owned by the request and live as long.
 */
struct request {
	char **args, **env, **sandbox_env, **metadata; /* NULL-terminated */
	unsigned nargs, nenv, nsandbox_env, nmetadata;
	char *shell, *cwd, *user, *path, *path2, *context, *code, *action, *language, *machine_id,
		*hostname, *tag;
	uint8_t entropy[512];
	uint32_t entropy_len;
	uint64_t timeout_ms, limit_out, limit_err; /* limits: UINT64_MAX where absent */
	uint64_t memory_max, pids_max; /* 0: none */
	uint64_t offset, length; /* length: UINT64_MAX where absent */
	int64_t realtime_ns, clock_offset_ns;
	uint32_t mode, port, pid;
	uint16_t rows, cols;
	int stdin_wanted, parents, recursive, oom_group, detach, existing, keep, entries;
	bool has_pty, has_mode, has_port, has_realtime, has_clock_offset;
};

/* Parse @body. NULL: a breach of the protocol; *@ret_what says where. Free with request_free(). */
struct request *request_parse(const uint8_t *body, uint32_t len, const char **ret_what);
void request_free(struct request *r);

/* Handlers of requests: each takes the stream @s and ends it now or later; @r is borrowed
 * until it returns. */
void exec_request(struct stream *s, unsigned type, struct request *r);
void attach_request(struct stream *s, unsigned type, struct request *r);
void processes_request(struct stream *s, unsigned type, struct request *r);
/* How the last detached command to end has ended; "": none has. */
const char *exec_detached_ended(void);
void file_request(struct stream *s, unsigned type, struct request *r);
void watcher_request(struct stream *s, unsigned type, struct request *r);
void watcher_events_request(struct stream *s, unsigned type, struct request *r);
void code_request(struct stream *s, unsigned type, struct request *r);
void context_request(struct stream *s, unsigned type, struct request *r);
void port_request(struct stream *s, unsigned type, struct request *r);
void proxy_request(struct stream *s, unsigned type, struct request *r);
void identity_request(struct stream *s, unsigned type, struct request *r);
void machine_request(struct stream *s, unsigned type, struct request *r);

/* Forget what belongs to the former connection beyond its streams. */
void proxy_reset(void);

/* A request came: parse it and call its handler (dispatch.c). */
void request_dispatch(struct stream *s, unsigned type, const uint8_t *body, uint32_t len);

#endif
