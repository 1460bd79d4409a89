/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_FILEOP_H
#define PARBAKE_AGENT_FILEOP_H

#include "agent/proto.h"
#include "agent/request.h"
#include "agent/user.h"

/*
 * File requests as they run in a worker (worker.h): everything beneath the root, its
 * links and `..` included; what is not a file, a directory or a link is refused.
 */
struct fileop {
	const struct request *request;
	unsigned type;
	bool has_user;
	struct user user; /* who owns what is made */
};

/* What PUT's own file is called until it is whole, and becomes a new name, or takes the place of a file; 16 digits
 * follow. */
#define FILEOP_TEMP_NEW ".parbake-new-"
#define FILEOP_TEMP_OVER ".parbake-over-"

/* A worker_fn; @arg is a struct fileop. PUT reads @data to its end and then waits for
 * WORKER_COMMIT; GET and LIST write to @data. */
int fileop_run(const void *arg, int data, int control, struct proto_out *reply, struct fail *f);

#endif
