/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of parbake-vmm against a guest that does anything: an input chooses a device, which a good driver has
 * set up, and is then a list of what the guest does to registers and memory and the host to the other end.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "tests/unit/virtio_driver.h"
#include "vmm/kvm/program/disk.h"
#include "vmm/kvm/program/serial.h"
#include "vmm/monitor.h"

#define DISK (1024 * MIB)
#define STEPS 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	struct driver d;
	struct blk blk;
	struct console console;
	struct virtio plain;
	struct disk disk;
	struct serial serial;
	int base, overlay, near, far, pipe[2];
} rig;

static void watched(void *user, uint32_t events)
{
	(void)user;
	(void)events;
}

static void begin_once(void)
{
	if (rig.base)
		return;
	rig.base = memfd_create("base", MFD_CLOEXEC);
	if (ftruncate(rig.base, DISK) < 0 || pipe2(rig.pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		abort();
	/* discarded pages want a mapping of their own */
	rig.d.memory.base = mmap(
		NULL, DRIVER_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void begin(unsigned which)
{
	uint8_t *memory = rig.d.memory.base;
	struct virtio *v = which == 0 ? &rig.blk.v : which == 1 ? &rig.console.v : &rig.plain;
	const struct virtio_ops *ops = which == 0 ? &blk_ops
		: which == 1                      ? &console_ops
		: which == 2                      ? &entropy_ops
						  : &balloon_ops;
	int pair[2];

	memset(memory, 0, DRIVER_MEMORY);
	rig.d = (struct driver){.v = v, .memory = {.base = memory, .bytes = DRIVER_MEMORY}};
	rig.blk = (struct blk){.disk = &rig.disk};
	rig.console = (struct console){.watch = watched};
	virtio_init(v, ops, &rig.d.memory, 5, driver_raised, &rig.d);
	serial_init(&rig.serial, rig.pipe[1], driver_raised, &rig.d);
	rig.overlay = memfd_create("overlay", MFD_CLOEXEC);
	memset(&rig.disk, 0, sizeof(rig.disk));
	if (machine_overlay_init(rig.overlay, DISK, NULL) < 0 ||
		disk_open(&rig.disk, rig.base, rig.overlay, false, NULL) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		abort();
	rig.console.fd = rig.near = pair[0];
	rig.far = pair[1];
	driver_start(&rig.d, 0);
}

static void end(void)
{
	char drop[4096];

	while (read(rig.pipe[0], drop, sizeof(drop)) > 0)
		;
	close(rig.overlay);
	close(rig.near);
	close(rig.far);
}

/* A state that was saved is a state that can be loaded, whatever the guest did before. */
static void save_and_load(void)
{
	uint8_t extra[VIRTIO_EXTRA_MAX];
	struct virtio_state s;

	virtio_save(rig.d.v, &s, extra);
	if (virtio_load(rig.d.v, &s, extra) < 0)
		abort();
	virtio_wake(rig.d.v);
}

struct step {
	uint8_t what, small;
	uint16_t at;
	uint32_t value;
	uint64_t bytes;
};

static void host(const struct step *s)
{
	char drop[4096];

	if (s->small & 1 && write(rig.far, &s->bytes, 1 + s->small % 8) < 0)
		drop[0] = 0;
	if (s->small & 2 && read(rig.far, drop, sizeof(drop)) < 0)
		drop[0] = 0;
	if (rig.d.v == &rig.console.v)
		console_event(&rig.console, s->small & 4 ? EPOLLIN | EPOLLOUT : EPOLLOUT);
}

static void take(const struct step *s)
{
	uint8_t buf[8];

	switch (s->what % 8) {
	case 0:
		virtio_write(
			rig.d.v, s->at % VIRTIO_MMIO_BYTES & ~3u, (const uint8_t *)&s->value, 4);
		break;
	case 1:
		virtio_read(rig.d.v, s->at % VIRTIO_MMIO_BYTES, buf, 1 + s->small % 8);
		break;
	case 2: /* anywhere */
		memcpy(driver_at(&rig.d, s->value % (DRIVER_MEMORY - 8)), &s->bytes, 8);
		break;
	case 3: /* a descriptor */
		driver_put_desc(&rig.d, s->at % VIRTIO_QUEUES_MAX, s->at / 4 % DRIVER_QUEUE,
			s->bytes & 0x800000000000ffff ? s->bytes % DRIVER_MEMORY : s->bytes,
			s->value, s->small % 8, s->small / 32);
		break;
	case 4:
		driver_offer(&rig.d, s->at % VIRTIO_QUEUES_MAX, s->small);
		break;
	case 5:
		host(s);
		break;
	case 6:
		if (s->small % 8 == 0)
			driver_start(&rig.d, s->small & 8 ? VIRTIO_F_EVENT_IDX : 0);
		else
			save_and_load();
		break;
	default:
		serial_write(&rig.serial, s->at % 8, s->small);
		serial_read(&rig.serial, s->value % 8);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	begin_once();
	begin(data[0] % 4);
	data++;
	size--;
	for (unsigned i = 0; i < STEPS && size >= sizeof(struct step); i++) {
		struct step s;

		memcpy(&s, data, sizeof(s));
		take(&s);
		data += sizeof(s);
		size -= sizeof(s);
	}
	end();
	return 0;
}
