/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a command ended, read from the agent's reply. The reply comes from the guest, so it is
 * checked.
 */
#include "pool/envd/envd_private.h"

bool envd_end_parse(const struct guest_reply *reply, struct envd_end *end)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	bool has_status = false;
	struct proto_field f;
	int rc, on = 0;

	while ((rc = proto_next(&in, &f)) == 1) {
		switch (f.tag) {
		case PROTO_T_EXIT_CODE:
			rc = proto_u32(&f, &end->exit_code);
			end->exited = has_status = true;
			break;
		case PROTO_T_EXIT_SIGNAL:
			rc = proto_u32(&f, &end->exit_signal);
			has_status = true;
			break;
		case PROTO_T_TIMED_OUT:
		case PROTO_T_OOM:
		case PROTO_T_CUT_OUT:
		case PROTO_T_CUT_ERR:
			rc = proto_bool(&f, &on);
			*(f.tag == PROTO_T_TIMED_OUT               ? &end->timed_out
					: f.tag == PROTO_T_OOM     ? &end->oom
					: f.tag == PROTO_T_CUT_OUT ? &end->cut_out
								   : &end->cut_err) = on;
			break;
		case PROTO_T_TOTAL_OUT:
			rc = proto_u64(&f, &end->total_out);
			break;
		case PROTO_T_TOTAL_ERR:
			rc = proto_u64(&f, &end->total_err);
			break;
		case PROTO_T_DURATION_NS:
			rc = proto_u64(&f, &end->duration_ns);
			break;
		default:
			break;
		}
		if (rc < 0)
			return false;
	}
	return rc == 0 && has_status && end->exit_code <= 255 && end->exit_signal <= 64 &&
		end->exited == !end->exit_signal;
}

void envd_fail_end(struct envd_call *c, const struct envd_end *end)
{
	/* a program that is not there is the request's fault: nothing of the API's is missing */
	if (end->error == ENOENT || end->error == EACCES) {
		c->reason = end->error == ENOENT ? "program_not_found" : "program_not_executable";
		envd_fail(c, ENVD_INVALID, "%s", end->text);
	} else {
		envd_fail_errno(c, end->error, end->text);
	}
}
