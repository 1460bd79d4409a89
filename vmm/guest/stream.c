/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: requests of our own and connections the agent opens, with credit both ways.
 *
 * What a stream has to send (its request, data, credit, signals, its end) stays with it until
 * guest_fill() moves it into the output, one DATA frame a turn, so that no stream starves another.
 * The stream's memory is bounded by its credit: we take no more from our caller than the agent
 * gave, and the agent may send no more than we gave. Credit is counted as given only when its frame
 * is in the output, which is bounded: an agent that never reads runs out of it.
 *
 * The end of a stream of our own is the agent's REPLY. The REPLY is kept back until the caller has
 * read the data before it, unless the caller cancelled. The end of an agent's stream is our REPLY,
 * behind the data queued before it; until that REPLY is sent the stream's number counts as open,
 * and what the agent sends on it is dropped.
 *
 * A callback may end the stream that it runs for. So a stream is taken out of the tables at once
 * (`gone`) and freed when no callback of it runs any more (`busy`).
 */
#include "common/buffer.h"
#include "vmm/guest/guest_private.h"

/* ---- the tables ------------------------------------------------------------------------- */

void guest_stream_list(struct guest_stream *s)
{
	if (s->listed || s->gone)
		return;
	s->listed = true;
	TAILQ_INSERT_TAIL(&s->g->ready, s, ready);
}

static void stream_unlist(struct guest_stream *s)
{
	if (!s->listed)
		return;
	TAILQ_REMOVE(&s->g->ready, s, ready);
	s->listed = false;
}

void guest_stream_hold(struct guest_stream *s)
{
	s->busy++;
}

void guest_stream_release(struct guest_stream *s)
{
	if (--s->busy || !s->gone)
		return;
	for (int c = 0; c < PROTO_CHANNELS; c++) {
		buffer_free(&s->rx[c].queue);
		buffer_free(&s->tx[c].queue);
	}
	buffer_free(&s->request);
	free(s->reply);
	free(s->finish_text);
	free(s);
}

/* Out of the tables; freed by the last guest_stream_release(). */
static void stream_unlink(struct guest_stream *s)
{
	struct guest *g = s->g;

	if (s->gone)
		return;
	stream_unlist(s);
	s->gone = true;
	if (s->number & 1) {
		uint32_t slot = (s->number >> 1) % PROTO_STREAMS_MAX;

		g->ours[slot] = NULL;
		g->n_ours--;
		return;
	}
	for (unsigned i = 0; i < g->n_theirs; i++) {
		if (g->theirs[i] != s)
			continue;
		g->theirs[i] = g->theirs[--g->n_theirs];
		break;
	}
	g->closed[g->closed_next++ % PROTO_STREAMS_MAX] = s->number;
}

struct guest_stream *guest_stream_find(struct guest *g, uint32_t number)
{
	struct guest_stream *s;

	if (number & 1) {
		s = g->ours[(number >> 1) % PROTO_STREAMS_MAX];
		return s && s->number == number ? s : NULL;
	}
	for (unsigned i = 0; i < g->n_theirs; i++) {
		if (g->theirs[i]->number == number)
			return g->theirs[i];
	}
	return NULL;
}

bool guest_lately_closed(const struct guest *g, uint32_t number)
{
	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		if (g->closed[i] == number)
			return true;
	}
	return false;
}

struct guest_stream *guest_stream_new(struct guest *g, enum proto_type type)
{
	struct guest_stream *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->g = g;
	s->type = type;
	for (int c = 0; c < PROTO_CHANNELS; c++)
		s->rx[c].credit = s->tx[c].credit = PROTO_WINDOW;
	return s;
}

void guest_stream_end(struct guest_stream *s, const struct guest_reply *reply)
{
	const struct guest_stream_ops *ops = s->ops;

	stream_unlink(s);
	s->ops = NULL;
	if (ops)
		ops->done(s->user, reply);
}

