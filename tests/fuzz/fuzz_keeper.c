/* SPDX-License-Identifier: Apache-2.0 */
/* A message at a keeper, and one at its daemon: refused, or within all bounds. */
#include <stdlib.h>
#include <string.h>

#include "pool/keeper/keeper_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_keeper_request struct keeper_request rq = {0};
	cleanup_keeper_answer struct keeper_answer a = {0};
	struct err err;

	if (size > LIMIT_RPC_BYTES)
		size = LIMIT_RPC_BYTES;
	if (keeper_request_parse((const char *)data, size, &rq, &err) == 0) {
		if (!rq.n || rq.op >= KEEPER_OPS || rq.lease_ms > LIMIT_LEASE_MS)
			abort();
		if (rq.op == KEEPER_HAND_OUT && (!rq.id || !keeper_id_valid(rq.id)))
			abort();
		if (rq.op == KEEPER_CAPTURE && (!rq.dir || rq.dir[0] != '/'))
			abort();
		if (rq.pause_dir && (rq.pause_dir[0] != '/' || strlen(rq.pause_dir) >= LIMIT_PATH))
			abort();
	}
	if (keeper_answer_parse((const char *)data, size, &a, &err) == 0 &&
		((!a.event && !a.n) || !a.text || a.error < 0 || a.error > 4095))
		abort();
	return 0;
}
