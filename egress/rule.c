/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules: which hosts and addresses a machine may reach, in a bake and in the pool. Names are
 * compared in one form (lower case, no dot at the end), addresses as inet_ntop(3) writes them. What
 * getaddrinfo(3) would take for an address in another spelling ("127.1", "0x7f000001") is neither
 * name nor literal here. Address ranges are those of the IANA special-purpose registries.
 */
#include "egress/head.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Would inet_aton(3) take a name that ends in this label for a number? */
static bool last_label_numeric(const char *host)
{
	const char *label = strrchr(host, '.');

	label = label ? label + 1 : host;
	if (label[0] == '0' && label[1] == 'x')
		return true;
	return label[0] && !label[strspn(label, "0123456789")];
}

static bool name_valid(const char *host)
{
	size_t label = 0;

	if (last_label_numeric(host))
		return false;
	for (const char *p = host;; p++) {
		if (*p == '.' || !*p) {
			if (label < 1 || label > 63)
				return false;
			label = 0;
			if (!*p)
				return true;
			continue;
		}
		if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '-' &&
			*p != '_')
			return false;
		label++;
	}
}

bool proxy_host_parse(const char *text, size_t len, char ret[static 256], bool *ret_literal)
{
	struct in6_addr addr;

	if (len < 1 || len > 254)
		return false;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c <= 0x20 || c >= 0x7f)
			return false;
		ret[i] = (char)tolower(c);
	}
	ret[len] = '\0';
	if (inet_pton(AF_INET, ret, &addr) == 1) {
		*ret_literal = true;
		return inet_ntop(AF_INET, &addr, ret, 256) != NULL;
	}
	if (inet_pton(AF_INET6, ret, &addr) == 1) {
		*ret_literal = true;
		return inet_ntop(AF_INET6, &addr, ret, 256) != NULL;
	}
	if (ret[len - 1] == '.')
		ret[--len] = '\0';
	*ret_literal = false;
	return len <= 253 && name_valid(ret);
}

static bool parse_port(const char *p, size_t len, uint16_t *ret)
{
	unsigned long n = 0;

	if (len < 1 || len > 5)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		n = n * 10 + (unsigned long)(p[i] - '0');
	}
	if (n < 1 || n > 65535)
		return false;
	*ret = (uint16_t)n;
	return true;
}

bool proxy_authority_parse(
	const char *text, size_t len, char host[static 256], bool *ret_literal, uint16_t *ret_port)
{
	const char *colon;
	size_t n;

	if (!text || !len)
		return false;
	if (text[0] == '[') {
		const char *end = memchr(text, ']', len);

		if (!end || !memchr(text, ':', (size_t)(end - text)))
			return false;
		n = (size_t)(end - text) - 1;
		if (!proxy_host_parse(text + 1, n, host, ret_literal) || !*ret_literal)
			return false;
		if (n + 2 == len)
			return true;
		return end[1] == ':' && parse_port(end + 2, len - n - 3, ret_port);
	}
	colon = memrchr(text, ':', len);
	n = colon ? (size_t)(colon - text) : len;
	if (colon && memchr(text, ':', n))
		return false;
	if (colon && !parse_port(colon + 1, len - n - 1, ret_port))
		return false;
	return proxy_host_parse(text, n, host, ret_literal);
}

void proxy_authority_text(const char *host, uint16_t port, char ret[static 272])
{
	snprintf(ret, 272, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
}

/* ---- rules ------------------------------------------------------------------------------ */

/* The bytes of the address @host; how many, or 0. */
static size_t address_bytes(const char *host, uint8_t ret[static 16])
{
	if (inet_pton(AF_INET, host, ret) == 1)
		return 4;
	return inet_pton(AF_INET6, host, ret) == 1 ? 16 : 0;
}

/* Are the first @bits of both the same? */
static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	if (memcmp(a, b, bytes) != 0)
		return false;
	return !rest || !((a[bytes] ^ b[bytes]) >> (8 - rest));
}

