/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_SERIAL_H
#define PARBAKE_VMM_KVM_SERIAL_H

#include <pthread.h>
#include <stdint.h>

/*
 * A serial port of the 8250 kind, at which the guest can write and nothing can be typed. What the
 * guest writes goes to a pipe. While the pipe is full it is lost: a guest's console makes nobody
 * wait.
 */
#define SERIAL_PORT 0x3f8
#define SERIAL_PORTS 8
#define SERIAL_IRQ 4

/* Its registers, as they stand in a state record. */
struct serial_state {
	uint8_t ier, lcr, mcr, scratch, divisor[2];
	uint8_t pending; /* the transmitter's interrupt */
	uint8_t unused;
};

struct serial {
	pthread_mutex_t lock;
	struct serial_state s;
	int fd; /* the pipe, non-blocking */
	void (*raise)(void *user, unsigned irq);
	void *user;
};

void serial_init(struct serial *s, int fd, void (*raise)(void *user, unsigned irq), void *user);
/* @at: 0 … 7. Any thread. */
uint8_t serial_read(struct serial *s, unsigned at);
void serial_write(struct serial *s, unsigned at, uint8_t value);

#endif
