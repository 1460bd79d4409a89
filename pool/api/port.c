/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ports of sandboxes: who may reach them, and where they are. Whoever knows a sandbox's id may
 * reach its ports, as with E2B. Where the sandbox's create asked for it, its traffic token is
 * needed, or the key that the sandbox belongs to.
 */
#include <string.h>
#include <strings.h>

#include "pool/api/api_private.h"
#include "pool/relay/relay.h"
#include "pool/api/limits.h"

static void refuse(struct http_request *rq, const char *id, bool sent)
{
	http_reply(rq, 403,
		json_pack("{s:s, s:s, s:i, s:s}", "sandboxId", id, "message",
			sent ? "Sandbox is secured with traffic access token. Provided token in "
			       "header "
			       "'e2b-traffic-access-token' is invalid"
			     : "Sandbox is secured with traffic access token. Token header "
			       "'e2b-traffic-access-token' is missing",
			"code", 403, "header", "e2b-traffic-access-token"));
}

bool api_port_open(struct api *a, struct http_request *rq, const struct api_inside *to)
{
	const char *token = http_header(rq, "E2b-Traffic-Access-Token");
	const char *text = http_header(rq, "X-API-Key");
	struct pool_sandbox *sb = pool_find(a->pool, to->id);
	const struct config_key *key;
	struct pool_sandbox_info f;

	if (to->port < 1 || to->port > 65535) {
		api_error(rq, 400, "a port is a number from 1 to 65535");
		return false;
	}
	if (!sb)
		return true; /* that it is not there is said to everybody */
	pool_sandbox_info(sb, &f);
	if (!f.guarded_ports || api_token_is(a, to->id, token))
		return true;
	key = text && strlen(text) <= LIMIT_POOL_KEY_TEXT ? config_find_key(a->config, text) : NULL;
	if (key && !strcmp(key->name, f.key))
		return true;
	refuse(rq, to->id, token != NULL);
	return false;
}

static void port_kick(void *user, const char *id)
{
	struct api *a = user;
	struct pool_sandbox *sb = a->pool ? pool_find(a->pool, id) : NULL;

	if (sb && pool_guest(sb))
		pool_guest_kick(sb);
}

/* A key of this pool's in an Authorization that was not asked for. */
static bool port_is_ours(void *user, const char *value)
{
	const struct api *a = user;

	if (strncasecmp(value, "Bearer ", 7))
		return false;
	value += 7;
	value += strspn(value, " ");
	return strlen(value) <= LIMIT_POOL_KEY_TEXT && config_find_key(a->config, value);
}

void api_port(struct api *a, struct pool_sandbox *sb, struct http_request *rq, unsigned port)
{
	static const struct relay_ops ops = {.kick = port_kick, .is_ours = port_is_ours};
	struct pool_sandbox_info f;

	if (!a->relays)
		a->relays = relays_new(a->loop, &ops, a);
	pool_sandbox_info(sb, &f);
	relay_request(a->relays, rq,
		&(struct relay_target){.id = f.id,
			.guest = pool_guest(sb),
			.port = port,
			.mask_host = f.mask_host});
}
