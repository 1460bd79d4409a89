/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy and names: those that hang, and those that are looked up here though the host has a proxy of its own. */
#include "tests/unit/proxy_peer.h"
#include "egress/limits.h"

/* ---- names ------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned hanging;
	bool released;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* In place of the host's resolver: what is below slow.example hangs until it is released, inside.example has an
 * address that nobody may reach, both.example one such and a public one. */
int getaddrinfo(
	const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret)
{
	static const struct {
		const char *name, *addresses[2];
	} known[] = {{"localhost", {"127.0.0.1"}}, {"inside.example", {"10.0.0.1"}},
		{"both.example", {"169.254.169.254", "203.0.114.9"}},
		{"a.example", {"203.0.114.7"}}, {"refuse.example", {"203.0.114.8"}},
		{"fast.example", {"10.0.0.2"}}};
	const char *addresses[2] = {host};
	struct addrinfo **at = ret;

	(void)hints;
	*ret = NULL;
	if (strstr(host, "slow.example")) {
		pthread_mutex_lock(&names.lock);
		names.hanging++;
		pthread_cond_broadcast(&names.changed);
		while (!names.released)
			pthread_cond_wait(&names.changed, &names.lock);
		names.hanging--;
		pthread_cond_broadcast(&names.changed);
		pthread_mutex_unlock(&names.lock);
		return EAI_NONAME;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(host, known[i].name))
			memcpy(addresses, known[i].addresses, sizeof(addresses));
	}
	for (int i = 0; i < 2 && addresses[i]; i++) {
		struct sockaddr_in *in = calloc(1, sizeof(*in));

		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)atoi(port));
		if (inet_pton(AF_INET, addresses[i], &in->sin_addr) != 1) {
			free(in);
			return EAI_NONAME;
		}
		*at = calloc(1, sizeof(**at));
		(*at)->ai_family = AF_INET;
		(*at)->ai_addr = (struct sockaddr *)in;
		(*at)->ai_addrlen = sizeof(*in);
		at = &(*at)->ai_next;
	}
	return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
	while (list) {
		struct addrinfo *next = list->ai_next;

		free(list->ai_addr);
		free(list);
		list = next;
	}
}

/* Until @n lookups hang. */
static bool await_hanging(unsigned n)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PEER_DEADLINE_MS / 1000;
	pthread_mutex_lock(&names.lock);
	while (names.hanging != n && r == 0)
		r = pthread_cond_timedwait(&names.changed, &names.lock, &until);
	pthread_mutex_unlock(&names.lock);
	return r == 0;
}

/* A sandbox of a key, that may reach all that these tests name. */
static struct proxy *sandbox_of(struct guest *g, const char *sandbox, const char *key)
{
	struct proxy_rule rules[4];
	struct proxy_spec spec = {.rules = rules,
		.n_rules = 4,
		.who = {.sandbox = sandbox, .key = key},
		.resolve_here = true};
	struct proxy *p = NULL;
	struct err err;

	proxy_rule_parse("*.slow.example", &rules[0], NULL);
	proxy_rule_parse("fast.example", &rules[1], NULL);
	proxy_rule_parse("inside.example", &rules[2], NULL);
	proxy_rule_parse("both.example", &rules[3], NULL);
	if (guest_proxy_new(g, &spec, &p, &err) < 0)
		peer_die(err.text);
	return p;
}

/* @n connections of @g that ask for names which hang. */
static void ask_slow(struct guest *g, int fd, unsigned n)
{
	static const char head[] = "CONNECT a.slow.example:443 HTTP/1.1\r\n\r\n";
	struct err err;

	for (uint32_t i = 1; i <= n; i++) {
		peer_frame(fd, PROTO_PROXY_OPEN, 0, 0x10000 + 2 * i, NULL, 0);
		peer_frame(fd, PROTO_DATA, PROTO_OUT, 0x10000 + 2 * i, head, sizeof(head) - 1);
		guest_dispatch(g, &err);
	}
}

