/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers of a virtio device. The driver belongs to the guest and may do anything: a number
 * that it writes is kept as it is and checked where it is used (queue.c), a register that it may
 * not write now is left alone.
 */
#include "vmm/kvm/program/virtio.h"

#include <errno.h>
#include <string.h>

#define MAGIC 0x74726976u /* "virt" */
#define VENDOR 0x4b425250u /* "PRBK" */
#define ISR_QUEUE 1u
#define ISR_CONFIG 2u
#define CONFIG 0x100u
#define COMMON (VIRTIO_F_VERSION_1 | VIRTIO_F_INDIRECT | VIRTIO_F_EVENT_IDX)

enum reg {
	REG_MAGIC = 0x000,
	REG_VERSION = 0x004,
	REG_DEVICE = 0x008,
	REG_VENDOR = 0x00c,
	REG_FEATURES = 0x010,
	REG_FEATURES_PAGE = 0x014,
	REG_DRIVER = 0x020,
	REG_DRIVER_PAGE = 0x024,
	REG_QUEUE = 0x030,
	REG_QUEUE_MAX = 0x034,
	REG_QUEUE_SIZE = 0x038,
	REG_QUEUE_READY = 0x044,
	REG_NOTIFY = 0x050,
	REG_ISR = 0x060,
	REG_ACK = 0x064,
	REG_STATUS = 0x070,
	REG_DESC = 0x080,
	REG_AVAIL = 0x090,
	REG_USED = 0x0a0,
	REG_SHM_FIRST = 0x0ac,
	REG_SHM_LAST = 0x0bc,
	REG_GENERATION = 0x0fc,
};

void virtio_init(struct virtio *v, const struct virtio_ops *ops, const struct memory *m,
	unsigned irq, void (*raise)(void *user, unsigned irq), void *user)
{
	*v = (struct virtio){.ops = ops,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.irq = irq,
		.raise = raise,
		.user = user};
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		v->queues[i].memory = m;
}

static uint64_t offered(const struct virtio *v)
{
	return COMMON | v->ops->features;
}

static void interrupt(struct virtio *v, uint32_t why)
{
	v->isr |= why;
	v->raise(v->user, v->irq);
}

static void reset(struct virtio *v)
{
	v->status = v->isr = v->queue_select = v->features_page = v->driver_page = 0;
	v->driver_features = 0;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		v->queues[i] = (struct queue){.memory = v->queues[i].memory};
	if (v->ops->reset)
		v->ops->reset(v);
}

static bool negotiated(const struct virtio *v, uint64_t feature)
{
	return v->driver_features & feature;
}

static void set_event_idx(struct virtio *v)
{
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		v->queues[i].event_idx = negotiated(v, VIRTIO_F_EVENT_IDX);
}

static void set_status(struct virtio *v, uint32_t status)
{
	if (status == 0) {
		reset(v);
		return;
	}
	/* bits are only added; what the device has said of itself stays */
	status |= v->status;
	if (status & VIRTIO_STATUS_FEATURES_OK && !(v->status & VIRTIO_STATUS_FEATURES_OK) &&
		(v->driver_features & ~offered(v) || !negotiated(v, VIRTIO_F_VERSION_1)))
		status &= ~VIRTIO_STATUS_FEATURES_OK;
	v->status = status & 0xff;
	set_event_idx(v);
}

static void notify(struct virtio *v, unsigned n)
{
	if (n < v->ops->n_queues && v->status & VIRTIO_STATUS_DRIVER_OK)
		v->ops->notify(v, n);
}

/* The queue that is selected, where it may be changed now. */
static struct queue *selected(struct virtio *v)
{
	if (v->queue_select >= v->ops->n_queues)
		return NULL;
	return &v->queues[v->queue_select];
}

static void half(uint64_t *number, uint32_t at, uint32_t value)
{
	unsigned shift = at & 4 ? 32 : 0;

	*number = (*number & ~(0xffffffffull << shift)) | (uint64_t)value << shift;
}

static void write_queue(struct virtio *v, uint32_t at, uint32_t value)
{
	struct queue *q = selected(v);

	if (!q)
		return;
	if (at == REG_QUEUE_READY) {
		if (value == 0)
			*q = (struct queue){.memory = q->memory, .event_idx = q->event_idx};
		else if (q->s.size)
			q->s.ready = 1;
		return;
	}
	if (q->s.ready)
		return;
	switch (at) {
	case REG_QUEUE_SIZE:
		if (value && value <= QUEUE_SIZE_MAX && !(value & (value - 1)))
			q->s.size = (uint16_t)value;
		break;
	case REG_DESC:
	case REG_DESC + 4:
		half(&q->s.desc, at, value);
		break;
	case REG_AVAIL:
	case REG_AVAIL + 4:
		half(&q->s.avail, at, value);
		break;
	case REG_USED:
	case REG_USED + 4:
		half(&q->s.used, at, value);
		break;
	}
}