void guest_streams_end(struct guest *g, int error, const char *text)
{
	const struct guest_reply reply = {.error = error, .text = text};

	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		struct guest_stream *s = g->ours[i];

		if (!s)
			continue;
		guest_stream_hold(s);
		guest_stream_end(s, &reply);
		guest_stream_release(s);
	}
	while (g->n_theirs) {
		struct guest_stream *s = g->theirs[g->n_theirs - 1];

		guest_stream_hold(s);
		guest_stream_end(s, &reply);
		guest_stream_release(s);
	}
}

/* ---- sending ---------------------------------------------------------------------------- */

struct guest_stream *guest_request(struct guest *g, enum proto_type type, const void *body,
	uint32_t body_len, const struct guest_stream_ops *ops, void *user)
{
	struct guest_stream *s;
	struct proto_header h;
	uint32_t slot = 0;

	if (g->dead || body_len > PROTO_BODY_MAX || g->n_ours + g->n_theirs >= PROTO_STREAMS_MAX)
		return NULL;
	while (g->ours[slot])
		slot++;
	s = guest_stream_new(g, type);
	s->ops = ops;
	s->user = user;
	s->number = 2 * (slot + PROTO_STREAMS_MAX * g->generation[slot]) + 1;
	g->generation[slot] = (g->generation[slot] + 1) % (1u << 20);
	g->ours[slot] = s;
	g->n_ours++;
	h = (struct proto_header){PROTO_MAGIC, (uint16_t)type, 0, s->number, body_len};
	buffer_reserve(&s->request, sizeof(h) + body_len);
	buffer_append(&s->request, &h, sizeof(h));
	buffer_append(&s->request, body, body_len);
	guest_stream_list(s);
	return s;
}

size_t guest_stream_room(struct guest_stream *s, enum proto_channel channel)
{
	struct guest_tx *tx = &s->tx[channel];

	if (s->gone || s->finishing || s->cancel_wanted || tx->eof_wanted)
		return 0;
	if (!tx->credit)
		tx->blocked = true;
	return tx->credit;
}

size_t guest_stream_send(
	struct guest_stream *s, enum proto_channel channel, const void *bytes, size_t len)
{
	struct guest_tx *tx = &s->tx[channel];
	size_t n = guest_stream_room(s, channel);

	if (n > len)
		n = len;
	else if (n < len)
		tx->blocked = true;
	if (!n)
		return 0;
	buffer_append(&tx->queue, bytes, n);
	tx->credit -= (uint32_t)n;
	guest_stream_list(s);
	return n;
}

void guest_stream_eof(struct guest_stream *s, enum proto_channel channel)
{
	s->tx[channel].eof_wanted = true;
	guest_stream_list(s);
}

void guest_stream_drop_tx(struct guest_stream *s)
{
	for (int c = 0; c < PROTO_CHANNELS; c++)
		buffer_free(&s->tx[c].queue);
}

void guest_stream_cancel(struct guest_stream *s)
{
	if (s->cancel_wanted || !(s->number & 1))
		return;
	s->cancel_wanted = true;
	guest_stream_drop_tx(s);
	guest_stream_list(s);
}

void guest_stream_abandon(struct guest_stream *s)
{
	s->ops = NULL;
	for (int c = 0; c < PROTO_CHANNELS; c++)
		buffer_free(&s->rx[c].queue);
	guest_stream_cancel(s);
}

void guest_stream_signal(struct guest_stream *s, int sig)
{
	if (sig < 1 || sig > 64)
		return;
	s->signals |= 1ull << (sig - 1);
	guest_stream_list(s);
}

void guest_stream_resize(struct guest_stream *s, unsigned rows, unsigned cols)
{
	s->rows = (uint16_t)(rows < UINT16_MAX ? rows : UINT16_MAX);
	s->cols = (uint16_t)(cols < UINT16_MAX ? cols : UINT16_MAX);
	s->resize_wanted = true;
	guest_stream_list(s);
}

