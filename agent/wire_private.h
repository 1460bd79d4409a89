/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_WIRE_PRIVATE_H
#define PARBAKE_AGENT_WIRE_PRIVATE_H

/* What wire.c and stream.c share: a connection and its streams from within. */
#include "agent/wire.h"

#define WIRE_EVEN_MAX 64u /* agent-opened streams at once */

struct stream {
	struct wire *wire;
	LIST_ENTRY(stream) link;
	uint32_t id;
	const struct stream_ops *ops;
	void *user;
	uint32_t credit[PROTO_CHANNELS]; /* DATA the host still takes */
	uint32_t window[PROTO_CHANNELS]; /* DATA the host may still send */
	bool starved[PROTO_CHANNELS]; /* stream_room() said 0: tell when there is credit */
	bool rx_eof[PROTO_CHANNELS];
	bool tx_eof[PROTO_CHANNELS];
};

struct wire {
	int fd;
	const struct wire_ops *ops;
	bool synced, closed;
	bool readable, writable; /* until EAGAIN says otherwise */
	uint8_t *rx;
	size_t rx_start, rx_end, rx_max;
	uint8_t *tx;
	size_t tx_start, tx_end, tx_max;
	LIST_HEAD(, stream) streams;
	unsigned odd, even;
	uint32_t next_even;
	TAILQ_HEAD(, sender) senders; /* whose turn it is comes first */
};

/* Append a frame. */
void wire_send(
	struct wire *w, unsigned type, unsigned flags, uint32_t id, const void *body, uint32_t len);
/* Room for @len more bytes of output, contiguous; they count once tx_end is moved. */
uint8_t *wire_room(struct wire *w, size_t len);

/* A frame of a stream came, its header already checked. */
void stream_frame(struct wire *w, const struct proto_header *h, const uint8_t *body);
void stream_abort_all(struct wire *w);

#endif
