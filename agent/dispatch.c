/* SPDX-License-Identifier: Apache-2.0 */
/* Which handler has which request: the one table. */
#include <errno.h>

#include "agent/request.h"

/* What needs the root writable: refused while it is frozen, as it would hang until the thaw. */
#define NEEDS_THAW 1u

static const struct handler {
	unsigned type, flags;
	void (*fn)(struct stream *s, unsigned type, struct request *r);
} handlers[] = {
	{PROTO_EXEC, NEEDS_THAW, exec_request},
	{PROTO_ATTACH, 0, attach_request},
	{PROTO_PROCESSES, 0, processes_request},
	{PROTO_FILE_PUT, NEEDS_THAW, file_request},
	{PROTO_FILE_GET, 0, file_request},
	{PROTO_FILE_STAT, 0, file_request},
	{PROTO_FILE_LIST, 0, file_request},
	{PROTO_FILE_MKDIR, NEEDS_THAW, file_request},
	{PROTO_FILE_REMOVE, NEEDS_THAW, file_request},
	{PROTO_FILE_RENAME, NEEDS_THAW, file_request},
	{PROTO_WATCH, 0, watcher_request},
	{PROTO_WATCHED, 0, watcher_events_request},
	{PROTO_CODE, NEEDS_THAW, code_request},
	{PROTO_CONTEXT, NEEDS_THAW, context_request},
	{PROTO_PORT, 0, port_request},
	{PROTO_PROXY, 0, proxy_request},
	{PROTO_IDENTITY, 0, identity_request},
	{PROTO_CLOCK, 0, identity_request},
	{PROTO_SYNCFS, NEEDS_THAW, machine_request},
	{PROTO_FREEZE, 0, machine_request},
	{PROTO_THAW, 0, machine_request},
	{PROTO_ZERO_FREE, 0, machine_request},
	{PROTO_DROP_CACHES, 0, machine_request},
	{PROTO_INFO, 0, machine_request},
	{PROTO_SHUTDOWN, 0, machine_request},
	{PROTO_QUIESCE, 0, machine_request},
};

void request_dispatch(struct stream *s, unsigned type, const uint8_t *body, uint32_t len)
{
	const struct handler *h = NULL;
	const char *what = NULL;
	struct request *r;

	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++)
		if (handlers[i].type == type)
			h = &handlers[i];
	if (!h) {
		stream_reply_error(s, ENOSYS, "this agent does not know the request");
		return;
	}
	r = request_parse(body, len, &what);
	if (!r) {
		wire_breach(stream_wire(s), "request of type %u: %s", type, what);
		return;
	}
	if ((h->flags & NEEDS_THAW) && agent.frozen)
		stream_reply_error(s, EBUSY, "the root is frozen: thaw it first");
	else
		h->fn(s, type, r);
	request_free(r);
}
