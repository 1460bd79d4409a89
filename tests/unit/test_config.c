/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's configuration: what it means, what is refused and how, keys. */
#include "pool/config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/limits.h"
#include "pool/limits.h"
#include "common/str.h"
#include "tests/unit/tap.h"

#define D1 "sha256:0000000000000000000000000000000000000000000000000000000000000001"
#define D2 "sha256:0000000000000000000000000000000000000000000000000000000000000002"

static struct config *parse(const char *text)
{
	struct config *c = NULL;
	struct err err = {0};
	int r = config_parse("p.conf", text, strlen(text), &c, &err);

	ok(r == 0, "a configuration is read%s%s", r ? ": " : "", r ? err.text : "");
	return c;
}

static void refused(const char *text, const char *want)
{
	struct config *c = NULL;
	struct err err = {.text = "none"};

	ok(config_parse("p.conf", text, strlen(text), &c, &err) < 0 && !c,
		"a configuration with a fault is refused");
	has_str(err.text, want, "… with the reason");
	config_free(c);
}

static void test_defaults(void)
{
	cleanup_config struct config *c = NULL;
	struct err err = {0};

	is_int(config_read(NULL, &c, &err), 0, "the defaults");
	has_str(c->socket, "/pool.sock", "a socket");
	has_str(c->state, "/pool", "a state directory");
	ok(!c->listen && !c->store && !c->cgroup, "no TCP");
	is_str(c->domain, "parbake.localhost", "the domain");
	is_int(c->timeout_ms, 300000, "the lease");
	is_int(c->max_timeout_ms, 86400000, "the longest one");
	is_int(c->max_sandboxes, 4096, "the pool's number of sandboxes is read");
	is_int(c->refill_per_s, 20, "a key's refill is read");
	is_int(c->machine_pids, 64, "a bound on processes is read");
	ok(c->n_templates == 0 && c->n_keys == 0, "no templates, no keys");
}

static void test_values(void)
{
	cleanup_config struct config *c = parse(
		"# a comment\n"
		"[pool]\n"
		"socket = /run/x/y.sock\nlisten = [::1]:3000\nstate = /var/s\nstore = /var/t\n"
		"domain = sb.example.org\ntimeout = 1m\nmax_timeout = 2h\nmax_sandboxes = "
		"7\nmax_templates = 9\n"
		"memory_budget = 12G\nmemory_reserve = 1G\nmemory_count = reserved\nrefill_per_s = "
		"3\ncgroup = "
		"/parbake\nmachine_pids = 99\n"
		"[template base]\nstandbys = 2\nspares = auto\nmax_spares = 20\n"
		"[template web:v2]\nshells = 3\nmax_shells = 5\n"
		"[key ci]\ndigest = " D1
		"\nmax_sandboxes = 5\ncreates_per_s = 0.5\nmax_memory = 2G\nmax_disk = 3G\n"
		"[key a-name-of-more-than-forty-nine-bytes-that-inih-would-cut-short]\ndigest = " D2
		"\n");

	if (!c)
		return;
	is_str(c->socket, "/run/x/y.sock", "the socket is read");
	is_str(c->listen, "[::1]:3000", "the address to listen at is read");
	is_str(c->state, "/var/s", "the state directory is read");
	is_str(c->store, "/var/t", "the store is read");
	is_str(c->domain, "sb.example.org", "the domain is read");
	is_str(c->cgroup, "/parbake", "the cgroup is read");
	ok(c->timeout_ms == 60000 && c->max_timeout_ms == 7200000, "the timeouts are read");
	ok(c->max_sandboxes == 7 && c->max_templates == 9 && c->refill_per_s == 3 &&
			c->machine_pids == 99,
		"the counts are read");
	ok(c->memory_budget == 12 * GIB && c->memory_reserve == GIB, "the sizes are read");
	ok(c->memory_reserved, "memory is reserved, not measured");
	is_int(c->n_templates, 2, "all templates of the file are there");
	is_str(c->templates[0].name, "base", "a template's name");
	is_str(c->templates[0].tag, "latest", "a template's tag is read");
	ok(c->templates[0].standbys == 2 && c->templates[0].spares == CONFIG_AUTO,
		"standbys, spares");
	ok(c->templates[0].max_standbys == 8 && c->templates[0].max_spares == 20,
		"the bounds of standbys and spares are read");
	is_str(c->templates[1].tag, "v2", "a template's second tag is read");
	ok(c->templates[1].standbys == 3 && c->templates[1].max_standbys == 5,
		"shells and max_shells are earlier names of standbys and max_standbys");
	is_int(c->n_keys, 2, "all keys of the file are there");
	is_str(c->keys[0].name, "ci", "a key's name");
	is_str(c->keys[0].digest, D1, "a key's digest is read");
	ok(c->keys[0].max_sandboxes == 5 && c->keys[0].max_memory == 2 * GIB &&
			c->keys[0].max_disk == 3 * GIB,
		"a key's limits are read");
	ok(c->keys[0].creates_per_s > 0.49 && c->keys[0].creates_per_s < 0.51,
		"a key's rate is read");
	is_str(c->keys[1].name, "a-name-of-more-than-forty-nine-bytes-that-inih-would-cut-short",
		"a long name is whole");
	is_str(c->keys[1].digest, D2, "a key with a long name has its digest");
}