/* One sandbox, then one key, looks up as many names that hang as it can: others look up theirs. */
static void test_slow_names(void)
{
	enum { SANDBOXES = LIMIT_PROXY_LOOKUPS / LIMIT_PROXY_LOOKUPS_EACH + 4 };
	struct guest *g[SANDBOXES], *other;
	struct proxy *p[SANDBOXES], *q;
	int fd[SANDBOXES], other_fd;
	char id[SANDBOXES][16], *a;

	other = peer_guest(&other_fd);
	for (int i = 0; i < SANDBOXES; i++) {
		snprintf(id[i], sizeof(id[i]), "s%d", i);
		g[i] = peer_guest(&fd[i]);
		p[i] = sandbox_of(g[i], id[i], "greedy");
		ask_slow(g[i], fd[i], 20);
		if (i)
			continue;
		ok(await_hanging(LIMIT_PROXY_LOOKUPS_EACH),
			"a sandbox looks up its share of names that hang");
		q = sandbox_of(other, "other", "greedy");
		a = ask(other, other_fd, "CONNECT fast.example:443 HTTP/1.1\r\n\r\n");
		has_str(a, "has an address that is private", "another of its key looks up another");
		free(a);
		proxy_free(q);
	}
	ok(await_hanging(LIMIT_PROXY_LOOKUPS / 2), "a key looks up its share");
	q = sandbox_of(other, "other", "modest");
	a = ask(other, other_fd, "CONNECT fast.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "has an address that is private", "another key's sandbox looks up another");
	free(a);
	proxy_free(q);
	for (int i = 0; i < SANDBOXES; i++) {
		proxy_free(p[i]);
		guest_free(g[i]);
		close(fd[i]);
	}
	ok(await_hanging(LIMIT_PROXY_LOOKUPS / 2),
		"what nobody waits for any more is counted until it ends");
	names.released = true;
	pthread_cond_broadcast(&names.changed);
	ok(await_hanging(0), "all look-ups that hang end");
	names.released = false;
	q = sandbox_of(other, "other", "greedy");
	a = ask(other, other_fd, "CONNECT fast.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "has an address that is private", "the greedy sandbox may look names up again");
	free(a);
	proxy_free(q);
	guest_free(other);
	close(other_fd);
}

/* With an upstream proxy the names of a sandbox are looked up here, and it is asked for the checked address. */
static void test_upstream_checked(struct server *up)
{
	static const char both[] = "CONNECT both.example:443 HTTP/1.1\r\n\r\n";
	char url[100], *a;
	struct proxy *p;
	struct guest *g;
	int fd;

	snprintf(url, sizeof(url), "http://127.0.0.1:%u", up->port);
	setenv("https_proxy", url, 1);
	setenv("http_proxy", url, 1);
	g = peer_guest(&fd);
	p = sandbox_of(g, "one", "a");
	memset(up->head, 0, sizeof(up->head));
	a = ask(g, fd, "CONNECT inside.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 403 ",
		"a name that leads inside is refused before the upstream is asked");
	free(a);
	a = ask(g, fd, "GET http://inside.example/ HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 403 ", "a plain request for it, too");
	free(a);
	is_str(up->head, "", "the upstream has heard of neither");
	a = ask_bytes(g, fd, both, sizeof(both) - 1, true, NULL);
	has_str(a, "HTTP/1.1 200 Connection established\r\n\r\nfirst!",
		"one with a public address is reached");
	has_str(up->head, "CONNECT 203.0.114.9:443 HTTP/1.1\r\n", "by that address");
	free(a);
	a = ask(g, fd, "GET http://both.example/z HTTP/1.1\r\n\r\n");
	has_str(a, "first!", "a plain request goes through a tunnel");
	has_str(up->head, "CONNECT 203.0.114.9:80 HTTP/1.1\r\n", "to that address");
	free(a);
	proxy_free(p);
	guest_free(g);
	close(fd);
	no_environment();
}

int main(void)
{
	struct server up;

	no_environment();
	server_start(&up, true);
	test_upstream_checked(&up);
	test_slow_names();
	server_stop(&up);
	return tap_done();
}
