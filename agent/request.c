/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing requests by a table of the known tags. A field given twice (but for
 * T_ARG, T_ENV, T_SANDBOX_ENV and T_METADATA) counts by its last; an unknown one is skipped; a known one of the wrong
 * shape is a breach.
 */
#include "agent/request.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum kind { KIND_STRING, KIND_LIST, KIND_U32, KIND_U64, KIND_BOOL };

struct tag_spec {
	uint16_t tag;
	enum kind kind;
	size_t where; /* in struct request */
	uint32_t max; /* of a string */
	size_t count; /* KIND_LIST: of its counter; else of a bool that says it is there; 0: none */
};

#define AT(member) offsetof(struct request, member)

static const struct tag_spec tag_specs[] = {
	{PROTO_T_ARG, KIND_LIST, AT(args), PROTO_BODY_MAX, AT(nargs)},
	{PROTO_T_ENV, KIND_LIST, AT(env), PROTO_BODY_MAX, AT(nenv)},
	{PROTO_T_SANDBOX_ENV, KIND_LIST, AT(sandbox_env), PROTO_BODY_MAX, AT(nsandbox_env)},
	{PROTO_T_METADATA, KIND_LIST, AT(metadata), PROTO_METADATA_MAX, AT(nmetadata)},
	{PROTO_T_ENTRIES, KIND_BOOL, AT(entries), 0, 0},
	{PROTO_T_SHELL, KIND_STRING, AT(shell), PROTO_BODY_MAX, 0},
	{PROTO_T_CWD, KIND_STRING, AT(cwd), PROTO_PATH_MAX, 0},
	{PROTO_T_USER, KIND_STRING, AT(user), 255, 0},
	{PROTO_T_TIMEOUT_MS, KIND_U64, AT(timeout_ms), 0, 0},
	{PROTO_T_LIMIT_OUT, KIND_U64, AT(limit_out), 0, 0},
	{PROTO_T_LIMIT_ERR, KIND_U64, AT(limit_err), 0, 0},
	{PROTO_T_STDIN, KIND_BOOL, AT(stdin_wanted), 0, 0},
	{PROTO_T_MEMORY_MAX, KIND_U64, AT(memory_max), 0, 0},
	{PROTO_T_PIDS_MAX, KIND_U64, AT(pids_max), 0, 0},
	{PROTO_T_PATH, KIND_STRING, AT(path), PROTO_PATH_MAX, 0},
	{PROTO_T_PATH2, KIND_STRING, AT(path2), PROTO_PATH_MAX, 0},
	{PROTO_T_MODE, KIND_U32, AT(mode), 0, AT(has_mode)},
	{PROTO_T_OFFSET, KIND_U64, AT(offset), 0, 0},
	{PROTO_T_LENGTH, KIND_U64, AT(length), 0, 0},
	{PROTO_T_PARENTS, KIND_BOOL, AT(parents), 0, 0},
	{PROTO_T_RECURSIVE, KIND_BOOL, AT(recursive), 0, 0},
	{PROTO_T_CONTEXT, KIND_STRING, AT(context), AGENT_CONTEXT_NAME_MAX, 0},
	{PROTO_T_CODE, KIND_STRING, AT(code), PROTO_BODY_MAX, 0},
	{PROTO_T_LANGUAGE, KIND_STRING, AT(language), 31, 0},
	{PROTO_T_ACTION, KIND_STRING, AT(action), 16, 0},
	{PROTO_T_PORT, KIND_U32, AT(port), 0, AT(has_port)},
	{PROTO_T_REALTIME_NS, KIND_U64, AT(realtime_ns), 0, AT(has_realtime)},
	{PROTO_T_OFFSET_NS, KIND_U64, AT(clock_offset_ns), 0, AT(has_clock_offset)},
	{PROTO_T_MACHINE_ID, KIND_STRING, AT(machine_id), 32, 0},
	{PROTO_T_HOSTNAME, KIND_STRING, AT(hostname), 63, 0},
	{PROTO_T_OOM_GROUP, KIND_BOOL, AT(oom_group), 0, 0},
	{PROTO_T_DETACH, KIND_BOOL, AT(detach), 0, 0},
	{PROTO_T_EXISTING, KIND_BOOL, AT(existing), 0, 0},
	{PROTO_T_KEEP, KIND_BOOL, AT(keep), 0, 0},
	{PROTO_T_TAG, KIND_STRING, AT(tag), PROTO_TAG_MAX, 0},
	{PROTO_T_PID, KIND_U32, AT(pid), 0, 0},
};

