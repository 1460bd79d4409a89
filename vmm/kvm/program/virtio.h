/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_VIRTIO_H
#define PARBAKE_VMM_KVM_VIRTIO_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/program/queue.h"

/*
 * A virtio device behind memory-mapped registers (virtio 1.2, 4.2.2), version 2, split queues. Its
 * registers are written by processors' threads, and the main thread serves its other end: each
 * holds the device's lock while it does.
 */
#define VIRTIO_QUEUES_MAX 4
#define VIRTIO_EXTRA_MAX 64 /* bytes of state that a device has beside its queues */
#define VIRTIO_MMIO_BYTES 0x1000u

#define VIRTIO_F_INDIRECT (1ull << 28)
#define VIRTIO_F_EVENT_IDX (1ull << 29)
#define VIRTIO_F_VERSION_1 (1ull << 32)

#define VIRTIO_STATUS_DRIVER_OK 4u
#define VIRTIO_STATUS_FEATURES_OK 8u
#define VIRTIO_STATUS_NEEDS_RESET 64u

struct virtio;

struct virtio_ops {
	const char *name;
	uint32_t id; /* virtio 1.2, 5 */
	unsigned n_queues;
	uint64_t features; /* beside those that all have */
	/* the driver has put something into queue @n, or may have; with the lock */
	void (*notify)(struct virtio *v, unsigned n);
	/* @len bytes at @at of the configuration, all of it zero so far; NULL: it has none */
	void (*read_config)(struct virtio *v, uint32_t at, uint8_t *buf, uint32_t len);
	/* the driver has let go; NULL: nothing to do */
	void (*reset)(struct virtio *v);
	/* its own state, @len bytes (≤ VIRTIO_EXTRA_MAX); load refuses (-EBADMSG) what it cannot have saved */
	size_t extra_bytes;
	void (*save)(struct virtio *v, uint8_t *extra);
	int (*load)(struct virtio *v, const uint8_t *extra);
};

struct virtio {
	const struct virtio_ops *ops;
	pthread_mutex_t lock;
	unsigned irq;
	void (*raise)(void *user, unsigned irq); /* an edge of the interrupt line */
	void *user;
	uint64_t driver_features;
	uint32_t features_page, driver_page, queue_select, status, isr;
	struct queue queues[VIRTIO_QUEUES_MAX];
};

/* As it stands in a state record; what its ops save follows it. */
struct virtio_state {
	uint32_t id;
	uint32_t status, isr;
	uint32_t features_page, driver_page, queue_select;
	uint64_t driver_features;
	struct queue_state queues[VIRTIO_QUEUES_MAX];
};

void virtio_init(struct virtio *v, const struct virtio_ops *ops, const struct memory *m,
	unsigned irq, void (*raise)(void *user, unsigned irq), void *user);
/* A processor reads or writes @len bytes at @at of the registers. These take the lock. */
void virtio_read(struct virtio *v, uint32_t at, uint8_t *buf, uint32_t len);
void virtio_write(struct virtio *v, uint32_t at, const uint8_t *buf, uint32_t len);
/*
 * The device is done with a chain: give it back, and interrupt the guest where it wants that. The
 * caller holds the lock.
 */
void virtio_give(struct virtio *v, unsigned n, const struct chain *c, uint32_t written);
/* As queue_peek(); a breach makes the device ask for a reset. With the lock. */
bool virtio_peek(struct virtio *v, unsigned n, struct chain *c);
/* While its processors stand still. Load: -EBADMSG. */
void virtio_save(struct virtio *v, struct virtio_state *ret, uint8_t *extra);
int virtio_load(struct virtio *v, const struct virtio_state *s, const uint8_t *extra);
/* After a load: repeat the rings and interrupts that may have been on their way. Takes the lock. */
void virtio_wake(struct virtio *v);

/* ---- the devices ---- */

struct disk;
struct blk {
	struct virtio v;
	struct disk *disk;
	/*
	 * called when the host cannot read or write (a positive errno): once, by any thread. May be
	 * NULL
	 */
	void (*failed)(int error);
	bool told;
};
extern const struct virtio_ops blk_ops;

/* The agent's channel: a virtio console with one port, which is not a console port. */
struct console {
	struct virtio v;
	int fd; /* the socket, non-blocking; -1: its other end is gone */
	/* watch @fd for these (EPOLLIN, EPOLLOUT); may be called from any thread, with the lock */
	void (*watch)(void *user, uint32_t events);
	void *watch_user;
	uint32_t watched;
	bool guest_open; /* a program has the port open */
	uint8_t owed; /* control messages that wait until the guest offers a buffer */
	uint64_t sent; /* bytes of the next chain that are on their way already */
};
extern const struct virtio_ops console_ops;
/* @fd can be read or written (EPOLLIN, EPOLLOUT, EPOLLHUP). Takes the lock. */
void console_event(struct console *c, uint32_t events);

extern const struct virtio_ops entropy_ops;
extern const struct virtio_ops balloon_ops;

#endif