/* "address/bits", of which the bits behind are zero. */
static bool network_parse(const char *text, struct proxy_rule *r)
{
	const char *slash = strchr(text, '/');
	uint8_t address[16];
	unsigned bits = 0;
	size_t size;

	if (!slash || !slash[1] || strlen(slash + 1) > 3 ||
		slash[1 + strspn(slash + 1, "0123456789")] ||
		!proxy_host_parse(text, (size_t)(slash - text), r->host, &r->literal) ||
		!r->literal)
		return false;
	for (const char *p = slash + 1; *p; p++)
		bits = bits * 10 + (unsigned)(*p - '0');
	size = address_bytes(r->host, address);
	if (bits > size * 8)
		return false;
	for (unsigned bit = bits; bit < size * 8; bit++) {
		if (address[bit / 8] >> (7 - bit % 8) & 1)
			return false;
	}
	r->network = true;
	r->prefix_bits = (uint8_t)bits;
	return true;
}

int proxy_rule_parse(const char *text, struct proxy_rule *ret, struct err *err)
{
	struct proxy_rule r = {0};
	const char *at = text;
	size_t len = strlen(text);
	bool good;

	if (len > 2 && at[0] == '*' && at[1] == '.') {
		r.subdomains = true;
		at += 2;
		len -= 2;
	}
	/* an IPv6 address without brackets has no port */
	good = network_parse(at, &r) || proxy_host_parse(at, len, r.host, &r.literal) ||
		proxy_authority_parse(at, len, r.host, &r.literal, &r.port);
	if (!good || (r.subdomains && r.literal))
		return err_set(err, EINVAL,
			"\"%.200s\" names no host: write host, host:port, *.domain, an address or "
			"a "
			"network (192.0.2.0/24)",
			text);
	*ret = r;
	return 0;
}

void proxy_rule_text(const struct proxy_rule *r, char ret[static PROXY_RULE_TEXT])
{
	bool v6 = r->literal && strchr(r->host, ':');

	if (r->network)
		snprintf(ret, PROXY_RULE_TEXT, "%s/%u", r->host, r->prefix_bits);
	else if (r->port)
		snprintf(ret, PROXY_RULE_TEXT,
			v6                      ? "[%s]:%u"
				: r->subdomains ? "*.%s:%u"
						: "%s:%u",
			r->host, r->port);
	else
		snprintf(ret, PROXY_RULE_TEXT,
			v6                      ? "[%s]"
				: r->subdomains ? "*.%s"
						: "%s",
			r->host);
}

bool proxy_rule_inside(const struct proxy_rule *r)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (!r->literal || r->network)
		return false;
	if (inet_pton(AF_INET, r->host, &in.sin_addr) == 1)
		return proxy_address_refused((struct sockaddr *)&in) != NULL;
	if (inet_pton(AF_INET6, r->host, &in6.sin6_addr) == 1)
		return proxy_address_refused((struct sockaddr *)&in6) != NULL;
	return true;
}

bool proxy_rule_match(const struct proxy_rule *r, const char *host, uint16_t port)
{
	size_t n = strlen(host), domain = strlen(r->host);
	uint8_t mine[16], other[16];

	if (r->port ? port != r->port : port != 80 && port != 443)
		return false;
	if (r->network) {
		size_t size = address_bytes(r->host, mine);

		return size && address_bytes(host, other) == size &&
			same_bits(mine, other, r->prefix_bits);
	}
	if (!r->subdomains)
		return !strcmp(host, r->host);
	return n > domain + 1 && host[n - domain - 1] == '.' && !strcmp(host + n - domain, r->host);
}

/* ---- addresses -------------------------------------------------------------------------- */

