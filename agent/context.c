/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of contexts. Each is an interpreter with our driver for it (language.c)
 * in a tree of its own. The end of the process is what ends a context, in whatever way it came
 * about: its cells are told, its tree is killed, and it goes, starts again, or stays as
 * dead: then a CODE is told so, and the one after starts it anew as it was started before.
 *
 * Everything the driver sends is bounded: the user's code can reach its socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "agent/context_private.h"
#include "agent/language.h"
#include "agent/spawn.h"

#define MESSAGE_HEAD 5u
#define MESSAGE_MAX (256u << 10)
#define CONTEXT_LIST_ROOM (PROTO_PATH_MAX + AGENT_CONTEXT_NAME_MAX + 160u) /* of one in a list */

/* A CONTEXT request that waits for a start or a stop. */
struct waiter {
	struct stream *stream;
	struct context *context;
	bool start;
	LIST_ENTRY(waiter) link;
};

struct contexts contexts = TAILQ_HEAD_INITIALIZER(contexts);

bool context_alive(const struct context *c)
{
	return c->state != CONTEXT_DYING && c->state != CONTEXT_DEAD;
}

/* A language's own context: "default" is Python's. */
static const char *context_name(const struct request *r)
{
	const struct language *l = language_find(r->language);

	if (r->context)
		return r->context;
	return l == language_find(NULL) ? "default" : l->name;
}

bool context_language(struct stream *s, const struct request *r)
{
	char text[160];

	if (language_find(r->language))
		return true;
	snprintf(text, sizeof(text), "language: %s does not run here; there are " LANGUAGE_NAMES,
		r->language);
	stream_reply_error(s, EINVAL, text);
	return false;
}

struct context *context_find(const struct request *r)
{
	const char *name = context_name(r);
	struct context *c;

	TAILQ_FOREACH(c, &contexts, link)
		if (!strcmp(c->name, name))
			break;
	return c;
}

unsigned context_count(void)
{
	struct context *c;
	unsigned n = 0;

	TAILQ_FOREACH(c, &contexts, link)
		n += context_alive(c);
	return n;
}

void context_kill_all(void)
{
	struct context *c;

	TAILQ_FOREACH(c, &contexts, link)
		if (context_alive(c))
			context_kill(c, "its context was stopped");
}

void context_kill(struct context *c, const char *why)
{
	if (!c->why[0])
		snprintf(c->why, sizeof(c->why), "%s", why);
	tree_kill(&c->tree);
}

/* ---- messages ------------------------------------------------------------------------- */

static void context_flush(struct context *c)
{
	while (c->tx_len > 0) {
		ssize_t n = send(c->control, c->tx, c->tx_len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) /* gone: then the end of its process says so */
			break;
		c->tx_len -= (size_t)n;
		memmove(c->tx, c->tx + n, c->tx_len);
	}
	if (c->watch)
		watch_set(c->watch, c->tx_len ? EPOLLIN | EPOLLOUT : EPOLLIN);
	if (!c->tx_len) {
		free(c->tx);
		c->tx = NULL;
	}
}

void context_send(struct context *c, char kind, const void *body, uint32_t len)
{
	uint8_t *tx = agent_alloc(c->tx_len + MESSAGE_HEAD + len);

	if (c->tx_len)
		memcpy(tx, c->tx, c->tx_len);
	memcpy(tx + c->tx_len, &len, 4);
	tx[c->tx_len + 4] = (uint8_t)kind;
	if (len)
		memcpy(tx + c->tx_len + MESSAGE_HEAD, body, len);
	free(c->tx);
	c->tx = tx;
	c->tx_len += MESSAGE_HEAD + len;
	context_flush(c);
}

/* How a context is told to the host. */
static void put_context(const struct context *c, struct proto_out *o)
{
	proto_put_str(o, PROTO_T_CONTEXT, c->name);
	proto_put_str(o, PROTO_T_LANGUAGE, c->language->name);
	proto_put_str(o, PROTO_T_CWD, c->cwd ? c->cwd : c->user.home);
	proto_put_bool(o, PROTO_T_BUSY, c->state == CONTEXT_BUSY);
}

static void reply_started(struct stream *s, const struct context *c)
{
	uint8_t buf[CONTEXT_LIST_ROOM];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	put_context(c, &o);
	stream_reply(s, &o);
}

static void waiters_end(struct context *c, bool start, int err, const char *text)
{
	struct waiter *w, *next;

	for (w = LIST_FIRST(&c->waiters); w; w = next) {
		next = LIST_NEXT(w, link);
		if (w->start != start)
			continue;
		LIST_REMOVE(w, link);
		if (err)
			stream_reply_error(w->stream, err, text);
		else if (start)
			reply_started(w->stream, c);
		else
			stream_reply(w->stream, NULL);
		free(w);
	}
}

