/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_NOTIFY_H
#define PARBAKE_AGENT_NOTIFY_H

#include "agent/proto.h"
#include "agent/request.h"

/*
 * A worker_fn; @arg is a struct request, a WATCH. Writes events to @data until it is killed: each by one write of at
 * most PROTO_EVENT_MAX bytes, so a pipe holds whole ones alone. Where nobody reads, it waits, and the kernel's queue
 * (fs.inotify.max_queued_events) is what grows; past that events are lost, which is told.
 */
int notify_run(const void *arg, int data, int control, struct proto_out *reply, struct fail *f);

/* The length of the whole event at @bytes; 0: not all of it is there. */
uint32_t notify_event_len(const uint8_t *bytes, uint32_t len);

#endif