static char *field_string(const struct proto_field *f, uint32_t max)
{
	char *s;

	if (f->len > max)
		return NULL;
	s = agent_alloc((size_t)f->len + 1);
	if (proto_str(f, s, max) < 0) {
		free(s);
		return NULL;
	}
	return s;
}

static int field_list(const struct proto_field *f, char ***list, unsigned *count)
{
	char *s;

	if (*count >= AGENT_ARGS_MAX)
		return -1;
	s = field_string(f, PROTO_BODY_MAX);
	if (!s)
		return -1;
	if (!*list)
		*list = agent_alloc((AGENT_ARGS_MAX + 1) * sizeof(**list));
	(*list)[(*count)++] = s;
	return 0;
}

static int field_store(struct request *r, const struct tag_spec *t, const struct proto_field *f)
{
	void *at = (uint8_t *)r + t->where, *count = (uint8_t *)r + t->count;
	int res = 0;

	switch (t->kind) {
	case KIND_LIST:
		return field_list(f, at, count);
	case KIND_STRING: {
		char *s = field_string(f, t->max);

		if (!s)
			return -1;
		free(*(char **)at);
		*(char **)at = s;
		return 0;
	}
	case KIND_U32:
		res = proto_u32(f, at);
		break;
	case KIND_U64:
		res = proto_u64(f, at);
		break;
	case KIND_BOOL:
		res = proto_bool(f, at);
		break;
	}
	if (res == 0 && t->count)
		*(bool *)count = true;
	return res;
}

static int field_special(struct request *r, const struct proto_field *f)
{
	uint16_t size[2];

	if (f->tag == PROTO_T_PTY) {
		if (f->len != sizeof(size))
			return -1;
		memcpy(size, f->data, sizeof(size));
		r->rows = size[0];
		r->cols = size[1];
		r->has_pty = true;
	} else if (f->tag == PROTO_T_ENTROPY) {
		if (f->len < 32 || f->len > sizeof(r->entropy))
			return -1;
		memcpy(r->entropy, f->data, f->len);
		r->entropy_len = f->len;
	}
	return 0;
}

struct request *request_parse(const uint8_t *body, uint32_t len, const char **ret_what)
{
	struct request *r = agent_alloc(sizeof(*r));
	struct proto_in in = {.buf = body, .len = len};
	static char what[64];
	struct proto_field f;
	int res;

	r->limit_out = r->limit_err = r->length = UINT64_MAX;
	while ((res = proto_next(&in, &f)) > 0) {
		const struct tag_spec *t = NULL;

		for (size_t i = 0; i < sizeof(tag_specs) / sizeof(tag_specs[0]); i++)
			if (tag_specs[i].tag == f.tag)
				t = &tag_specs[i];
		if ((t ? field_store(r, t, &f) : field_special(r, &f)) < 0) {
			snprintf(what, sizeof(what), "field %u of a wrong shape", f.tag);
			*ret_what = what;
			request_free(r);
			return NULL;
		}
	}
	if (res < 0) {
		*ret_what = "a field past the end of the body";
		request_free(r);
		return NULL;
	}
	return r;
}

static void list_free(char **list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		free(list[i]);
	free(list);
}

void request_free(struct request *r)
{
	if (!r)
		return;
	list_free(r->args, r->nargs);
	list_free(r->env, r->nenv);
	list_free(r->sandbox_env, r->nsandbox_env);
	list_free(r->metadata, r->nmetadata);
	free(r->shell);
	free(r->cwd);
	free(r->user);
	free(r->path);
	free(r->path2);
	free(r->context);
	free(r->code);
	free(r->action);
	free(r->language);
	free(r->machine_id);
	free(r->hostname);
	free(r->tag);
	explicit_bzero(r->entropy, sizeof(r->entropy));
	free(r);
}