/* Handle one message. False: the driver does not do as it should. */
static bool context_message(struct context *c, char kind, const uint8_t *body, uint32_t len)
{
	switch (kind) {
	case 'H':
		if (c->state != CONTEXT_STARTING)
			return false;
		c->state = CONTEXT_IDLE;
		c->ready = true;
		waiters_end(c, true, 0, NULL);
		code_next(c);
		return true;
	case 'F':
		snprintf(c->why, sizeof(c->why), "%.*s", (int)len, (const char *)body);
		return true;
	case 'D':
		return c->state == CONTEXT_BUSY && code_done(c, body, len);
	case CONTEXT_RESEED:
	case CONTEXT_COLLECT:
	case CONTEXT_EXERCISE:
	case CONTEXT_PREPARE:
		return context_answer(c, kind, NULL);
	}
	return false;
}

static void context_parse(struct context *c)
{
	size_t at = 0;
	uint32_t len;

	while (c->rx_len - at >= MESSAGE_HEAD) {
		memcpy(&len, c->rx + at, 4);
		if (len > MESSAGE_MAX) {
			context_kill(c, "its driver sent nonsense");
			c->rx_len = 0;
			return;
		}
		if (c->rx_len - at < MESSAGE_HEAD + len)
			break;
		if (!context_message(c, (char)c->rx[at + 4], c->rx + at + MESSAGE_HEAD, len)) {
			context_kill(c, "its driver sent nonsense");
			c->rx_len = 0;
			return;
		}
		at += MESSAGE_HEAD + len;
	}
	memmove(c->rx, c->rx + at, c->rx_len - at);
	c->rx_len -= at;
}

static void context_ready(void *user, uint32_t events)
{
	struct context *c = user;
	ssize_t n;

	if (events & EPOLLOUT)
		context_flush(c);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	if (c->rx_len == c->rx_max) {
		uint8_t *rx = agent_alloc(c->rx_max * 2);

		memcpy(rx, c->rx, c->rx_len);
		free(c->rx);
		c->rx = rx;
		c->rx_max *= 2;
	}
	n = recv(c->control, c->rx + c->rx_len, c->rx_max - c->rx_len, MSG_DONTWAIT);
	if (n > 0) {
		c->rx_len += (size_t)n;
		context_parse(c);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		watch_remove(c->watch);
		c->watch = NULL;
		c->hung_up = true; /* mostly because it has died: its status says more */
		tree_kill(&c->tree);
	}
}

/* ---- the end -------------------------------------------------------------------------- */

static void context_free(struct context *c)
{
	TAILQ_REMOVE(&contexts, c, link);
	for (unsigned i = 0; i < c->nenv; i++)
		free(c->env[i]);
	free(c->env);
	free(c->cwd);
	free(c->rx);
	free(c->tx);
	free(c->done);
	free(c);
}

static int context_start(struct context *c, struct fail *f);

void context_over(struct context *c)
{
	struct fail f;

	timer_stop(&c->timer);
	run_timer_stop(&c->grace);
	waiters_end(c, false, 0, NULL);
	if (c->restart) {
		c->restart = c->stopping = false;
		c->why[0] = '\0';
		if (context_start(c, &f) == 0)
			return;
		snprintf(c->why, sizeof(c->why), "%.*s", (int)sizeof(c->why) - 1, f.text);
		c->ready = false;
		waiters_end(c, true, f.err, f.text);
		code_queue_gone(c); /* cells that came while it ended, for the new one */
		context_free(c);
		return;
	}
	waiters_end(c, true, ECANCELED, c->why);
	if (c->stopping)
		context_free(c);
	else
		c->state = CONTEXT_DEAD;
}

/* What cannot start lacks a program, most likely: name what has it, and where it is asked for. */
static void name_packages(const struct context *c, char *text, size_t size)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len,
		"; %s needs \"packages = %s\" under [root] of the template's recipe",
		c->language->name, c->language->packages);
}

