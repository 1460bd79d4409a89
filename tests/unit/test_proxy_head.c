/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers of the bake's proxy: rules, addresses, heads, the host's environment. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "egress/proxy.h"
#include "egress/head.h"
#include "tests/unit/tap.h"

/* ---- rules ------------------------------------------------------------------------------ */

static void test_rules(void)
{
	static const struct {
		const char *text, *host; /* NULL: refused */
		unsigned port;
		bool sub, literal;
		const char *again; /* its text; NULL: as it was */
	} t[] = {
		{"mirror.example.org", "mirror.example.org", 0, false, false, NULL},
		{"Mirror.Example.ORG.", "mirror.example.org", 0, false, false,
			"mirror.example.org"},
		{"mirror.example.org:8080", "mirror.example.org", 8080, false, false, NULL},
		{"*.example.org", "example.org", 0, true, false, NULL},
		{"*.example.org:81", "example.org", 81, true, false, NULL},
		{"localhost", "localhost", 0, false, false, NULL},
		{"10.0.0.8:8080", "10.0.0.8", 8080, false, true, NULL},
		{"2001:DB8:0::1", "2001:db8::1", 0, false, true, "[2001:db8::1]"},
		{"[2001:db8::1]:443", "2001:db8::1", 443, false, true, NULL},
		{"[::1]", "::1", 0, false, true, NULL},
		{"192.0.2.0/24", "192.0.2.0", 0, false, true, NULL},
		{"0.0.0.0/0", "0.0.0.0", 0, false, true, NULL},
		{"2001:DB8::/32", "2001:db8::", 0, false, true, "2001:db8::/32"},
		{"private", "private", 0, false, false, NULL},
		{.text = ""},
		{.text = "example.org private"},
		{.text = "private example.org"},
		{.text = " example.org"},
		{.text = "example.org "},
		{.text = "example.org\tprivate"},
		{.text = "example.org,private"},
		{.text = "example.org\nprivate"},
		{.text = "192.0.2.1/24"},
		{.text = "192.0.2.0/33"},
		{.text = "192.0.2.0/"},
		{.text = "192.0.2.0/+8"},
		{.text = "192.0.2.0/24:80"},
		{.text = "*.192.0.2.0/24"},
		{.text = "example.org/24"},
		{.text = "*"},
		{.text = "*."},
		{.text = "*.10.0.0.1"},
		{.text = "*.*.example.org"},
		{.text = "a..b"},
		{.text = ".example.org"},
		{.text = "example.org:"},
		{.text = "example.org:0"},
		{.text = "example.org:65536"},
		{.text = "example.org:80:80"},
		{.text = "example.org/path"},
		{.text = "http://example.org"},
		{.text = "user@example.org"},
		{.text = "example.org public"},
		{.text = "example.org private private"},
		{.text = "127.1"},
		{.text = "2130706433"},
		{.text = "0x7f.0.0.0x1"},
		{.text = "[10.0.0.8]:80"},
		{.text = "[::1]x"},
		{.text = "fe80::1%eth0"},
		{.text = "b\303\274cher.example"},
	};
	struct proxy_rule r;
	char text[PROXY_RULE_TEXT];
	struct err err;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		int rc = proxy_rule_parse(t[i].text, &r, &err);

		if (!t[i].host) {
			is_int(rc, -EINVAL, "rule \"%s\" is refused", t[i].text);
			continue;
		}
		ok(rc == 0 && !strcmp(r.host, t[i].host) && r.port == t[i].port &&
				r.subdomains == t[i].sub && r.literal == t[i].literal &&
				!r.private_ok,
			"rule \"%s\"", t[i].text);
		proxy_rule_text(&r, text);
		is_str(text, t[i].again ? t[i].again : t[i].text,
			"a rule's text is the rule again");
	}
}

static void test_match(void)
{
	static const struct {
		const char *rule, *host;
		unsigned port;
		bool match;
	} t[] = {
		{"example.org", "example.org", 80, true},
		{"example.org", "example.org", 443, true},
		{"example.org", "example.org", 8080, false},
		{"example.org", "www.example.org", 80, false},
		{"example.org", "example.orgs", 80, false},
		{"example.org:8080", "example.org", 8080, true},
		{"example.org:8080", "example.org", 80, false},
		{"*.example.org", "www.example.org", 443, true},
		{"*.example.org", "a.b.example.org", 443, true},
		{"*.example.org", "example.org", 443, false},
		{"*.example.org", "badexample.org", 443, false},
		{"*.example.org", ".example.org", 443, false},
		{"127.0.0.1:99", "127.0.0.1", 99, true},
		{"192.0.2.0/25", "192.0.2.127", 80, true},
		{"192.0.2.0/25", "192.0.2.128", 80, false},
		{"192.0.2.0/25", "192.0.2.1", 81, false},
		{"192.0.2.0/25", "2001:db8::1", 80, false},
		{"2001:db8::/33", "2001:db8:7fff::1", 443, true},
		{"2001:db8::/33", "2001:db8:8000::1", 443, false},
		{"0.0.0.0/0", "203.0.113.9", 443, true},
		{"[::1]:99", "::1", 99, true},
	};
	struct proxy_rule r;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		proxy_rule_parse(t[i].rule, &r, NULL);
		ok(proxy_rule_match(&r, t[i].host, (uint16_t)t[i].port) == t[i].match,
			"%s and %s:%u", t[i].rule, t[i].host, t[i].port);
	}
}