static void test_errors(void)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{"[pool]\nlisten = localhost:80\n",
			"p.conf:2: [pool] listen = localhost:80: not an address and port; write "
			"127.0.0.1:3000"},
		{"[pool]\nlisten = 127.0.0.1:0\n", "not an address"},
		{"[pool]\nlisten = 127.0.0.1:65536\n", "not an address"},
		{"[pool]\nlisten = [::1:80\n", "not an address"},
		{"[pool]\nlisten = 127.0.0.1\n", "not an address"},
		{"[pool]\nlisten = 127.0.0.1:3000\n", "every request needs a key"},
		{"[pool]\nlisten = 127.0.0.1:3000 x\n", "not an address"},
		{"[pool]\nsocket = relative\n", "must be an absolute path"},
		{"[pool]\nsocket = "
		 "/0123456789012345678901234567890123456789012345678901234567890123456789"
		 "01234567890123456789012345678901234567890\n",
			"107 bytes"},
		{"[pool]\nstate =\n", "[pool] state = : must be an absolute path"},
		{"[pool]\ncgroup = /a/../b\n", "without .."},
		{"[pool]\ndomain = UPPER.example.org\n", "not a domain"},
		{"[pool]\ndomain = a..b\n", "not a domain"},
		{"[pool]\ndomain = -a.b\n", "not a domain"},
		{"[pool]\ndomain = a.\n", "not a domain"},
		{"[pool]\ntimeout = 5\n", "not a time; write 30s, 5m or 24h"},
		{"[pool]\ntimeout = 10ms\n", "must be from 1s"},
		{"[pool]\ntimeout = 9000h\n", "must be from 1s"},
		{"[pool]\ntimeout = 48h\n", "longer than max_timeout"},
		{"[pool]\nmemory_budget = lots\n", "not a size; write 512M or 16G"},
		{"[pool]\nmemory_budget = 1M\n", "must be from 64M"},
		{"[pool]\nmemory_reserve = 1M\n", "must be from 64M"},
		{"[pool]\nmemory_count = maybe\n", "neither measured nor reserved"},
		{"[pool]\nmax_sandboxes = 0\n", "must be a number from 1 to 65536"},
		{"[pool]\nmax_sandboxes = -1\n", "must be a number"},
		{"[pool]\nmax_sandboxes = 99999999999999999999\n", "must be a number"},
		{"[pool]\nrefill_per_s = 2.5\n", "must be a number"},
		{"[pool]\nmachine_pids = 1\n", "must be a number from 8"},
		{"[pool]\ntimeuot = 5m\n",
			"p.conf:2: [pool] timeuot: unknown key; did you mean timeout?"},
		{"[pool]\ntimeout = 5m\ntimeout = 6m\n",
			"p.conf:3: [pool] timeout: given twice, first in line 2"},
		{"[pol]\n", "p.conf:1: unknown section [pol]; did you mean [pool]?"},
		{"[something]\nx = y\n", "there are pool, template NAME and key NAME"},
		{"x = y\n", "in no [section]"},
		{"[key a]\ndigest = " D1 "\n [key b]\ndigest = " D2 "\n", "given twice"},
		{"[key a]\n [key b]\ndigest = " D2 "\n", "in no [section] that begins its line"},
		{"[template]\n", "[template]: not the name of a template"},
		{"[template Base]\n", "not the name of a template"},
		{"[template base:]\n", "not the name of a template"},
		{"[template base:a:b]\n", "not the name of a template"},
		{"[template base]\n[template base:latest]\n", "a second section for base:latest"},
		{"[template base]\nstandbys = many\n", "must be auto, or a number from 0 to 1024"},
		{"[template base]\nspares = 1025\n", "must be auto, or a number"},
		{"[template base]\nspare = 1\n", "did you mean spares?"},
		{"[template base]\ndigest = " D1 "\n", "unknown key"},
		{"[key]\n", "not a name"},
		{"[key a b]\n", "not a name"},
		{"[key a]\n", "[key a] has no digest; `parbake pool key a` makes one"},
		{"[key a]\ndigest = e2b_0123\n", "not a digest"},
		{"[key a]\ndigest = " D1 "0\n", "not a digest"},
		{"[key a]\ndigest = " D1 "\n[key b]\ndigest = " D1 "\n",
			"the key of [key a] already"},
		{"[key a]\ndigest = " D1 "\n[key a]\nmax_sandboxes = 1\n",
			"a second section of that name"},
		{"[key a]\ndigest = " D1 "\ncreates_per_s = 0\n", "must be a number from 0.001"},
		{"[key a]\ndigest = " D1 "\ncreates_per_s = inf\n", "must be a number"},
		{"[key a]\ndigest = " D1 "\ncreates_per_s = 1e3\n", "must be a number"},
		{"[key a]\ndigest = " D1 "\ncreates_per_s = 0x1\n", "must be a number"},
		{"[key a]\ndigest = " D1 "\nmax_memory = 5\n", "not a size"},
		{"[pool\n", "neither a [section] nor key = value"},
		{"[pool]\nnothing\n", "neither a [section] nor key = value"},
		{"[pool]\ndomain = a\x01"
		 "b\n",
			"control character"},
	};
	struct config *c = NULL;
	struct err err = {0};
	cleanup_free char *many = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&many, &len);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		refused(cases[i].text, cases[i].want);
	for (int i = 0; i <= LIMIT_POOL_KEYS; i++)
		fprintf(f, "[key k%d]\ndigest = sha256:%064d\n", i, i);
	fclose(f);
	refused(many, "more than 1024 keys");
	ok(config_read("/nonexistent/p.conf", &c, &err) == -ENOENT, "a file that is not there");
	has_str(err.text, "/nonexistent/p.conf", "a configuration that is not there is named");
}

