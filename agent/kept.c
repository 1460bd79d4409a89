/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that are kept: they outlive the connection over which they were started, as a machine is paused,
 * forked, or its host's daemon begins anew. Who they are is known here alone, in the guest's memory, and so
 * it goes wherever the machine goes.
 *
 * Of those that end while nobody follows them the last ENDED_MAX are remembered, so that whoever comes back
 * for one learns how it ended.
 */
#include <errno.h>
#include <string.h>

#include "agent/exec_private.h"

#define ENDED_MAX 64

static TAILQ_HEAD(, exec) kept_commands = TAILQ_HEAD_INITIALIZER(kept_commands);
static unsigned kept_count;

static struct ended {
	uint32_t pid; /* 0: none */
	char tag[PROTO_TAG_MAX + 1];
	uint8_t reply[256];
	uint32_t len;
} ended[ENDED_MAX];
static unsigned ended_next;

static bool is_called(const char *tag, const char *name)
{
	return tag && name && !strcmp(tag, name);
}

/* By @tag where it is not NULL, else by @pid. */
static struct exec *kept_find(uint32_t pid, const char *tag)
{
	struct exec *e;

	TAILQ_FOREACH(e, &kept_commands, kept.link)
		if (tag ? is_called(e->kept.tag, tag) : e->kept.pid == pid)
			return e;
	return NULL;
}

static struct ended *ended_find(uint32_t pid, const char *tag)
{
	for (unsigned i = 0; i < ENDED_MAX; i++)
		if (ended[i].pid && (tag ? is_called(ended[i].tag, tag) : ended[i].pid == pid))
			return &ended[i];
	return NULL;
}

int kept_check(const struct request *r, struct fail *f)
{
	if (kept_count >= PROTO_KEPT_MAX)
		return fail_set(f, EMFILE, "%u commands run already, which is as many as may be",
			kept_count);
	if (r->tag && !*r->tag)
		return fail_set(f, EINVAL, "a tag cannot be empty");
	if (r->tag && kept_find(0, r->tag))
		return fail_set(f, EEXIST, "a command with the tag '%s' runs already", r->tag);
	return 0;
}

static char *copy_text(const char *text, size_t max)
{
	size_t len = strnlen(text, max);
	char *copy = agent_alloc(len + 1);

	memcpy(copy, text, len);
	return copy;
}

static void words_add(struct kept *k, const char *word, size_t *left)
{
	if (!*left)
		return;
	k->words[k->nwords] = copy_text(word, *left);
	*left -= strlen(k->words[k->nwords++]);
}

static void words_copy(struct kept *k, const struct request *r)
{
	const char *line[] = {"/bin/sh", "-c", r->shell};
	unsigned n = r->shell ? 3 : r->nargs;
	size_t left = PROTO_WORDS_MAX;

	k->words = agent_alloc((n + 1) * sizeof(*k->words));
	for (unsigned i = 0; i < n; i++)
		words_add(k, r->shell ? line[i] : r->args[i], &left);
	if (r->cwd && strlen(r->cwd) <= left)
		k->cwd = copy_text(r->cwd, left);
}

void kept_add(struct exec *e, const struct request *r)
{
	struct kept *k = &e->kept;
	struct ended *old;

	*k = (struct kept){.kept = true, .linked = true, .pid = (uint32_t)e->tree.main};
	k->tag = r->tag ? copy_text(r->tag, PROTO_TAG_MAX) : NULL;
	words_copy(k, r);
	/* the newest of a number and of a name is meant */
	while ((old = ended_find(k->pid, NULL)) != NULL ||
		(k->tag && (old = ended_find(0, k->tag)) != NULL))
		old->pid = 0;
	TAILQ_INSERT_TAIL(&kept_commands, e, kept.link);
	kept_count++;
}

void kept_remove(struct exec *e)
{
	if (!e->kept.linked)
		return;
	TAILQ_REMOVE(&kept_commands, e, kept.link);
	kept_count--;
	e->kept.linked = false;
	for (unsigned i = 0; i < e->kept.nwords; i++)
		free(e->kept.words[i]);
	free(e->kept.words);
	free(e->kept.cwd);
	free(e->kept.tag);
	e->kept.words = NULL;
	e->kept.cwd = e->kept.tag = NULL;
	e->kept.nwords = 0;
}

void kept_note_end(const struct exec *e)
{
	struct ended *n = &ended[ended_next++ % ENDED_MAX];
	struct proto_out o = {.buf = n->reply, .max = sizeof(n->reply)};

	exec_result(e, &o);
	n->pid = e->kept.pid;
	n->len = o.len;
	n->tag[0] = '\0';
	if (e->kept.tag)
		strcpy(n->tag, e->kept.tag);
}

static void tell(struct stream *s, uint32_t pid, uint32_t flags, const char *tag)
{
	struct proto_started st = {
		.pid = pid, .flags = flags, .tag_len = tag ? (uint32_t)strlen(tag) : 0};
	uint8_t *to = stream_reserve(s, PROTO_STARTED_LEN + st.tag_len);

	/* the first on its channel: there is credit */
	memcpy(to, &st, sizeof(st));
	if (st.tag_len)
		memcpy(to + sizeof(st), tag, st.tag_len);
	stream_commit(s, PROTO_RESULT, PROTO_STARTED_LEN + st.tag_len);
}

void kept_tell(const struct exec *e)
{
	uint32_t flags = 0;

	if (e->master >= 0)
		flags |= PROTO_STARTED_PTY;
	if (e->has_in && !e->in.eof && !e->in.done)
		flags |= PROTO_STARTED_STDIN;
	tell(e->stream, e->kept.pid, flags, e->kept.tag);
}

/* ---- requests ---------------------------------------------------------------------------- */

void attach_request(struct stream *s, unsigned type, struct request *r)
{
	struct exec *e = kept_find(r->pid, r->tag);
	const struct ended *was = e ? NULL : ended_find(r->pid, r->tag);

	(void)type;
	if (was) {
		struct proto_out o = {
			.buf = (uint8_t *)was->reply, .len = was->len, .max = was->len};

		tell(s, was->pid, 0, was->tag);
		stream_reply(s, &o);
	} else if (!e) {
		stream_reply_error(s, ESRCH, "no such command runs");
	} else if (e->stream) {
		stream_reply_error(s, EBUSY, "the command is followed already");
	} else if (e->has_in && e->in.end - e->in.start > PROTO_WINDOW) {
		stream_reply_error(s, EAGAIN, "the command has not read what it was sent before");
	} else {
		exec_follow(e, s, r->limit_out, r->limit_err);
		kept_tell(e);
	}
}

void processes_request(struct stream *s, unsigned type, struct request *r)
{
	struct proto_out o = {.buf = agent_alloc(PROTO_BODY_MAX), .max = PROTO_BODY_MAX};
	const struct exec *e;

	(void)type;
	(void)r;
	TAILQ_FOREACH(e, &kept_commands, kept.link) {
		proto_put_u32(&o, PROTO_T_PID, e->kept.pid);
		if (e->kept.tag)
			proto_put_str(&o, PROTO_T_TAG, e->kept.tag);
		if (e->kept.cwd)
			proto_put_str(&o, PROTO_T_CWD, e->kept.cwd);
		for (unsigned i = 0; i < e->kept.nwords; i++)
			proto_put_str(&o, PROTO_T_ARG, e->kept.words[i]);
	}
	if (o.failed)
		stream_reply_error(s, E2BIG, "more commands than can be told");
	else
		stream_reply(s, &o);
	free(o.buf);
}
