/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A serial port: as much of a 16550A as Linux' driver wants to see: registers that keep what was
 * written, a modem status that loops back, and a transmitter that is always empty, with its
 * interrupt.
 */
#include "vmm/kvm/program/serial.h"

#include <unistd.h>

enum { DATA, IER, IIR, LCR, MCR, LSR, MSR, SCRATCH };

#define IER_TRANSMITTER 0x02
#define IIR_NONE 0x01
#define IIR_TRANSMITTER 0x02
#define IIR_FIFO 0xc0
#define LCR_DIVISOR 0x80
#define LSR_EMPTY 0x60
#define MCR_LOOP 0x10
#define MSR_READY 0xb0 /* carrier, data set ready, clear to send */

void serial_init(struct serial *s, int fd, void (*raise)(void *user, unsigned irq), void *user)
{
	*s = (struct serial){
		.lock = PTHREAD_MUTEX_INITIALIZER, .fd = fd, .raise = raise, .user = user};
}

static void transmitter_empty(struct serial *s)
{
	s->s.pending = 1;
	if (s->s.ier & IER_TRANSMITTER)
		s->raise(s->user, SERIAL_IRQ);
}

static uint8_t modem_status(const struct serial *s)
{
	uint8_t m = s->s.mcr;

	if (!(m & MCR_LOOP))
		return MSR_READY;
	/* DTR to DSR, RTS to CTS, OUT1 to RI, OUT2 to DCD */
	return (uint8_t)((m & 1) << 5 | (m & 2) << 3 | (m & 4) << 4 | (m & 8) << 4);
}

static uint8_t read_register(struct serial *s, unsigned at)
{
	switch (at) {
	case DATA:
		return s->s.lcr & LCR_DIVISOR ? s->s.divisor[0] : 0;
	case IER:
		return s->s.lcr & LCR_DIVISOR ? s->s.divisor[1] : s->s.ier;
	case IIR:
		if (!s->s.pending || !(s->s.ier & IER_TRANSMITTER))
			return IIR_FIFO | IIR_NONE;
		s->s.pending = 0;
		return IIR_FIFO | IIR_TRANSMITTER;
	case LCR:
		return s->s.lcr;
	case MCR:
		return s->s.mcr;
	case LSR:
		return LSR_EMPTY;
	case MSR:
		return modem_status(s);
	default:
		return s->s.scratch;
	}
}

static void put_byte(struct serial *s, uint8_t value)
{
	if (s->s.mcr & MCR_LOOP)
		return;
	if (write(s->fd, &value, 1) < 0) {
		/* full, or nobody reads any more */
	}
	transmitter_empty(s);
}

static void write_register(struct serial *s, unsigned at, uint8_t value)
{
	switch (at) {
	case DATA:
		if (s->s.lcr & LCR_DIVISOR)
			s->s.divisor[0] = value;
		else
			put_byte(s, value);
		break;
	case IER:
		if (s->s.lcr & LCR_DIVISOR) {
			s->s.divisor[1] = value;
			break;
		}
		s->s.ier = value & 0x0f;
		if (value & IER_TRANSMITTER)
			transmitter_empty(s);
		break;
	case LCR:
		s->s.lcr = value;
		break;
	case MCR:
		s->s.mcr = value & 0x1f;
		break;
	case SCRATCH:
		s->s.scratch = value;
		break;
	}
}

uint8_t serial_read(struct serial *s, unsigned at)
{
	uint8_t value;

	pthread_mutex_lock(&s->lock);
	value = read_register(s, at);
	pthread_mutex_unlock(&s->lock);
	return value;
}

void serial_write(struct serial *s, unsigned at, uint8_t value)
{
	pthread_mutex_lock(&s->lock);
	write_register(s, at, value);
	pthread_mutex_unlock(&s->lock);
}
