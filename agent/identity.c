/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a clone is. The order matters: entropy first, so that everything after draws
 * from a generator no sibling shares; then the clock and names; then, where there was entropy, the
 * interpreters make their own generators anew. It writes to memory alone, so a frozen root is no obstacle.
 */
#include <errno.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timex.h>

#include "agent/agent.h"
#include "agent/context.h"
#include "agent/etc.h"
#include "agent/request.h"

#define CLOCK_STEP_NS INT64_C(2000000) /* behind by more */
#define CLOCK_BACK_NS INT64_C(1000000000) /* ahead by more */

struct identity {
	struct stream *stream; /* NULL: the connection has gone */
};

static int entropy_add(const uint8_t *bytes, uint32_t len)
{
	struct {
		struct rand_pool_info info;
		uint8_t bytes[512];
	} pool = {.info = {.entropy_count = (int)len * 8, .buf_size = (int)len}};
	int res = 0;

	/* the kernel reads the bytes right behind the two counts, where info.buf begins */
	memcpy(pool.info.buf, bytes, len);
	if (agent.random < 0)
		return -ENOENT;
	if (ioctl(agent.random, RNDADDENTROPY, &pool) < 0 || ioctl(agent.random, RNDRESEEDCRNG) < 0)
		res = -errno;
	explicit_bzero(&pool, sizeof(pool));
	return res;
}

static int clock_set(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (ns < 0)
		return -EINVAL;
	return clock_settime(CLOCK_REALTIME, &t) < 0 ? -errno : 0;
}

/*
 * A clock that is far behind, as after a resume, steps: a jump ahead is what a resume is. All else is made up for
 * slowly (500 millionths of the time that passes), so that no program sees time go back or skip.
 */
static int clock_shift(int64_t ns)
{
	struct timex t = {.modes = ADJ_OFFSET_SINGLESHOT, .offset = (long)(ns / 1000)};
	int64_t s = ns / 1000000000, rest = ns % 1000000000;

	if (ns > CLOCK_STEP_NS || ns < -CLOCK_BACK_NS) {
		if (rest < 0) {
			s--;
			rest += 1000000000;
		}
		t = (struct timex){.modes = ADJ_SETOFFSET | ADJ_NANO, .time = {s, rest}};
	}
	return adjtimex(&t) < 0 ? -errno : 0;
}

/* What the clock says as the reply goes out. */
static void reply_clock(struct stream *s)
{
	uint8_t buf[32];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	struct timespec t;
	int64_t ns;

	clock_gettime(CLOCK_REALTIME, &t);
	ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	proto_put(&o, PROTO_T_REALTIME_NS, &ns, sizeof(ns));
	stream_reply(s, &o);
}

static bool machine_id_good(const char *id)
{
	return strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32;
}

static bool hostname_good(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= 63 &&
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static void identity_done(void *user, const char *late)
{
	struct identity *id = user;
	char text[160];

	if (!late && id->stream) {
		reply_clock(id->stream);
	} else if (id->stream) {
		snprintf(text, sizeof(text), "context '%.64s' did not reseed its generators", late);
		stream_reply_error(id->stream, ETIMEDOUT, text);
	}
	free(id);
}

static void identity_abort(struct stream *s)
{
	struct identity *id = stream_user(s);

	id->stream = NULL;
}

static const struct stream_ops identity_ops = {.abort = identity_abort};

/* What is set in the kernel and in /etc; only in a machine. What failed, or NULL. */
static const char *identity_apply(const struct request *r, int *ret_err)
{
	if (r->entropy_len && (*ret_err = entropy_add(r->entropy, r->entropy_len)) < 0)
		return "cannot add entropy";
	if (r->has_realtime && (*ret_err = clock_set(r->realtime_ns)) < 0)
		return "cannot set the clock";
	if (r->has_clock_offset && (*ret_err = clock_shift(r->clock_offset_ns)) < 0)
		return "cannot correct the clock";
	if (r->machine_id && (*ret_err = etc_machine_id(r->machine_id)) < 0)
		return "cannot write the machine id";
	if (r->hostname && (*ret_err = etc_hostname(r->hostname)) < 0)
		return "cannot set the hostname";
	return NULL;
}

void identity_request(struct stream *s, unsigned type, struct request *r)
{
	struct identity *id;
	const char *what;
	int err = 0;

	if ((r->machine_id && !machine_id_good(r->machine_id)) ||
		(r->hostname && !hostname_good(r->hostname))) {
		stream_reply_error(
			s, EINVAL, "an identity's time, machine id or hostname is not one");
		return;
	}
	if (!agent.machine && type == PROTO_CLOCK && (r->has_realtime || r->has_clock_offset)) {
		stream_reply_error(s, EPERM, "not in a machine: the clock is not ours to set");
		return;
	}
	what = agent.machine ? identity_apply(r, &err) : NULL;
	if (what) {
		stream_reply_error(s, err, what);
		return;
	}
	if (type == PROTO_CLOCK || !r->entropy_len) {
		reply_clock(s);
		return;
	}
	id = agent_alloc(sizeof(*id));
	id->stream = s;
	stream_set(s, &identity_ops, id);
	context_ask_all(CONTEXT_RESEED, AGENT_RESEED_MS, identity_done, id);
}