static void context_exited(void *user, int status)
{
	struct context *c = user;
	uint64_t oom = tree_oom_kills(&c->tree);
	bool starting = c->state == CONTEXT_STARTING;

	/* what it said last (F) may still be in the socket */
	if (starting && c->watch)
		context_ready(c, EPOLLIN);
	c->tree.main = 0;
	watch_remove(c->watch);
	c->watch = NULL;
	close_fd(&c->control);
	c->tx_len = 0;
	if (!c->why[0] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && c->hung_up && !oom)
		snprintf(c->why, sizeof(c->why),
			"it was killed, or closed its channel to the agent");
	else if (!c->why[0] && WIFSIGNALED(status))
		snprintf(c->why, sizeof(c->why), "it was killed by signal %d (%s)%s",
			WTERMSIG(status), strsignal(WTERMSIG(status)),
			oom ? ": out of memory" : "");
	else if (!c->why[0])
		snprintf(c->why, sizeof(c->why), "it exited with code %d", WEXITSTATUS(status));
	tree_bury(&c->tree);
	while (context_answer(c, 0, c->name))
		continue;
	if (starting && !c->stopping) {
		name_packages(c, c->why, sizeof(c->why));
		waiters_end(c, true, ENOEXEC, c->why);
		c->stopping = true; /* nothing was lost: there is nobody to tell later */
	}
	c->finished = c->state == CONTEXT_EMPTYING;
	c->state = CONTEXT_DYING;
	code_gone(c);
}

/* ---- the start ------------------------------------------------------------------------ */

static int context_spawn(struct context *c, const int theirs[4], struct fail *f)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), n, res;
	char **env;
	struct spawn spec = {.argv = c->language->argv,
		.user = &c->user,
		.cwd = c->cwd ? c->cwd : c->user.home,
		.cwd_optional = !c->cwd,
		.fds = {null, theirs[0], theirs[1], theirs[2], theirs[3]}};

	n = language_driver(c->language, spec.fds + 5);
	spec.nfds = 5 + (n > 0 ? (unsigned)n : 0);
	if (null < 0 || n < 0)
		res = fail_set(f, n < 0 ? -n : errno, "cannot open the driver: %s",
			strerror(n < 0 ? -n : errno));
	else
		res = tree_make(&c->tree, "context", NULL, f);
	if (res == 0) {
		env = env_make(&c->user, c->env, c->nenv, c->tree.mark, false);
		spec.envp = env;
		res = spawn(&spec, &c->tree, f);
		env_free(env);
		if (res < 0)
			tree_bury(&c->tree);
	}
	close_fd(&null);
	return res;
}

/* Start the process; the context is STARTING on success. */
static int context_start(struct context *c, struct fail *f)
{
	/* stdout, stderr, control, results: their ends, ours */
	int theirs[4] = {-1, -1, -1, -1}, ours[4] = {-1, -1, -1, -1}, pair[2], res = 0;

	for (unsigned i = 0; i < 4 && res == 0; i++) {
		res = i == 2 ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)
			     : pipe2(pair, O_CLOEXEC);
		if (res == 0) {
			ours[i] = pair[0];
			theirs[i] = pair[1];
			res = fcntl(ours[i], F_SETFL, O_NONBLOCK);
		}
	}
	if (res < 0)
		res = fail_set(f, errno, "cannot make pipes: %s", strerror(errno));
	else
		res = context_spawn(c, theirs, f);
	for (unsigned i = 0; i < 4; i++)
		close_fd(&theirs[i]);
	if (res < 0) {
		for (unsigned i = 0; i < 4; i++)
			close_fd(&ours[i]);
		return res;
	}
	reap_add(&c->child, c->tree.main, context_exited, c);
	source_start(&c->out, ours[0], NULL, PROTO_OUT, code_source_done, c);
	source_start(&c->err, ours[1], NULL, PROTO_ERR, code_source_done, c);
	c->control = ours[2];
	c->watch = watch_add(c->control, EPOLLIN, context_ready, c);
	source_start(&c->results, ours[3], NULL, PROTO_RESULT, code_source_done, c);
	c->rx_len = c->tx_len = 0;
	c->ready = c->hung_up = c->finished = false;
	c->state = CONTEXT_STARTING;
	return 0;
}

/* How it is to be started, where @r says so. */
static int context_settings(struct context *c, struct request *r, struct fail *f)
{
	if (r->user || !c->user.home[0]) {
		int res = user_find(r->user, &c->user, f);

		if (res < 0)
			return res;
	}
	if (r->nenv) {
		char **env = c->env;
		unsigned nenv = c->nenv;

		c->env = r->env;
		c->nenv = r->nenv;
		r->env = env; /* freed with the request */
		r->nenv = nenv;
	}
	if (r->cwd) {
		free(c->cwd);
		c->cwd = r->cwd;
		r->cwd = NULL;
	}
	return 0;
}

/* Forget one that is dead and known to be. */
static bool context_evict(void)
{
	struct context *c;

	TAILQ_FOREACH(c, &contexts, link)
		if (c->state == CONTEXT_DEAD && c->told)
			break;
	if (c)
		context_free(c);
	return c != NULL;
}

struct context *context_make(struct request *r, struct fail *f)
{
	struct context *c = context_find(r), *other;
	unsigned n = 0;

