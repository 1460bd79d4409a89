/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's wall clock beside the host's. A machine that wakes is told the time, but when it
 * reads that message the time in it is already old. So the guest is asked what its clock says, and
 * told how far that is off: an offset, unlike a time, stays right on its way. What a round trip
 * shows is right to within half of the trip's length (the principle of NTP, RFC 5905), so of
 * several trips the shortest counts. An offset that is smaller than that error is left alone.
 *
 * The guest is asked only when it is used for something else anyway, and at most every
 * CLOCK_EVERY_NS: so a guest that sleeps is not woken.
 */
#include <stdlib.h>

#include "common/clock.h"
#include "vmm/guest/guest_private.h"

#define CLOCK_EVERY_NS 60000000000ll
#define CLOCK_LEAST_NS 200000ll /* nobody needs better */
#define CLOCK_SHORT_NS 1500000ll /* a round trip that is short enough not to try again */
#define CLOCK_TRIES 20
#define CLOCK_FAR_NS 5000000ll /* surely off by so much it is corrected at once, and then better */
#define CLOCK_GOOD_NS 4000000ll /* a round trip whose middle is good enough to be believed */

struct clock_query {
	struct guest *g;
	unsigned tries;
	int64_t asked_ns, asked_realtime_ns;
	int64_t best_ns, off_ns; /* the shortest round trip, and what it told */
};

/* What the guest's clock said, ns since 1970. 0: it does not say. */
static int64_t reply_realtime(const struct guest_reply *reply)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;
	uint64_t ns;

	while (!reply->error && proto_next(&in, &f) == 1) {
		if (f.tag == PROTO_T_REALTIME_NS && proto_u64(&f, &ns) == 0)
			return (int64_t)ns;
	}
	return 0;
}

static void shifted(void *user, const struct guest_reply *reply)
{
	(void)user;
	(void)reply;
}

static void shift(struct guest *g, int64_t offset_ns)
{
	static const struct guest_stream_ops ops = {.done = shifted};
	uint8_t buf[32];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};

	proto_put(&body, PROTO_T_OFFSET_NS, &offset_ns, sizeof(offset_ns));
	guest_request(g, PROTO_CLOCK, buf, body.len, &ops, NULL);
}

static void ask(struct clock_query *q);

/* The least that a clock is off by, when a round trip of @took_ns says @off_ns. */
static int64_t surely_off(int64_t off_ns, int64_t took_ns)
{
	if (llabs(off_ns) <= took_ns / 2)
		return 0;
	return off_ns > 0 ? off_ns - took_ns / 2 : off_ns + took_ns / 2;
}

static void told(void *user, const struct guest_reply *reply)
{
	struct clock_query *q = user;
	int64_t there = reply_realtime(reply), took = clock_now_ns() - q->asked_ns;
	int64_t off = q->asked_realtime_ns + took / 2 - there;

	/* the first may have waited for the guest to say hello: its middle means little */
	if (there && !q->tries && llabs(surely_off(off, took)) > CLOCK_FAR_NS) {
		shift(q->g, surely_off(off, took));
		q->tries = 1;
		ask(q); /* behind the correction, so it tells what is left */
		return;
	}
	if (there && took < q->best_ns) {
		q->best_ns = took;
		q->off_ns = off;
	}
	if (there && took > CLOCK_SHORT_NS && ++q->tries < CLOCK_TRIES) {
		ask(q);
		return;
	}
	/* an agent of before knows no such question */
	off = surely_off(q->off_ns, q->best_ns);
	if (there && llabs(off) > CLOCK_LEAST_NS)
		shift(q->g, q->best_ns <= CLOCK_GOOD_NS ? q->off_ns : off);
	free(q);
}

static void ask(struct clock_query *q)
{
	static const struct guest_stream_ops ops = {.done = told};

	q->asked_ns = clock_now_ns();
	q->asked_realtime_ns = clock_realtime_ns();
	if (!guest_request(q->g, PROTO_CLOCK, NULL, 0, &ops, q))
		free(q);
}

void guest_clock_check(struct guest *g)
{
	int64_t now = clock_now_ns();
	struct clock_query *q;

	if (g->dead || (g->clock_asked_at && now - g->clock_asked_at < CLOCK_EVERY_NS))
		return;
	q = calloc(1, sizeof(*q));
	if (!q)
		return;
	q->g = g;
	q->best_ns = INT64_MAX;
	g->clock_asked_at = now;
	ask(q);
}

void guest_clock_doubt(struct guest *g)
{
	g->clock_asked_at = 0;
}