/* Is it one that this host has? From here it leads behind whatever guards it from outside. */
static const char *own_refused(int family, const void *address)
{
	struct ifaddrs *all = NULL;
	bool own = false;

	if (getifaddrs(&all) < 0)
		return "perhaps the host's own";
	for (const struct ifaddrs *i = all; i && !own; i = i->ifa_next) {
		struct sockaddr_in in;
		struct sockaddr_in6 in6;

		if (!i->ifa_addr || i->ifa_addr->sa_family != family)
			continue;
		if (family == AF_INET) {
			memcpy(&in, i->ifa_addr, sizeof(in));
			own = !memcmp(&in.sin_addr, address, sizeof(in.sin_addr));
		} else {
			memcpy(&in6, i->ifa_addr, sizeof(in6));
			own = !memcmp(&in6.sin6_addr, address, sizeof(in6.sin6_addr));
		}
	}
	freeifaddrs(all);
	return own ? "the host's own" : NULL;
}

static const char *v4_refused(uint32_t a)
{
	static const struct {
		uint32_t net;
		int bits;
		const char *what;
	} nets[] = {
		{0x00000000, 8, "unspecified"},
		{0x0a000000, 8, "private"},
		{0x64400000, 10, "shared"},
		{0x7f000000, 8, "loopback"},
		{0xa9fe0000, 16, "link-local"},
		{0xac100000, 12, "private"},
		{0xc0000000, 24, "reserved"},
		{0xc0000200, 24, "for documentation"},
		{0xc0586300, 24, "reserved"},
		{0xc0a80000, 16, "private"},
		{0xc6120000, 15, "for benchmarks"},
		{0xc6336400, 24, "for documentation"},
		{0xcb007100, 24, "for documentation"},
		{0xe0000000, 4, "multicast"},
		{0xf0000000, 4, "reserved"},
	};

	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
		if (!((a ^ nets[i].net) >> (32 - nets[i].bits)))
			return nets[i].what;
	}
	a = htonl(a);
	return own_refused(AF_INET, &a);
}

static const char *v6_refused(const uint8_t a[static 16])
{
	static const struct {
		uint8_t net[16];
		int bits;
		int v4_at; /* ≥ 0: an IPv4 address lies there, and is what counts */
		const char *what;
	} nets[] = {
		{{0}, 128, -1, "unspecified"},
		{{[15] = 1}, 128, -1, "loopback"},
		{{[10] = 0xff, 0xff}, 96, 12, NULL}, /* mapped */
		{{0}, 96, 12, NULL}, /* compatible */
		{{0x00, 0x64, 0xff, 0x9b}, 96, 12, NULL}, /* NAT64, RFC 6052 */
		{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, -1, "private"}, /* NAT64, RFC 8215 */
		{{0x01, 0x00}, 64, -1, "discarded"},
		{{0x20, 0x01, 0x00, 0x00}, 32, -1, "a tunnel"}, /* Teredo */
		{{0x20, 0x01, 0x0d, 0xb8}, 32, -1, "for documentation"},
		{{0x20, 0x02}, 16, 2, NULL}, /* 6to4 */
		{{0xfc}, 7, -1, "private"},
		{{0xfe, 0x80}, 10, -1, "link-local"},
		{{0xfe, 0xc0}, 10, -1, "private"},
		{{0xff}, 8, -1, "multicast"},
	};

	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
		int bytes = nets[i].bits / 8, rest = nets[i].bits % 8;
		const uint8_t *v4;

		if (memcmp(a, nets[i].net, (size_t)bytes) != 0)
			continue;
		if (rest && ((a[bytes] ^ nets[i].net[bytes]) >> (8 - rest)))
			continue;
		if (nets[i].v4_at < 0)
			return nets[i].what;
		v4 = a + nets[i].v4_at;
		return v4_refused((uint32_t)v4[0] << 24 | (uint32_t)v4[1] << 16 |
			(uint32_t)v4[2] << 8 | v4[3]);
	}
	return own_refused(AF_INET6, a);
}

const char *proxy_address_refused(const struct sockaddr *sa)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (sa->sa_family == AF_INET) {
		memcpy(&in, sa, sizeof(in));
		return v4_refused(ntohl(in.sin_addr.s_addr));
	}
	if (sa->sa_family == AF_INET6) {
		memcpy(&in6, sa, sizeof(in6));
		return v6_refused(in6.sin6_addr.s6_addr);
	}
	return "of an unknown kind";
}
