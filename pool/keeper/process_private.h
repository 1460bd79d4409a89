/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_KEEPER_PROCESS_PRIVATE_H
#define PARBAKE_POOL_KEEPER_PROCESS_PRIVATE_H

#include "pool/keeper/keeper_private.h"
#include "restore/checkpoint.h"

/*
 * A keeper's process: what process.c (its loop) and requests.c (the requests) share. A process is
 * one keeper, with one thread.
 */
struct keeper_process {
	struct loop *l;
	struct template *t;
	struct checkpoint *capture; /* until it is restored */
	struct sandbox *sb;
	enum { KEEPER_STAGE_STANDBY, KEEPER_STAGE_SPARE, KEEPER_STAGE_HANDED } stage;
	int channel; /* HANDED: the guest's channel, kept for the next daemon */
	int conn; /* -1: nobody is connected */
	int listening; /* -1: it has no name */
	int sockets;
	struct loop_watch *on_conn, *on_listening, *on_machine, *on_monitor;
	bool disk_error_told; /* disk_error was reported to whoever was connected */

	/* the lease */
	char id[KEEPER_ID + 1]; /* "": none */
	json_t *record;
	char *pause_dir;
	int64_t end_ns; /* CLOCK_BOOTTIME */
	struct loop_timer *on_lease;
	unsigned pause_tries;
	json_t *handed; /* the answer to hand_out, for describe */
	char buf[RPC_BUFFER];
};

/* End the machine and remove the name. */
void keeper_process_clear(struct keeper_process *k);
/* End the machine, remove the name, tell whoever is connected, and exit. */
_Noreturn void keeper_process_end(struct keeper_process *k, int error, const char *text);
/* Has the daemon at the other end gone, even where something that it sent is still to be read? */
bool keeper_process_alone(const struct keeper_process *k);
/* Give the keeper its name: listen at the socket SOCKETS/@id. -EEXIST. */
int keeper_process_name(struct keeper_process *k, const char *id, struct err *err);
/* The lease ends @lease_ms from now. */
void keeper_process_lease(struct keeper_process *k, uint64_t lease_ms, const char *pause_dir);
/* Carry out one request and answer it. @read_at: when it was read, ns. */
void keeper_process_serve(struct keeper_process *k, struct keeper_request *rq, int64_t read_at);
/*
 * Answer request @n with @obj (taken), which gets that number. Where nobody is connected, nothing
 * is sent.
 */
void keeper_process_answer(
	struct keeper_process *k, uint64_t n, json_t *obj, const int *fds, size_t n_fds);
/*
 * sandbox_capture(), in bounds that hold also where the monitor does not let its memory be read: then a read never
 * returns, and this process is killed, which ends the machine too.
 */
int keeper_process_capture(struct keeper_process *k, const char *dir, bool go_on,
	struct checkpoint_info *ret, struct err *err);

#endif
