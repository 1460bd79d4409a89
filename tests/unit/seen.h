/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_SEEN_H
#define PARBAKE_TESTS_SEEN_H

/* A stream's callbacks that note what they see. */
#include <stdio.h>

#include "vmm/guest/guest.h"

/* What a stream's callbacks saw. */
struct seen {
	size_t bytes, take, writables, eofs;
	bool done;
	int error;
	char text[256];
};

static size_t seen_data(void *user, enum proto_channel c, const uint8_t *bytes, size_t len)
{
	struct seen *s = user;
	size_t n = len < s->take ? len : s->take;

	(void)c;
	(void)bytes;
	s->take -= n;
	s->bytes += n;
	return n;
}

static void seen_eof(void *user, enum proto_channel c)
{
	(void)c;
	((struct seen *)user)->eofs++;
}

static void seen_writable(void *user, enum proto_channel c)
{
	(void)c;
	((struct seen *)user)->writables++;
}

static void seen_done(void *user, const struct guest_reply *reply)
{
	struct seen *s = user;

	if (s->done)
		s->error = -1; /* twice */
	s->done = true;
	s->error = reply->error;
	snprintf(s->text, sizeof(s->text), "%s", reply->text ? reply->text : "");
}

__attribute__((unused)) static const struct guest_stream_ops seen_ops = {
	.data = seen_data, .eof = seen_eof, .writable = seen_writable, .done = seen_done};

__attribute__((unused)) static const struct guest_stream_ops *seen_open(
	void *user, struct guest_stream *s, void **ret)
{
	(void)s;
	*ret = user;
	return &seen_ops;
}

#endif
