/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of one guest: its channel, what else is watched, a deadline. A watch that is
 * removed while the loop runs is only marked, and freed before the next poll(2), so that
 * callbacks may remove any watch, their own included. A watch with no events is not polled at
 * all: poll(2) would report a hang-up for ever.
 */
#include "vmm/guest/guest_private.h"

#include <poll.h>

#include "common/clock.h"

/* A machine's end closes its channel a moment before its process can be seen to be gone. */
#define ENDING_GRACE_MS 1000

static void *grow(void *items, size_t *cap, size_t need, size_t size)
{
	if (need <= *cap)
		return items;
	*cap = need < 16 ? 16 : need * 2;
	items = realloc(items, *cap * size);
	if (!items)
		abort();
	return items;
}

struct guest_watch *guest_watch_add(
	struct guest *g, int fd, short events, void (*fn)(void *user, short revents), void *user)
{
	struct guest_watch *w = malloc(sizeof(*w));

	if (!w)
		abort();
	*w = (struct guest_watch){.g = g, .fd = fd, .events = events, .fn = fn, .user = user};
	g->watches = grow(g->watches, &g->cap_watches, g->n_watches + 1, sizeof(*g->watches));
	g->watches[g->n_watches++] = w;
	if (g->watch_ops)
		w->handle = g->watch_ops->add(g->watch_user, w, fd, events);
	return w;
}

void guest_watch_set(struct guest_watch *w, short events)
{
	w->events = events;
	if (w->handle)
		w->g->watch_ops->set(w->handle, events);
}

void guest_on_watch(struct guest *g, const struct guest_watch_ops *ops, void *user)
{
	g->watch_ops = ops;
	g->watch_user = user;
}

void guest_watch_ready(struct guest_watch *w, short revents)
{
	if (w->fn && w->events)
		w->fn(w->user, revents);
}

static void watches_sweep(struct guest *g)
{
	size_t kept = 0;

	for (size_t i = 0; i < g->n_watches; i++) {
		if (g->watches[i]->fn)
			g->watches[kept++] = g->watches[i];
		else
			free(g->watches[i]);
	}
	g->n_watches = kept;
}

void guest_watch_remove(struct guest_watch *w)
{
	struct guest *g;

	if (!w)
		return;
	g = w->g;
	if (w->handle)
		g->watch_ops->remove(w->handle);
	w->handle = NULL;
	w->fn = NULL;
	w->events = 0;
	if (!g->waiting)
		watches_sweep(g);
}

/* How it died; but a machine that is gone is the better reason than its channel. */
static int dead_reason(struct guest *g, int also_fd, struct err *err)
{
	struct pollfd p = {.fd = also_fd, .events = POLLIN};

	if (also_fd >= 0 && g->dead_by_eof && poll(&p, 1, ENDING_GRACE_MS) == 1)
		return err_set(err, ECONNABORTED, "the machine has ended");
	return err_set(err, g->dead, "%s", g->dead_text);
}

/* One poll(2) and what it found. Returns whether @also_fd is readable. */
static bool poll_once(struct guest *g, int timeout_ms, int also_fd)
{
	size_t n = 2 + g->n_watches;

	g->polls = grow(g->polls, &g->cap_polls, n, sizeof(*g->polls));
	g->polls[0] = (struct pollfd){.fd = g->fd, .events = guest_events(g)};
	g->polls[1] = (struct pollfd){.fd = also_fd, .events = POLLIN};
	for (size_t i = 2; i < n; i++) {
		const struct guest_watch *w = g->watches[i - 2];

		g->polls[i] = (struct pollfd){.fd = w->events ? w->fd : -1, .events = w->events};
	}
	if (poll(g->polls, n, timeout_ms) <= 0)
		return false;
	if (g->polls[0].revents)
		guest_dispatch(g, NULL);
	/* callbacks may add watches (at the end) and thereby move the arrays, and change events */
	for (size_t i = 2; i < n; i++) {
		struct guest_watch *w = g->watches[i - 2];
		short got = g->polls[i].revents;

		if (got && w->fn && w->events)
			w->fn(w->user, got);
	}
	return g->polls[1].revents != 0;
}

int guest_wait(struct guest *g, const bool *flag, int64_t deadline, int also_fd, struct err *err)
{
	int rc = 0;

	if (g->waiting || g->dispatching)
		return err_set(err, EDEADLK, "guest_wait() from within a callback");
	g->waiting = true;
	while (!*flag) {
		int left = clock_left_ms(deadline);
		bool ended = false;

		watches_sweep(g);
		g->dispatching = true;
		guest_flush(g);
		g->dispatching = false;
		if (!g->dead)
			ended = poll_once(g, left, also_fd);
		if (*flag)
			break;
		if (g->dead)
			rc = dead_reason(g, also_fd, err);
		else if (ended)
			rc = err_set(err, ECONNABORTED, "the machine has ended");
		else if (left == 0)
			rc = err_set(err, ETIMEDOUT, "the time is up");
		if (rc < 0)
			break;
	}
	g->waiting = false;
	watches_sweep(g);
	return rc;
}
