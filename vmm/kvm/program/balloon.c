/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio 1.2, 5.5: the memory balloon. Nobody here asks a guest to inflate it (its size stays
 * zero); the device is there for free page reporting: the guest tells which of its pages are free,
 * and they go back to the host.
 */
#include "vmm/kvm/program/virtio.h"

#define F_REPORTING (1ull << 5)
#define PFNS 256 /* looked at in one go */

/* Neither statistics nor hints are offered, so reporting is the third. */
enum { QUEUE_INFLATE, QUEUE_DEFLATE, QUEUE_REPORT, QUEUES };

static void inflate(const struct virtio *v, const struct chain *c)
{
	uint32_t pfns[PFNS];
	uint64_t skip = 0;
	size_t n;

	while ((n = chain_read(c, skip, pfns, sizeof(pfns))) >= sizeof(pfns[0])) {
		for (size_t i = 0; i < n / sizeof(pfns[0]); i++)
			memory_discard(v->queues[0].memory, pfns[i] * MEMORY_PAGE, MEMORY_PAGE);
		skip += n;
	}
}

/* The segments are the pages themselves. */
static void report(const struct virtio *v, const struct chain *c)
{
	const struct memory *m = v->queues[0].memory;

	for (unsigned i = c->n_out; i < c->n_out + c->n_in; i++) {
		uint64_t at = (uint64_t)((uint8_t *)c->iov[i].iov_base - m->base);

		memory_discard(m, at < memory_low(m) ? at : at - memory_low(m) + MEMORY_HIGH,
			c->iov[i].iov_len);
	}
}

static void balloon_notify(struct virtio *v, unsigned n)
{
	struct chain c;

	while (virtio_peek(v, n, &c)) {
		if (n == QUEUE_INFLATE)
			inflate(v, &c);
		else if (n == QUEUE_REPORT)
			report(v, &c);
		virtio_give(v, n, &c, 0);
	}
}

const struct virtio_ops balloon_ops = {
	.name = "balloon",
	.id = 5,
	.n_queues = QUEUES,
	.features = F_REPORTING,
	.notify = balloon_notify,
};
