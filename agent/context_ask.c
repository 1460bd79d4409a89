/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking every context for something (to reseed, to collect garbage, to exercise …) and waiting for all, but
 * not for ever. A driver answers its messages in order, so each context has a queue of
 * what it owes; an answer that comes too late still takes its place in it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/context_private.h"

/* One context_ask_all(), and its message to one context. */
struct gather {
	unsigned left;
	bool over;
	struct run_timer timer;
	void (*done)(void *user, const char *late);
	void *user;
	char late[AGENT_CONTEXT_NAME_MAX + 1];
};

struct ask {
	char kind;
	struct gather *gather;
	STAILQ_ENTRY(ask) link;
};

static void gather_end(struct gather *g, const char *late)
{
	if (g->over)
		return;
	g->over = true;
	run_timer_stop(&g->timer);
	g->done(g->user, late);
}

/* One answer, or (@late) the lack of one. */
static void gather_answer(struct gather *g, const char *late)
{
	if (late && !g->late[0])
		snprintf(g->late, sizeof(g->late), "%s", late);
	if (--g->left > 0)
		return;
	gather_end(g, g->late[0] ? g->late : NULL);
	free(g);
}

static void gather_late(void *user)
{
	struct gather *g = user;
	struct context *c;
	struct ask *a;

	TAILQ_FOREACH(c, &contexts, link)
		STAILQ_FOREACH(a, &c->asks, link)
			if (a->gather == g && !g->late[0])
				snprintf(g->late, sizeof(g->late), "%s", c->name);
	gather_end(g, g->late); /* freed with the last answer */
}

void context_ask_all(
	enum context_ask what, uint64_t ms, void (*done)(void *user, const char *late), void *user)
{
	struct gather *g = agent_alloc(sizeof(*g));
	struct context *c;

	*g = (struct gather){.left = 1, .done = done, .user = user};
	run_timer_arm(&g->timer, ms, ms + AGENT_RUN_MAX_MS, gather_late, g);
	TAILQ_FOREACH(c, &contexts, link) {
		struct ask *a;

		if (!context_alive(c))
			continue;
		a = agent_alloc(sizeof(*a));
		*a = (struct ask){.kind = (char)what, .gather = g};
		STAILQ_INSERT_TAIL(&c->asks, a, link);
		g->left++;
		context_send(c, (char)what, NULL, 0);
	}
	gather_answer(g, NULL);
}

bool context_answer(struct context *c, char kind, const char *late)
{
	struct ask *a = STAILQ_FIRST(&c->asks);
	struct gather *g;

	if (!a || (!late && a->kind != kind))
		return false;
	g = a->gather;
	STAILQ_REMOVE_HEAD(&c->asks, link);
	free(a);
	gather_answer(g, late);
	return true;
}

/* ---- exercise ------------------------------------------------------------------------- */

static void exercise_done(void *user, const char *late)
{
	struct stream **owner = user;
	char text[160];

	snprintf(text, sizeof(text), "context '%.64s' is not idle", late ? late : "");
	if (*owner && late)
		stream_reply_error(*owner, EBUSY, text);
	else if (*owner)
		stream_reply(*owner, NULL);
	free(owner);
}

static void exercise_abort(struct stream *s)
{
	struct stream **owner = stream_user(s);

	*owner = NULL;
}

static const struct stream_ops exercise_ops = {.abort = exercise_abort};

void context_exercise(struct stream *s, enum context_ask what)
{
	struct stream **owner = agent_alloc(sizeof(struct stream *));

	*owner = s;
	stream_set(s, &exercise_ops, owner);
	context_ask_all(what, what == CONTEXT_PREPARE ? AGENT_PREPARE_MS : AGENT_QUIESCE_MS,
		exercise_done, owner);
}
