/* SPDX-License-Identifier: Apache-2.0 */
/*
 * envd on the pool: finds the guest and the limits of a sandbox for pool/envd/, which itself knows
 * nothing of the pool.
 */
#include <stdlib.h>

#include "pool/api/api_private.h"
#include "pool/envd/envd.h"

static bool api_envd_find(void *user, const char *id, struct envd_target *ret)
{
	struct api *a = user;
	struct pool_sandbox *sb = a->pool ? pool_find(a->pool, id) : NULL;
	struct pool_sandbox_info f;

	if (!sb)
		return false;
	pool_sandbox_info(sb, &f);
	*ret = (struct envd_target){
		.guest = pool_guest(sb),
		.state = pool_state_name(f.state),
		.user = f.user,
		.template_env = f.template_env,
		.env = f.env,
		.exec_timeout_ms = f.exec_timeout_ms,
		.output_bytes = f.output_bytes,
		.exec_memory_bytes = f.exec_memory_bytes,
		.exec_pids = f.exec_pids,
	};
	return true;
}

static void api_envd_kick(void *user, const char *id)
{
	struct api *a = user;
	struct pool_sandbox *sb = a->pool ? pool_find(a->pool, id) : NULL;

	if (sb && pool_guest(sb))
		pool_guest_kick(sb);
}

static const struct envd_ops api_envd_ops = {.find = api_envd_find, .kick = api_envd_kick};

bool api_envd(struct api *a, struct pool_sandbox *sb, struct http_request *rq,
	const struct api_inside *to)
{
	struct pool_sandbox_info f;

	if (!a->envd)
		a->envd = envd_new(a->loop, &api_envd_ops, a);
	pool_sandbox_info(sb, &f);
	return envd_handle(a->envd, f.id, rq, to->path, to->routed);
}