static void test_addresses(void)
{
	static const struct {
		const char *text;
		bool refused;
	} t[] = {
		{"127.0.0.1", true},
		{"127.255.255.255", true},
		{"128.0.0.1", false},
		{"0.0.0.0", true},
		{"0.1.2.3", true},
		{"10.0.0.1", true},
		{"9.255.255.255", false},
		{"11.0.0.0", false},
		{"172.16.0.1", true},
		{"172.31.255.255", true},
		{"172.32.0.0", false},
		{"172.15.255.255", false},
		{"192.168.1.1", true},
		{"192.167.255.255", false},
		{"100.64.0.1", true},
		{"100.127.255.255", true},
		{"100.63.255.255", false},
		{"100.128.0.0", false},
		{"169.254.169.254", true},
		{"169.253.0.1", false},
		{"224.0.0.1", true},
		{"239.255.255.255", true},
		{"255.255.255.255", true},
		{"240.0.0.1", true},
		{"223.255.255.255", false},
		{"192.0.2.1", true},
		{"198.18.0.1", true},
		{"1.1.1.1", false},
		{"::", true},
		{"::1", true},
		{"::2", true},
		{"::ffff:127.0.0.1", true},
		{"::ffff:10.0.0.1", true},
		{"::ffff:1.1.1.1", false},
		{"::10.0.0.1", true},
		{"64:ff9b::7f00:1", true},
		{"64:ff9b::a9fe:a9fe", true},
		{"64:ff9b::101:101", false},
		{"64:ff9b:1::1", true},
		{"2002:7f00:1::", true},
		{"2002:a00:1::", true},
		{"2002:101:101::", false},
		{"2001::1", true},
		{"2001:db8::1", true},
		{"2606:4700::1111", false},
		{"fe80::1", true},
		{"febf::1", true},
		{"fec0::1", true},
		{"fc00::1", true},
		{"fdff::1", true},
		{"fe00::1", false},
		{"ff02::1", true},
		{"100::1", true},
		{"101::1", false},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct sockaddr_in in = {.sin_family = AF_INET};
		struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
		const struct sockaddr *sa = (struct sockaddr *)&in;

		if (inet_pton(AF_INET, t[i].text, &in.sin_addr) != 1) {
			inet_pton(AF_INET6, t[i].text, &in6.sin6_addr);
			sa = (struct sockaddr *)&in6;
		}
		ok((proxy_address_refused(sa) != NULL) == t[i].refused, "%s is %s", t[i].text,
			t[i].refused ? "refused" : "public");
	}
}

static bool refused4(const char *text)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	inet_pton(AF_INET, text, &in.sin_addr);
	return proxy_address_refused((struct sockaddr *)&in) != NULL;
}

static bool refused6(const char *text)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	inet_pton(AF_INET6, text, &in6.sin6_addr);
	return proxy_address_refused((struct sockaddr *)&in6) != NULL;
}

/* An address that is public and the host's own leads to what listens there for the host alone. */
static void test_own_address(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct ifreq ifr = {.ifr_name = "lo"};
	int fd;

	ok(!refused4("9.9.9.9") && !refused6("::ffff:9.9.9.9"), "a public address");
	if (unshare(CLONE_NEWNET) < 0) {
		tap_skip("no network of its own may be made here");
		return;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, "9.9.9.9", &in.sin_addr);
	memcpy(&ifr.ifr_addr, &in, sizeof(in));
	ok(ioctl(fd, SIOCSIFADDR, &ifr) == 0, "an address is given to the host");
	close(fd);
	ok(refused4("9.9.9.9"), "an address of the host's is refused");
	ok(refused6("::ffff:9.9.9.9"), "in its other spelling, too");
	ok(!refused4("9.9.9.8"), "the neighbour of the host's address is not refused");
}

/* ---- heads ------------------------------------------------------------------------------ */

