/* SPDX-License-Identifier: Apache-2.0 */
/* List: all commands that the agent of a sandbox keeps, whoever began them. */
#include "pool/envd/envd_private.h"

static json_t *text_json(const struct proto_field *f)
{
	return json_lossy(f->data, f->len);
}

/* One field of a command: @one is the object of the newest, NULL before the first. */
static int list_field(json_t *list, json_t **one, const struct proto_field *f)
{
	json_t *config = json_object_get(*one, "config");
	uint32_t pid;

	if (f->tag == PROTO_T_PID) {
		if (proto_u32(f, &pid) < 0 || json_array_size(list) >= PROTO_KEPT_MAX)
			return -1;
		*one = json_pack(
			"{s:{s:s,s:[]},s:I}", "config", "cmd", "", "args", "pid", (json_int_t)pid);
		return json_array_append_new(list, *one);
	}
	if (!*one)
		return -1;
	if (f->tag == PROTO_T_TAG)
		return json_object_set_new(*one, "tag", text_json(f));
	if (f->tag == PROTO_T_CWD)
		return json_object_set_new(config, "cwd", text_json(f));
	if (f->tag != PROTO_T_ARG)
		return 0;
	if (!json_string_length(json_object_get(config, "cmd")))
		return json_object_set_new(config, "cmd", text_json(f));
	return json_array_append_new(json_object_get(config, "args"), text_json(f));
}

static void list_done(void *user, const struct guest_reply *reply)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	cleanup_json json_t *list = json_array();
	struct envd_call *c = user;
	json_t *one = NULL;
	struct proto_field f;
	int rc = 0;

	while (!reply->error && (rc = proto_next(&in, &f)) == 1)
		if (list_field(list, &one, &f) < 0)
			break;
	if (reply->error)
		envd_fail_errno(c, reply->error, reply->text);
	else if (rc)
		envd_fail(c, ENVD_INTERNAL, "the agent's list of commands is broken");
	else
		envd_reply(c, 200, json_pack("{s:O}", "processes", list));
	envd_call_release(c);
}

void envd_process_list(struct envd_call *c)
{
	static const struct guest_stream_ops ops = {.done = list_done};

	envd_request(c, PROTO_PROCESSES, &(struct proto_out){0}, &ops, c);
}
