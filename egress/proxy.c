/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy as a whole: its rules, its slots for connections (connection.c), and its messages.
 */
#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "egress/connection_private.h"
#include "egress/limits.h"

void proxy_note_refusal(struct proxy *p, const char *host, uint16_t port, const char *why)
{
	char authority[272], text[512];

	if (!p->note || p->n_noted > LIMIT_PROXY_NOTES)
		return;
	proxy_authority_text(host, port, authority);
	for (unsigned i = 0; i < p->n_noted; i++) {
		if (!strcmp(p->noted[i], authority))
			return;
	}
	if (p->n_noted++ == LIMIT_PROXY_NOTES) {
		p->note(p->user, "more connections were refused");
		return;
	}
	p->noted[p->n_noted - 1] = str_dup(authority);
	snprintf(text, sizeof(text), "refused a connection to %s: %s", authority, why);
	p->note(p->user, text);
}

bool proxy_allows(const struct proxy *p, const struct proxy_head *h, bool *ret_any)
{
	bool found = false;

	*ret_any = false;
	for (size_t i = 0; i < p->n_rules; i++) {
		const struct proxy_rule *r = &p->rules[i];

		if (r->literal != h->literal || !proxy_rule_match(r, h->host, h->port))
			continue;
		found = true;
		*ret_any |= r->private_ok;
	}
	return found;
}

struct proxy_conn *proxy_accept(struct proxy *p, void *stream)
{
	size_t slot = 0;

	while (slot < LIMIT_PROXY_STREAMS && p->conns[slot])
		slot++;
	if (slot == LIMIT_PROXY_STREAMS)
		return NULL;
	return p->conns[slot] = proxy_conn_new(p, stream);
}

int proxy_new(const struct proxy_transport *transport, void *transport_user,
	const struct proxy_spec *spec, struct proxy **ret, struct err *err)
{
	size_t n_rules = spec->n_rules;
	struct proxy *p;
	int rc;

	if (n_rules > LIMIT_PROXY_RULES)
		return err_set(
			err, E2BIG, "more than %d hosts in [network] allow", LIMIT_PROXY_RULES);
	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	p->transport = transport;
	p->transport_user = transport_user;
	p->who = spec->who;
	p->resolve_here = spec->resolve_here;
	p->note = spec->note;
	p->user = spec->user;
	p->rules = calloc(n_rules ? n_rules : 1, sizeof(*p->rules));
	if (!p->rules)
		abort();
	if (n_rules)
		memcpy(p->rules, spec->rules, n_rules * sizeof(*p->rules));
	p->n_rules = n_rules;
	rc = proxy_env_read(&p->env, err);
	if (rc < 0) {
		free(p->rules);
		free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void proxy_free(struct proxy *p)
{
	if (!p)
		return;
	p->transport->stop(p->transport_user);
	for (size_t i = 0; i < LIMIT_PROXY_STREAMS; i++) {
		if (p->conns[i])
			proxy_conn_end(p->conns[i], ECONNABORTED, "the proxy has been stopped");
	}
	for (unsigned i = 0; i < p->n_noted && i < LIMIT_PROXY_NOTES; i++)
		free(p->noted[i]);
	proxy_env_free(&p->env);
	free(p->rules);
	free(p);
}