void guest_stream_reply(struct guest_stream *s, int error, const char *text)
{
	if (s->gone || s->finishing || (s->number & 1))
		return;
	s->ops = NULL;
	s->finishing = true;
	s->finish_error = error;
	if (error)
		s->finish_text = strndup(text ? text : "", PROTO_ERROR_MAX);
	for (int c = 0; c < PROTO_CHANNELS; c++)
		buffer_free(&s->rx[c].queue);
	guest_stream_list(s);
}

void guest_on_open(struct guest *g, guest_open_fn *fn, void *user)
{
	g->on_open = fn;
	g->open_user = user;
}

/* Small frames that do not wait their turn behind data. */
static void fill_control(struct guest_stream *s)
{
	struct guest *g = s->g;

	for (uint32_t c = 0; c < PROTO_CHANNELS; c++) {
		struct guest_rx *rx = &s->rx[c];
		uint32_t body[2] = {c, rx->owed};

		if (rx->owed < GUEST_CREDIT_STEP || rx->eof || s->replied || s->finishing)
			continue;
		guest_frame(g, PROTO_CREDIT, 0, s->number, body, sizeof(body));
		rx->credit += rx->owed;
		rx->owed = 0;
	}
	if (s->resize_wanted) {
		uint16_t size[2] = {s->rows, s->cols};

		guest_frame(g, PROTO_RESIZE, 0, s->number, size, sizeof(size));
		s->resize_wanted = false;
	}
	while (s->signals) {
		uint32_t sig = (uint32_t)__builtin_ctzll(s->signals) + 1;

		guest_frame(g, PROTO_SIGNAL, 0, s->number, &sig, sizeof(sig));
		s->signals &= s->signals - 1;
	}
	if (s->cancel_wanted && !s->cancel_sent) {
		guest_frame(g, PROTO_CANCEL, 0, s->number, NULL, 0);
		s->cancel_sent = true;
	}
}

/* One DATA frame, and the EOFs that are due. Returns whether there is more for another turn. */
static bool fill_data(struct guest_stream *s)
{
	bool sent = false, more = false;

	for (unsigned c = 0; c < PROTO_CHANNELS; c++) {
		struct guest_tx *tx = &s->tx[c];

		if (tx->queue.len && !sent) {
			uint32_t n = tx->queue.len < PROTO_DATA_MAX ? (uint32_t)tx->queue.len
								    : PROTO_DATA_MAX;

			guest_frame(s->g, PROTO_DATA, (uint16_t)c, s->number,
				tx->queue.bytes + tx->queue.head, n);
			buffer_consume(&tx->queue, n);
			sent = true;
		}
		if (tx->queue.len) {
			more = true;
		} else if (tx->eof_wanted && !tx->eof_sent && !s->cancel_wanted) {
			guest_frame(s->g, PROTO_EOF, (uint16_t)c, s->number, NULL, 0);
			tx->eof_sent = true;
		}
	}
	return more;
}

/* The last frame of an agent's stream. */
static void fill_reply(struct guest_stream *s)
{
	uint8_t buf[8 + 4 + PROTO_ERROR_MAX], error[4 + PROTO_ERROR_MAX];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	if (s->finish_error) {
		uint32_t code = (uint32_t)s->finish_error;
		size_t n = s->finish_text ? strlen(s->finish_text) : 0;

		memcpy(error, &code, 4);
		if (n)
			memcpy(error + 4, s->finish_text, n);
		proto_put(&o, PROTO_T_ERROR, error, (uint32_t)(4 + n));
	}
	guest_frame(s->g, PROTO_REPLY, 0, s->number, buf, o.len);
	guest_stream_hold(s);
	stream_unlink(s);
	guest_stream_release(s);
}

void guest_fill(struct guest *g)
{
	struct guest_stream *s;

	while ((s = TAILQ_FIRST(&g->ready)) && g->out.len < GUEST_OUT_HIGH) {
		stream_unlist(s);
		if (s->request.len) {
			buffer_append(&g->out, s->request.bytes + s->request.head, s->request.len);
			buffer_free(&s->request);
			s->request_end = g->sent + g->out.len;
		}
		fill_control(s);
		if (fill_data(s))
			guest_stream_list(s);
		else if (s->finishing)
			fill_reply(s);
	}
}
