/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's bytes to the bake's proxy: the head's parser, what is sent on, and rules. What must hold:
 * what is sent on is a head again with one Host, that of the URL, and it asks for the same host and
 * the same length of body.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "egress/head.h"

static void check_sent_on(const char *head, size_t len, const struct proxy_head *h)
{
	size_t n;
	char *text = proxy_head_rewrite(head, len, h, true, NULL, &n);
	struct proxy_head again;
	const char *why;

	if (proxy_head_end(text, n) != n || proxy_head_parse(text, n, &again, &why) != 0)
		abort();
	if (strcmp(again.host, h->host) != 0 || again.port != h->port ||
		again.body_bytes != h->body_bytes || again.literal != h->literal)
		abort();
	free(text);
	text = proxy_head_rewrite(head, len, h, false, NULL, &n);
	if (proxy_head_end(text, n) != n || !memmem(text, n, "\r\nHost: ", 8))
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t end = proxy_head_end((const char *)data, size);
	struct proxy_head h;
	struct proxy_rule r;
	const char *why;
	char *text, authority[272], host[256];
	bool literal;
	uint16_t port = 0;

	if (end && proxy_head_parse((const char *)data, end, &h, &why) == 0) {
		proxy_authority_text(h.host, h.port, authority);
		if (!proxy_authority_parse(authority, strlen(authority), host, &literal, &port) ||
			strcmp(host, h.host) != 0 || port != h.port)
			abort();
		if (!h.connect)
			check_sent_on((const char *)data, end, &h);
	}
	proxy_head_status((const char *)data, size);
	text = strndup((const char *)data, size);
	if (text && proxy_rule_parse(text, &r, NULL) == 0) {
		char again[PROXY_RULE_TEXT];
		struct proxy_rule same;

		if (r.private_ok ||
			(!r.subdomains && !proxy_rule_match(&r, r.host, r.port ? r.port : 80)))
			abort();
		proxy_rule_text(&r, again);
		if (proxy_rule_parse(again, &same, NULL) < 0 || strcmp(r.host, same.host) != 0 ||
			r.port != same.port || r.subdomains != same.subdomains ||
			r.literal != same.literal || r.network != same.network ||
			r.prefix_bits != same.prefix_bits)
			abort();
	}
	free(text);
	return 0;
}
