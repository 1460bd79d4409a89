/* SPDX-License-Identifier: Apache-2.0 */
/* virtio 1.2, 5.4: the entropy device, with random numbers of the host's. */
#include <sys/random.h>

#include "vmm/kvm/program/virtio.h"

#define AT_ONCE 256 /* bytes for one request; getrandom(2) does not fail up to there */

static void entropy_notify(struct virtio *v, unsigned n)
{
	uint8_t buf[AT_ONCE];
	struct chain c;

	while (virtio_peek(v, n, &c)) {
		uint64_t want = c.in_bytes < sizeof(buf) ? c.in_bytes : sizeof(buf);
		ssize_t got = want ? getrandom(buf, want, 0) : 0;

		virtio_give(v, n, &c, got > 0 ? (uint32_t)chain_write(&c, 0, buf, (size_t)got) : 0);
	}
}

const struct virtio_ops entropy_ops = {
	.name = "rng",
	.id = 4,
	.n_queues = 1,
	.notify = entropy_notify,
};
