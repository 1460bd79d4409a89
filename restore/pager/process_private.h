/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_PROCESS_PRIVATE_H
#define PARBAKE_RESTORE_PAGER_PROCESS_PRIVATE_H

/*
 * Between a pager's process and its clients: unix stream socket, one request or reply a line of
 * JSON of at most LIMIT_PAGER_LINE bytes, each sent whole with its descriptors, a client waiting
 * for the reply before its next request.
 *
 *     {"op":"hello","protocol":3}   {"ok":true,"way":"uffd","pid":N,"memory_bytes":N} + the memfd
 *     {"op":"attach"} + a socket    {"ok":true}
 *     {"op":"attach-own"}           {"ok":true}; behind the socket: the image and the ranges
 *                                   (snapshot_wset_to_json()) of the machine's difference, and a
 *                                   socket to say that it has all of them (pager_attach())
 *     {"op":"stats"}                {"ok":true,"faults":N,…}   (struct pager_stats by name)
 *     {"op":"error"}                {"ok":true,"text":"…"}
 *     {"op":"recorded"}             {"ok":true,"bytes":N} + a memfd with the working set's JSON
 *     {"op":"traced"}               {"ok":true,"bytes":N} + a memfd with the trace's JSON
 *     any that fails                {"ok":false,"errno":N,"text":"…"}
 */
#define PAGERD_PROTOCOL 3

/* The process's descriptors. */
enum pager_client_fd {
	PAGERD_FD_SOCKET = 3, /* it listens there; with --own the one client itself */
	PAGERD_FD_IMAGE = 4,
	PAGERD_FD_WSET = 5, /* JSON; absent: none */
};

#define PAGERD_LOCK "lock" /* in the directory: held to connect, to start and to leave */

#endif