static void test_keys(void)
{
	char key[CONFIG_KEY_SIZE], other[CONFIG_KEY_SIZE], digest[DIGEST_TEXT_SIZE];
	cleanup_free char *text = NULL;
	struct config *c;
	struct err err = {0};

	ok(config_make_key(key, &err) == 0 && config_make_key(other, &err) == 0, "keys are made");
	ok(strlen(key) == 44 && !strncmp(key, "e2b_", 4) &&
			strspn(key + 4, "0123456789abcdef") == 40,
		"a key has 40 digits");
	ok(strcmp(key, other), "each another");
	digest_buffer(key, strlen(key), digest);
	text = str_printf("[key one]\ndigest = " D1
			  "\n[key two]\ndigest = %s\n[key three]\ndigest = " D2 "\n",
		digest);
	c = parse(text);
	ok(config_find_key(c, key) == &c->keys[1], "a key is found");
	ok(!config_find_key(c, other) && !config_find_key(c, "") && !config_find_key(c, digest),
		"a key that is not configured is not found, nor is a digest");
	ok(!strstr(text, key), "the key itself stands nowhere");
	config_free(c);
	c = parse("");
	ok(!config_find_key(c, key), "without configured keys none is found");
	config_free(c);
}

static void test_replace(void)
{
	cleanup_config struct config *a = parse("[pool]\nsocket = /a/s\n"),
				     *b = parse("[pool]\nsocket = /b/s\n");
	cleanup_config struct config *c =
		parse("[pool]\nsocket = /a/s\ntimeout = 10s\n[template x]\n");
	cleanup_config struct config *d =
		parse("[pool]\nsocket = /a/s\nlisten = 127.0.0.1:9\n[key a]\ndigest = " D1 "\n");
	struct err err = {0};

	ok(config_may_replace(a, a, &err) == 0 && config_may_replace(a, c, &err) == 0,
		"may change");
	is_int(config_may_replace(a, b, &err), -EINVAL, "a socket may not");
	has_str(err.text, "[pool] socket cannot change",
		"the error names the setting that may not change");
	is_int(config_may_replace(a, d, &err), -EINVAL,
		"a listen address may not appear in a new configuration");
	has_str(err.text, "from none to 127.0.0.1:9",
		"the error says how a new setting takes effect");
}

static void test_addr(void)
{
	struct sockaddr_storage a;
	socklen_t len;

	is_int(config_listen_addr("127.0.0.1:3000", &a, &len), 0, "an IPv4 address is read");
	ok(a.ss_family == AF_INET && ntohs(((struct sockaddr_in *)&a)->sin_port) == 3000 &&
			len == sizeof(struct sockaddr_in),
		"the port of an IPv4 address is read");
	is_int(config_listen_addr("[::]:1", &a, &len), 0, "an IPv6 address is read");
	ok(a.ss_family == AF_INET6 && ntohs(((struct sockaddr_in6 *)&a)->sin6_port) == 1,
		"the port of an IPv6 address is read");
}

int main(void)
{
	char home[] = "/tmp/parbake-config-XXXXXX";

	if (!mkdtemp(home) || setenv("PARBAKE_HOME", home, 1))
		return 1;
	test_defaults();
	test_values();
	test_errors();
	test_keys();
	test_replace();
	test_addr();
	file_remove_tree(AT_FDCWD, home, NULL);
	return tap_done();
}
