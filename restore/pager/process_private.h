/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_PROCESS_PRIVATE_H
#define PARBAKE_RESTORE_PAGER_PROCESS_PRIVATE_H

/*
 * The messages between a pager's process and its clients (common/rpc.h). A client waits for the
 * answer before its next request. Each request names the protocol, so that a process of another
 * version refuses it. The name of the process's socket has the protocol in its digest, so that this
 * hardly ever happens.
 *
 *     {"op":"hello"}                {"way":"uffd","pid":N,"memory_bytes":N} + the memfd
 *     {"op":"attach"} + a socket    {}
 *     {"op":"attach-own"}           {}; behind the socket: the image and the ranges
 *                                   (snapshot_ranges_to_json()) of the machine's memory delta, and a
 *                                   socket to say that it has all of them (pager_attach())
 *     {"op":"stats"}                {"faults":N,…}   (struct pager_stats by name)
 *     {"op":"error"}                {"text":"…"}
 *     {"op":"recorded"}             {"bytes":N} + a memfd with the working set's JSON
 *     {"op":"traced"}               {"bytes":N} + a memfd with the trace's JSON
 */
#define PAGERD_PROTOCOL 4

/* The process's descriptors. */
enum pager_client_fd {
	PAGERD_FD_SOCKET = 3, /* it listens there; with --own the one client itself */
	PAGERD_FD_IMAGE = 4,
	PAGERD_FD_WSET = 5, /* JSON; absent: none */
};

#define PAGERD_LOCK "lock" /* in the directory: held to connect, to start and to leave */

#endif
