/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity that a clone is given before anything else runs in it. All clones of a template wake
 * with the same memory, the kernel's random pool included; the identity makes them differ.
 */
#include "vmm/guest/guest.h"

#include <stdio.h>
#include <sys/random.h>

#include "common/clock.h"

#define ID_BYTES 16

/* 1–63 of [a-z0-9-], no '-' at either end (RFC 1123, 2.1). */
static bool hostname_valid(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n >= 1 && n <= 63 && !name[n] && name[0] != '-' && name[n - 1] != '-';
}

int guest_identity_make(const char *hostname, struct guest_identity *ret, struct err *err)
{
	struct guest_identity id;
	uint8_t raw[ID_BYTES];

	if (hostname && !hostname_valid(hostname))
		return err_set(err, EINVAL,
			"\"%.80s\" is no host name: 1 to 63 of a-z, 0-9 and -, no - at either end",
			hostname);
	if (getrandom(id.entropy, sizeof(id.entropy), 0) != sizeof(id.entropy) ||
		getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return err_sys(err, errno, "no random numbers for a machine's identity");
	/* as a version 4 UUID: machine-id(5) */
	raw[6] = (uint8_t)((raw[6] & 0x0f) | 0x40);
	raw[8] = (uint8_t)((raw[8] & 0x3f) | 0x80);
	for (int i = 0; i < ID_BYTES; i++)
		snprintf(id.machine_id + 2 * i, 3, "%02x", raw[i]);
	if (hostname)
		snprintf(id.hostname, sizeof(id.hostname), "%s", hostname);
	else
		snprintf(id.hostname, sizeof(id.hostname), "parbake-%.8s", id.machine_id);
	id.realtime_ns = clock_realtime_ns();
	id.named_only = false;
	*ret = id;
	return 0;
}

void guest_identity_body(const struct guest_identity *id, struct proto_out *o)
{
	proto_put(o, PROTO_T_REALTIME_NS, &id->realtime_ns, sizeof(id->realtime_ns));
	if (!id->named_only) {
		proto_put(o, PROTO_T_ENTROPY, id->entropy, sizeof(id->entropy));
		proto_put_str(o, PROTO_T_MACHINE_ID, id->machine_id);
	}
	proto_put_str(o, PROTO_T_HOSTNAME, id->hostname);
}
