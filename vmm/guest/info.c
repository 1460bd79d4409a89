/* SPDX-License-Identifier: Apache-2.0 */
/*
 * INFO: what an agent says of its machine. The nonce in it proves a restore, because it lives only
 * in memory.
 */
#include "vmm/guest/guest.h"

/* A kernel's release is shown to people: printable characters, at most what the struct holds. */
static int take_kernel(const struct proto_field *f, char ret[static 65])
{
	if (proto_str(f, ret, 64) < 0)
		return -1;
	for (char *p = ret; *p; p++) {
		if (*p < 0x21 || *p > 0x7e)
			return -1;
	}
	return 0;
}

int guest_info(
	struct guest *g, int64_t deadline, int also_fd, struct guest_info *ret, struct err *err)
{
	struct guest_info info = {0};
	cleanup_free uint8_t *body = NULL;
	struct proto_in in = {0};
	struct proto_field f;
	unsigned seen = 0;
	int rc;

	rc = guest_call(g, PROTO_INFO, NULL, deadline, also_fd, &body, &in.len, err);
	if (rc < 0)
		return rc;
	in.buf = body;
	while (rc == 0 && proto_next(&in, &f) == 1) {
		if (f.tag >= PROTO_T_NONCE && f.tag <= PROTO_T_KERNEL)
			seen |= 1u << (f.tag - PROTO_T_NONCE);
		if (f.tag == PROTO_T_NONCE && f.len == sizeof(info.nonce))
			memcpy(info.nonce, f.data, sizeof(info.nonce));
		else if (f.tag == PROTO_T_NONCE)
			rc = -1;
		else if (f.tag == PROTO_T_COUNTER)
			rc = proto_u64(&f, &info.counter);
		else if (f.tag == PROTO_T_UPTIME_NS)
			rc = proto_u64(&f, &info.uptime_ns);
		else if (f.tag == PROTO_T_MEM_TOTAL)
			rc = proto_u64(&f, &info.mem_total);
		else if (f.tag == PROTO_T_MEM_FREE)
			rc = proto_u64(&f, &info.mem_free);
		else if (f.tag == PROTO_T_MEM_CACHED)
			rc = proto_u64(&f, &info.mem_cached);
		else if (f.tag == PROTO_T_CONTEXTS)
			rc = proto_u32(&f, &info.contexts);
		else if (f.tag == PROTO_T_STREAMS)
			rc = proto_u32(&f, &info.streams);
		else if (f.tag == PROTO_T_KERNEL)
			rc = take_kernel(&f, info.kernel);
	}
	if (rc < 0 || seen != (1u << (PROTO_T_KERNEL - PROTO_T_NONCE + 1)) - 1)
		return err_set(err, EPROTO, "the agent's answer about its machine is broken");
	*ret = info;
	return 0;
}
