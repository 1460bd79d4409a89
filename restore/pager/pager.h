/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_PAGER_H
#define PARBAKE_RESTORE_PAGER_PAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "store/image.h"
#include "store/snapshot.h"
#include "restore/pager/limits.h"

/*
 * The pager: serves one template's memory to many machines.
 *
 * The engine (pager_new … pager_free) runs in the calling process with threads of its own;
 * pager_client_… talks to an engine in a process of its own, one a template and host, found by a
 * socket in PATHS_RUN, started on demand, and gone when its last client is gone.
 */
struct pager;

enum pager_way {
	PAGER_UFFD, /* lazily, through userfaultfd */
	PAGER_PRIVATE, /* userfaultfd may not be used: the memfd is filled at once */
};

struct pager_options {
	unsigned threads; /* fault handlers; 0: by cores, at most 4 */
	uint32_t window_bytes; /* mapped around a fault; 0: default (64 KiB) */
	bool no_premap; /* do not map the working set at attach (to record, to measure) */
	bool record; /* keep the order of faults, for pager_recorded(): windows are one page */
	bool trace; /* keep what was done when, for pager_traced() */
};

/* What a pager did for one machine, and when. Times are CLOCK_MONOTONIC ns. */
enum pager_trace_kind {
	PAGER_TRACE_ATTACH, /* handshake read … working set mapped; pages: how many were */
	PAGER_TRACE_DATA, /* a fault in a page with data: read … answered */
	PAGER_TRACE_HOLE, /* in a page that the image does not hold: a zero page */
	PAGER_TRACE_REMOVED, /* in a page that the machine gave back */
	PAGER_TRACE_KINDS
};

struct pager_trace_entry {
	int64_t begin, end;
	uint64_t offset; /* in the memory image; of the faulting page */
	uint32_t pages; /* mapped by the answer */
	uint32_t machine; /* a number of its own */
	enum pager_trace_kind kind;
	bool minor, write; /* the page was in the memfd already; it was a write */
	bool filled; /* its frame had to be decompressed first */
};

struct pager_trace {
	struct pager_trace_entry *entries; /* in the order they ended; owned: pager_trace_clear() */
	size_t n;
	uint64_t lost; /* past LIMIT_PAGER_TRACE entries, not kept */
};
void pager_trace_clear(struct pager_trace *t);
#define cleanup_pager_trace __attribute__((__cleanup__(pager_trace_clear)))

struct pager_stats {
	uint64_t faults, faults_minor, faults_missing, faults_hole, faults_removed;
	uint64_t frames_filled, bytes_filled, pages_continued, pages_zeroed, pages_premapped;
	uint64_t pages_own; /* given to machines from their checkpoints */
	unsigned machines; /* attached now */
	uint64_t machines_total; /* attached ever */
};

/* What userfaultfd offers here: 0 and *@ret_how ("/dev/userfaultfd", "userfaultfd(2)"), or -errno
 * and an error that names the knob (vm.unprivileged_userfaultfd, the device's permissions, kernel
 * version). */
int pager_probe(const char **ret_how, struct err *err);

/* @img is borrowed until pager_free(); @wset may be NULL. */
int pager_new(struct image *img, const struct snapshot_ranges *wset, enum pager_way way,
	const struct pager_options *opt, struct pager **ret, struct err *err);
/* Close the userfaultfds of all machines. Call it when the machines are gone: a machine that is
 * not is killed by its own watch on the pager. */
void pager_free(struct pager *p);
DEFINE_CLEANUP(struct pager *, pager_free)
#define cleanup_pager cleanup_with(pager_free_p_)

/* The sealed memfd for a machine to map privately. Borrowed. PAGER_PRIVATE: filled when pager_new()
 * returns. */
int pager_memory_fd(const struct pager *p);
/*
 * Serve the machine at the other end of @sock (taken): the engine waits there for the handshake
 * (one message: the userfaultfd by SCM_RIGHTS, and JSON
 * [{"base_host_virt_addr","size","offset","page_size"},…]), gives the machine its own pages, maps
 * the working set, answers "ok\n" and then serves faults until the machine's end closes. @own
 * (taken; NULL: none): what the machine's memory differs in from the template's. @own_in (taken;
 * -1: none): a socket. When the machine has all pages of @own, a byte is sent there and the socket
 * is closed. Where it is closed without a byte, the machine did not get all of its pages and must
 * not be relied on. Returns at once; any thread.
 */
struct memory_delta;
int pager_attach(struct pager *p, int sock, struct memory_delta *own, int own_in, struct err *err);
void pager_get_stats(struct pager *p, struct pager_stats *ret);
/* What last went wrong (a damaged frame, a refused handshake); "" where nothing has. */
void pager_get_error(struct pager *p, struct err *ret);
/* Pages in the order they were first faulted, by whole pages, since the last call (record). */
int pager_recorded(struct pager *p, struct snapshot_ranges *ret, struct err *err);
/* Everything since the last call (trace). -EINVAL where it does not trace. Any thread. */
int pager_traced(struct pager *p, struct pager_trace *ret, struct err *err);

/* ---- the pager as a process ------------------------------------------------------------ */

struct pager_client; /* a client's connection: while it is open, the process stays */

struct pager_client_spec {
	const char *key; /* the memory blob's digest: one process per key, user and options */
	int image_fd; /* the memory blob */
	const struct snapshot_ranges *wset; /* may be NULL */
	struct pager_options options;
	bool own; /* start a process for this client alone (to record, to measure first use) */
	bool no_uffd; /* PAGER_PRIVATE, whatever the host allows */
};

/* Connect to the template's pager, starting it where none runs. */
int pager_client_connect(
	const struct pager_client_spec *spec, struct pager_client **ret, struct err *err);
void pager_client_free(struct pager_client *d);
/*
 * In a fork of the process that connected: close what was inherited; the connection of the other
 * process stays as it is.
 */
void pager_client_forget(struct pager_client *d);
DEFINE_CLEANUP(struct pager_client *, pager_client_free)
#define cleanup_pager_client cleanup_with(pager_client_free_p_)
/* The memfd of the template's memory (borrowed), and the way it is served on this host. */
int pager_client_memory_fd(const struct pager_client *d);
enum pager_way pager_client_way(const struct pager_client *d);
int pager_client_pid(const struct pager_client *d);
/* Readable when the pager is gone. Borrowed. */
int pager_client_fd(const struct pager_client *d);
/* A fresh socket whose other end the pager has attached: for machine_spec.pager_fd. Caller
 * closes. @own_fd, @own: the image and the ranges of its delta (restore/pager/memory_delta.h);
 * -1, NULL: none. *@ret_own_in: where there is a delta, a socket, else -1. A byte comes there
 * when the machine has all of its own pages; the socket's end comes without a byte where the
 * machine does not get them. Caller closes. */
int pager_client_attach(struct pager_client *d, int own_fd, const struct snapshot_ranges *own,
	int *ret_fd, int *ret_own_in, struct err *err);
int pager_client_get_stats(struct pager_client *d, struct pager_stats *ret, struct err *err);
int pager_client_get_error(
	struct pager_client *d, struct err *ret, struct err *err); /* pager_get_error() */
int pager_client_recorded(struct pager_client *d, struct snapshot_ranges *ret, struct err *err);
int pager_client_traced(struct pager_client *d, struct pager_trace *ret, struct err *err);
/* The process's main: `parbake pager` (internal; started with its descriptors by pager_client_connect()).
 */
int pager_process_main(int argc, char **argv);

#endif
