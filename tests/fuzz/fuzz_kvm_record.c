/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State records of parbake-vmm. An input is a record as it is, and, since few have the right digest, the sections of one
 * to which a true head is given; then what the parts say is looked at as a restore does.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/virtio_driver.h"
#include "vmm/kvm/program/record.h"
#include "vmm/kvm/program/vm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void watched(void *user, uint32_t events)
{
	(void)user;
	(void)events;
}

static void use_devices(const struct record *r)
{
	static const struct virtio_ops *const all[VM_DEVICES] = {
		&blk_ops, &console_ops, &entropy_ops, &balloon_ops};

	for (uint32_t i = 0; i < VM_DEVICES; i++) {
		struct console c = {.fd = -1, .watch = watched};
		struct driver d;
		const struct virtio_state *s =
			record_find(r, RECORD_DEVICE, i, sizeof(*s) + all[i]->extra_bytes, NULL);

		if (!s || i == VM_BLK) /* its queue leads to a disk */
			continue;
		driver_begin(&d, &c.v, all[i]);
		if (virtio_load(&c.v, s, (const uint8_t *)(s + 1)) == 0 && i != VM_BALLOON)
			virtio_wake(&c.v);
		driver_end(&d);
	}
}

static void use(const struct record *r)
{
	static struct vm_cpuid saved;
	size_t bytes = 0, head = offsetof(struct vm_cpuid, entries);
	const void *cpuid = record_find(r, RECORD_CPUID, 0, 0, &bytes);
	uint8_t sum = 0;

	if (cpuid && bytes >= head && bytes <= sizeof(saved)) {
		struct err err;

		memset(&saved, 0, sizeof(saved));
		memcpy(&saved, cpuid, bytes);
		if (saved.n <= VM_CPUID_MAX && vm_cpuid_fits(&saved, &saved, &err) < 0)
			abort(); /* what a host has, it has */
	}
	for (enum record_type type = RECORD_CPUID; type <= RECORD_MP_STATE; type++) {
		const uint8_t *s = record_find(r, type, 0, 0, &bytes);

		for (size_t i = 0; s && i < bytes; i++)
			sum ^= s[i];
	}
	if (sum == 1) /* or nothing were read */
		memset(&saved, 0, 1);
	use_devices(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = (sizeof(struct record_head) + size + 7) & ~(size_t)7;
	uint8_t *buf = aligned_alloc(8, len);
	struct record r;
	struct err err;

	if (!buf)
		abort();
	memset(buf, 0, len);
	memcpy(buf, data, size);
	if (record_open(&r, buf, size, &err) == 0)
		use(&r);
	if (size >= 4) {
		/* the first four bytes say how many sections the rest is */
		record_begin(&r, buf);
		memcpy(&((struct record_head *)(void *)buf)->sections, data, 4);
		memset(buf + sizeof(struct record_head), 0, len - sizeof(struct record_head));
		memcpy(buf + sizeof(struct record_head), data + 4, size - 4);
		r.len = len;
		if (record_end(&r, 1 << 20, 1, 0, &err) == 0 &&
			record_open(&r, buf, len, &err) == 0)
			use(&r);
	}
	free(buf);
	return 0;
}