static void write_register(struct virtio *v, uint32_t at, uint32_t value)
{
	switch (at) {
	case REG_FEATURES_PAGE:
		v->features_page = value;
		break;
	case REG_DRIVER_PAGE:
		v->driver_page = value;
		break;
	case REG_DRIVER:
		if (v->driver_page < 2 && !(v->status & VIRTIO_STATUS_FEATURES_OK))
			half(&v->driver_features, v->driver_page * 4, value);
		break;
	case REG_QUEUE:
		v->queue_select = value;
		break;
	case REG_NOTIFY:
		notify(v, value);
		break;
	case REG_ACK:
		v->isr &= ~value;
		break;
	case REG_STATUS:
		set_status(v, value);
		break;
	default:
		write_queue(v, at, value);
		break;
	}
}

static uint32_t read_register(struct virtio *v, uint32_t at)
{
	const struct queue *q = selected(v);

	switch (at) {
	case REG_MAGIC:
		return MAGIC;
	case REG_VERSION:
		return 2;
	case REG_DEVICE:
		return v->ops->id;
	case REG_VENDOR:
		return VENDOR;
	case REG_FEATURES:
		return v->features_page < 2 ? (uint32_t)(offered(v) >> v->features_page * 32) : 0;
	case REG_QUEUE_MAX:
		return q ? QUEUE_SIZE_MAX : 0;
	case REG_QUEUE_READY:
		return q ? q->s.ready : 0;
	case REG_ISR:
		return v->isr;
	case REG_STATUS:
		return v->status;
	default:
		/* no shared memory: its length reads as all ones */
		return at >= REG_SHM_FIRST && at <= REG_SHM_LAST ? UINT32_MAX : 0;
	}
}

void virtio_read(struct virtio *v, uint32_t at, uint8_t *buf, uint32_t len)
{
	uint32_t value;

	memset(buf, 0, len);
	if (at >= VIRTIO_MMIO_BYTES || len > VIRTIO_MMIO_BYTES - at)
		return;
	pthread_mutex_lock(&v->lock);
	if (at >= CONFIG) {
		if (v->ops->read_config)
			v->ops->read_config(v, at - CONFIG, buf, len);
	} else if (len == 4 && at % 4 == 0) {
		value = read_register(v, at);
		memcpy(buf, &value, sizeof(value));
	}
	pthread_mutex_unlock(&v->lock);
}

void virtio_write(struct virtio *v, uint32_t at, const uint8_t *buf, uint32_t len)
{
	uint32_t value;

	/* no device has a configuration that is written */
	if (at >= CONFIG || len != 4 || at % 4)
		return;
	memcpy(&value, buf, sizeof(value));
	pthread_mutex_lock(&v->lock);
	write_register(v, at, value);
	pthread_mutex_unlock(&v->lock);
}

bool virtio_peek(struct virtio *v, unsigned n, struct chain *c)
{
	int r;

	if (!(v->status & VIRTIO_STATUS_DRIVER_OK))
		return false;
	r = queue_peek(&v->queues[n], c);
	if (r < 0) {
		v->status |= VIRTIO_STATUS_NEEDS_RESET;
		interrupt(v, ISR_CONFIG);
	}
	return r > 0;
}

void virtio_give(struct virtio *v, unsigned n, const struct chain *c, uint32_t written)
{
	if (queue_give(&v->queues[n], c, written))
		interrupt(v, ISR_QUEUE);
}

/* ---- its state -------------------------------------------------------------------------- */

void virtio_save(struct virtio *v, struct virtio_state *ret, uint8_t *extra)
{
	*ret = (struct virtio_state){.id = v->ops->id,
		.status = v->status,
		.isr = v->isr,
		.features_page = v->features_page,
		.driver_page = v->driver_page,
		.queue_select = v->queue_select,
		.driver_features = v->driver_features};
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		ret->queues[i] = v->queues[i].s;
	if (v->ops->save)
		v->ops->save(v, extra);
}

static bool fits(const struct virtio *v, const struct virtio_state *s)
{
	if (s->id != v->ops->id || s->status > 0xff || s->driver_features & ~offered(v))
		return false;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		const struct queue_state *q = &s->queues[i];

		if (q->size > QUEUE_SIZE_MAX || (q->size & (q->size - 1)) || q->ready > 1 ||
			(q->ready && (!q->size || i >= v->ops->n_queues)))
			return false;
	}
	return true;
}

int virtio_load(struct virtio *v, const struct virtio_state *s, const uint8_t *extra)
{
	if (!fits(v, s))
		return -EBADMSG;
	v->status = s->status;
	v->isr = s->isr;
	v->features_page = s->features_page;
	v->driver_page = s->driver_page;
	v->queue_select = s->queue_select;
	v->driver_features = s->driver_features;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		v->queues[i].s = s->queues[i];
		v->queues[i].broken = false;
	}
	set_event_idx(v);
	return v->ops->load ? v->ops->load(v, extra) : 0;
}

void virtio_wake(struct virtio *v)
{
	pthread_mutex_lock(&v->lock);
	if (v->isr)
		v->raise(v->user, v->irq);
	for (unsigned i = 0; i < v->ops->n_queues; i++)
		notify(v, i);
	pthread_mutex_unlock(&v->lock);
}