	TAILQ_FOREACH(other, &contexts, link)
		n++;
	if (c) { /* a dead one: in its place */
		c->why[0] = '\0';
		c->stopping = false;
	} else if (n >= AGENT_CONTEXTS_MAX && !context_evict()) {
		fail_set(f, EMFILE, "there are %u contexts already: stop one", n);
		return NULL;
	} else {
		c = agent_alloc(sizeof(*c));
		*c = (struct context){.tree.fd = -1, .control = -1, .rx_max = 4096};
		c->rx = agent_alloc(c->rx_max);
		snprintf(c->name, sizeof(c->name), "%s", context_name(r));
		c->language = language_find(r->language);
		TAILQ_INIT(&c->queue);
		STAILQ_INIT(&c->asks);
		TAILQ_INSERT_TAIL(&contexts, c, link);
	}
	if (context_settings(c, r, f) == 0) {
		if (context_start(c, f) == 0)
			return c;
		if (f->err == ENOENT)
			name_packages(c, f->text, sizeof(f->text));
	}
	context_free(c);
	return NULL;
}

/* ---- CONTEXT -------------------------------------------------------------------------- */

static void waiter_gone(struct stream *s)
{
	struct waiter *w = stream_user(s);

	LIST_REMOVE(w, link);
	free(w);
}

/* A start that nobody waits for any more is taken back: its context would stay, known to nobody. */
static void waiter_cancel(struct stream *s)
{
	struct context *c = ((struct waiter *)stream_user(s))->context;

	waiter_gone(s);
	stream_reply_error(s, ECANCELED, "canceled");
	if (c->state == CONTEXT_STARTING && LIST_EMPTY(&c->waiters) && TAILQ_EMPTY(&c->queue) &&
		!c->stopping) {
		c->stopping = true;
		context_kill(c, "its start was canceled");
	}
}

static const struct stream_ops waiter_ops = {.cancel = waiter_cancel, .abort = waiter_gone};

static void waiter_add(struct context *c, struct stream *s, bool start)
{
	struct waiter *w = agent_alloc(sizeof(*w));

	*w = (struct waiter){.stream = s, .context = c, .start = start};
	LIST_INSERT_HEAD(&c->waiters, w, link);
	stream_set(s, &waiter_ops, w);
}

static void context_action_start(struct stream *s, struct context *c, struct request *r)
{
	struct fail f;

	if (c && context_alive(c) && !c->stopping && c->state != CONTEXT_STARTING) {
		reply_started(s, c);
		return;
	}
	if (!c || c->state == CONTEXT_DEAD)
		c = context_make(r, &f);
	else if (c->stopping || c->state == CONTEXT_DYING)
		c->restart = true;
	if (c)
		waiter_add(c, s, true);
	else
		stream_reply_error(s, f.err, f.text);
}

/* Those that are there, a dead one too: its next CODE is told, or starts it anew. */
static void context_list(struct stream *s)
{
	uint8_t *buf = agent_alloc(AGENT_CONTEXTS_MAX * CONTEXT_LIST_ROOM);
	struct proto_out o = {.buf = buf, .max = AGENT_CONTEXTS_MAX * CONTEXT_LIST_ROOM};
	struct context *c;

	TAILQ_FOREACH(c, &contexts, link) {
		if (c->stopping && !c->restart)
			continue;
		put_context(c, &o);
	}
	stream_reply(s, &o);
	free(buf);
}

void context_request(struct stream *s, unsigned type, struct request *r)
{
	struct context *c;
	const char *action = r->action ? r->action : "start";
	bool restart = !strcmp(action, "restart");
	struct fail f;

	(void)type;
	if (!context_language(s, r))
		return;
	c = context_find(r);
	if (!strcmp(action, "exercise")) {
		context_exercise(s, CONTEXT_EXERCISE);
	} else if (!strcmp(action, "prepare")) {
		context_exercise(s, CONTEXT_PREPARE);
	} else if (!strcmp(action, "list")) {
		context_list(s);
	} else if (!c && r->existing) {
		stream_reply_error(s, ENOENT, "there is no such context");
	} else if (!strcmp(action, "start") || (restart && (!c || c->state == CONTEXT_DEAD))) {
		context_action_start(s, c, r);
	} else if (!restart && strcmp(action, "stop") != 0) {
		stream_reply_error(s, EINVAL,
			"contexts can be told to start, restart, stop, list, exercise or prepare");
	} else if (!c) {
		stream_reply(s, NULL);
	} else if (c->state == CONTEXT_DEAD) {
		context_free(c);
		stream_reply(s, NULL);
	} else if (restart && context_settings(c, r, &f) < 0) {
		stream_reply_error(s, f.err, f.text);
	} else {
		c->stopping = true;
		c->restart = restart;
		waiter_add(c, s, restart);
		context_kill(c, restart ? "its context was restarted" : "its context was stopped");
	}
}