static void test_heads(void)
{
	static const struct {
		const char *head;
		int status;
		const char *host;
		unsigned port;
		const char *rewritten;
	} t[] = {
		{"CONNECT Example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n", 0, "example.org", 443,
			NULL},
		{"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", 0, "::1", 443, NULL},
		{"CONNECT a.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 0,
			"a.example", 443, NULL},
		{"GET http://a.example/x?y=1 HTTP/1.1\r\nHost: evil\r\nProxy-Connection: "
		 "keep-alive\r\n"
		 "Connection: close, X-Secret\r\nX-Secret: 1\r\nAccept: */*\r\n\r\n",
			0, "a.example", 80,
			"GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n"
			"Connection: close\r\n\r\n"},
		{"GET HTTP://A.example:8080 HTTP/1.0\r\n\r\n", 0, "a.example", 8080,
			"GET / HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n"},
		{"GET http://a.example?q HTTP/1.1\r\n\r\n", 0, "a.example", 80,
			"GET /?q HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"},
		{"POST http://[::1]:81/ HTTP/1.1\r\nContent-Length: 5\r\nConnection: "
		 "Content-Length\r\n"
		 "Upgrade: h2c\r\nTE: x\r\nProxy-Authorization: Basic x\r\n\r\n",
			0, "::1", 81,
			"POST / HTTP/1.1\r\nHost: [::1]:81\r\nContent-Length: 5\r\n"
			"Connection: close\r\n\r\n"},
		{"\r\n\r\n", 400, NULL, 0, NULL},
		{"hello\r\n\r\n", 400, NULL, 0, NULL},
		{"GET / HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/2.0\r\n\r\n", 505, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/1.10\r\n\r\n", 505, NULL, 0, NULL},
		{"GET https://a.example/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET ftp://a.example/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http:///x HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://u@a.example/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/#f HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/ x HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://127.1/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://0x7f000001/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example:x/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"G(T http://a.example/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"CONNECT a.example HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"CONNECT http://a.example/ HTTP/1.1\r\n\r\n", 400, NULL, 0, NULL},
		{"CONNECT a.example:443 HTTP/1.1\r\nBad Name: x\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/1.1\r\nX: a\r\n folded\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/1.1\r\nX : a\r\n\r\n", 400, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
			400, NULL, 0, NULL},
		{"GET http://a.example/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400, NULL, 0,
			NULL},
		{"GET http://a.example/ HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400, NULL, 0,
			NULL},
		{"PUT http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, NULL,
			0, NULL},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		size_t len = strlen(t[i].head), out;
		const char *why = NULL;
		struct proxy_head h;
		int status = proxy_head_parse(t[i].head, len, &h, &why);
		char *text;

		is_int(status, t[i].status, "head %zu: status", i);
		if (status) {
			ok(why && *why, "head %zu: a reason", i);
			continue;
		}
		ok(!strcmp(h.host, t[i].host) && h.port == t[i].port, "head %zu: host and port", i);
		if (!t[i].rewritten)
			continue;
		text = proxy_head_rewrite(t[i].head, len, &h, false, NULL, &out);
		is_str(text, t[i].rewritten, "head %zu: sent on", i);
		free(text);
		text = proxy_head_rewrite(t[i].head, len, &h, true, "Basic dTpw", &out);
		has_str(text, " http://", "head %zu: in absolute form", i);
		has_str(text, "\r\nProxy-Authorization: Basic dTpw\r\n", "head %zu: with auth", i);
		free(text);
	}
	is_int(proxy_head_status("HTTP/1.1 200 OK\r\n\r\n", 19), 200, "a response's status");
	is_int(proxy_head_status("HTTP/1.1 2x0 OK\r\n\r\n", 19), -1, "a broken one");
	is_int(proxy_head_status("HTTP/1", 6), -1, "a short one");
}

static void no_environment(void)
{
	static const char *const names[] = {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY",
		"HTTPS_PROXY", "NO_PROXY", "all_proxy", "ALL_PROXY"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

static void test_env(void)
{
	struct proxy_env env;
	struct err err;

	setenv("https_proxy", "http://us%65r:p%40ss@Proxy.example:3128/", 1);
	setenv("no_proxy", "localhost, .internal.example,10.0.0.1,*.x.example:81", 1);
	is_int(proxy_env_read(&env, &err), 0, "the environment is read");
	is_str(env.https.host, "proxy.example", "the proxy's host");
	is_int(env.https.port, 3128, "the upstream proxy's port is read");
	is_str(env.https.auth, "Basic dXNlcjpwQHNz",
		"the upstream proxy's user and password are read");
	ok(proxy_env_for(&env, true, "a.example", 443) == &env.https, "CONNECT goes through it");
	ok(!proxy_env_for(&env, false, "a.example", 80), "http does not");
	ok(!proxy_env_for(&env, true, "localhost", 443), "no_proxy: a host");
	ok(!proxy_env_for(&env, true, "a.internal.example", 443), "no_proxy: below a domain");
	ok(proxy_env_for(&env, true, "ainternal.example", 443), "no_proxy: whole labels");
	ok(!proxy_env_for(&env, true, "10.0.0.1", 443), "no_proxy: an address");
	ok(!proxy_env_for(&env, true, "y.x.example", 81), "no_proxy: with a port");
	ok(proxy_env_for(&env, true, "y.x.example", 443), "no_proxy: with another port");
	proxy_env_free(&env);
	setenv("https_proxy", "https://user:secret@proxy.example", 1);
	is_int(proxy_env_read(&env, &err), -EINVAL, "a proxy behind TLS is refused");
	ok(!strstr(err.text, "secret"), "without telling the password");
	setenv("https_proxy", "http://u%zz@proxy.example", 1);
	is_int(proxy_env_read(&env, &err), -EINVAL, "broken escapes are refused");
	no_environment();
}

int main(void)
{
	no_environment();
	test_rules();
	test_match();
	test_addresses();
	test_heads();
	test_env();
	test_own_address(); /* last: it leaves the host's network */
	return tap_done();
}
