/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane's parsers: bodies, queries, tokens, times. */
#include <stdlib.h>

#include "common/str.h"
#include "egress/proxy.h"
#include "pool/api/control_private.h"
#include "tests/unit/tap.h"

static struct err err;

static int create(const char *text, struct control_create *ret)
{
	err.text[0] = '\0';
	*ret = (struct control_create){0};
	return control_create_parse(text, strlen(text), ret, &err);
}

/* A body is refused, and the error names @what. */
static void refuses(const char *text, const char *what, const char *name)
{
	cleanup_control_create struct control_create c;

	is_int(create(text, &c), -EINVAL, "%s", name);
	has_str(err.text, what, "… by name");
}

static void creates(void)
{
	cleanup_control_create struct control_create c, d, e;

	is_int(create("{\"templateID\":\"base\"}", &c), 0, "a template is enough (%s)", err.text);
	is_str(c.template, "base", "the template's name is read");
	ok(!c.timeout_ms && !c.metadata && !c.env && !c.auto_pause && !c.allow,
		"what a create does not say is absent");
	is_int(create("{\"templateID\":\"base:v1\",\"timeout\":30,\"metadata\":{\"a\":\"b\"},"
		      "\"envVars\":{\"X\":\"\"},\"autoPause\":true,\"secure\":true,\"mcp\":null,"
		      "\"allow_internet_access\":true,\"autoResume\":{\"enabled\":false},"
		      "\"volumeMounts\":[],\"somethingNew\":[1,2]}",
		       &d),
		0, "what SDKs send is taken, and what is not known ignored (%s)", err.text);
	is_int((int64_t)d.timeout_ms, 30000, "a timeout in seconds is read");
	ok(d.auto_pause && json_object_size(d.metadata) == 1 && json_object_size(d.env) == 1 &&
			!d.allow,
		"the rest; asking for the internet alone opens nothing");
	is_int(create("{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"example.org\","
		      "\"*.example.org:8443\"],\"denyOut\":[\"0.0.0.0/0\"]}}",
		       &e),
		0, "hosts are allowed by name (%s)", err.text);
	ok(e.n_allow == 2 && !strcmp(e.allow[0].host, "example.org") && e.allow[1].subdomains &&
			e.allow[1].port == 8443 && !e.allow[0].private_ok && !e.allow[1].private_ok,
		"hosts that are allowed are read as they are");
}

static void lifecycle(void)
{
	cleanup_control_create struct control_create c, none;
	struct err why;
	bool is_public = false;

	is_int(create("{\"templateID\":\"a\",\"autoPause\":true,\"autoResume\":{\"enabled\":true},"
		      "\"network\":{\"allowPublicTraffic\":false,"
		      "\"maskRequestHost\":\"localhost:${PORT}\"}}",
		       &c),
		0, "a sandbox that sleeps and is woken (%s)", err.text);
	ok(c.auto_pause && c.auto_resume && c.guarded_ports,
		"autoPause, autoResume and closed ports are read");
	is_str(c.mask_host, "localhost:${PORT}",
		"the host that a sandbox's servers are to see is read");
	is_int(create("{\"templateID\":\"a\",\"network\":{\"maskRequestHost\":\"\"}}", &none), 0,
		"no host");
	ok(!none.auto_resume && !none.guarded_ports && !none.mask_host,
		"an empty maskRequestHost is no host");
	is_int(control_public_parse("{\"public\":true}", 15, false, &is_public, &why), 0,
		"a template may be asked to be public");
	ok(is_public, "which is understood");
	is_int(control_public_parse("{\"public\":\"yes\"}", 16, false, &is_public, &why), -EINVAL,
		"an answer of yes or no in words is refused");
}

static void inside(void)
{
	static const char *const hosts[] = {"169.254.169.254", "10.1.2.3:8080", "127.0.0.1",
		"[::1]:80", "[fe80::1]", "[::ffff:10.0.0.1]"};
	cleanup_control_create struct control_create out, said;

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		cleanup_control_create struct control_create c;
		cleanup_free char *text = str_printf("{\"templateID\":\"a\",\"network\":"
						     "{\"allowOut\":[\"example.org\",\"%s\"]}}",
			hosts[i]);

		is_int(create(text, &c), 0, "%s can be asked for (%s)", hosts[i], err.text);
		is_str(c.inside, hosts[i], "an address of the host is known to lead inside");
	}
	is_int(create("{\"templateID\":\"a\",\"network\":{\"allowOut\":[\"example.org\",\"8.8.8."
		      "8\"]}}",
		       &out),
		0, "public hosts too");
	ok(!out.inside, "which do not");
	is_int(create("{\"templateID\":\"a\",\"network\":{\"allowOut\":[{\"host\":\"db.example.org:"
		      "5432\","
		      "\"private\":true}]}}",
		       &said),
		0, "a host's addresses may be allowed whatever they are, by a field of their own");
	is_str(said.inside, "db.example.org:5432", "which is known to lead inside");
	ok(said.allow[0].private_ok, "an address inside is taken from whoever runs the pool");
}

/* Whatever a list of hosts says, no check is switched off by its text: each entry is a host or refused. */
static void options_in_hosts(void)
{
	static const char *const hosts[] = {"private", "PRIVATE", "allow", "subdomains",
		"0.0.0.0/0", "10.0.0.0/8", "localhost:3200"};
	static const char *const refused[] = {"localhost private", "localhost:3200\\tprivate",
		"localhost\\nprivate", "localhost,private", "localhost\\u0000private", "private=1",
		"", " ", "*", "a b", "http://localhost/"};

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		cleanup_control_create struct control_create c;
		cleanup_free char *text = str_printf("{\"templateID\":\"a\",\"network\":"
						     "{\"allowOut\":[\"localhost:3200\",\"%s\"]}}",
			hosts[i]);

		is_int(create(text, &c), 0, "\"%s\" is a host (%s)", hosts[i], err.text);
		ok(c.n_allow == 2 && !c.allow[0].private_ok && !c.allow[1].private_ok && !c.inside,
			"a word of the rules opens nothing of the host before it");
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		cleanup_free char *text = str_printf("{\"templateID\":\"a\",\"network\":"
						     "{\"allowOut\":[\"%s\"]}}",
			refused[i]);

		refuses(text, "", "what is no host alone is refused");
	}
}

static void refused_creates(void)
{
	refuses("", "templateID", "an empty body");
	refuses("[]", "object", "an array");
	refuses("{\"templateID\":\"a\",\"templateID\":\"b\"}", "body", "a key twice");
	refuses("{\"templateID\":7}", "templateID", "a template that is a number");
	refuses("{\"templateID\":\"a\",\"timeout\":0}", "timeout", "no time at all");
	refuses("{\"templateID\":\"a\",\"timeout\":-1}", "timeout", "negative time");
	refuses("{\"templateID\":\"a\",\"timeout\":1.5}", "timeout", "a fraction");
	refuses("{\"templateID\":\"a\",\"timeout\":\"5\"}", "timeout", "time as text");
	refuses("{\"templateID\":\"a\",\"timeout\":99999999999999}", "timeout", "an eternity");
	refuses("{\"templateID\":\"a\",\"metadata\":{\"k\":1}}", "metadata", "metadata of numbers");
	refuses("{\"templateID\":\"a\",\"metadata\":[]}", "metadata", "metadata as an array");
	refuses("{\"templateID\":\"a\",\"envVars\":{\"A=B\":\"c\"}}", "envVars",
		"a variable with =");
	refuses("{\"templateID\":\"a\",\"envVars\":{\"\":\"c\"}}", "envVars", "one without a name");
	refuses("{\"templateID\":\"a\",\"envVars\":{\"A\":\"b\\u0000c\"}}", "", "a NUL");
	refuses("{\"templateID\":\"a\",\"autoPause\":\"yes\"}", "autoPause", "a flag as text");
	refuses("{\"templateID\":\"a\",\"autoPauseMemory\":false}", "autoPauseMemory",
		"a pause without memory");
	refuses("{\"templateID\":\"a\",\"autoResume\":{\"enabled\":1}}", "enabled",
		"waking by a number");
	refuses("{\"templateID\":\"a\",\"mcp\":{\"x\":{}}}", "mcp", "what is not done here");
	refuses("{\"templateID\":\"a\",\"network\":{\"allowOut\":[\"10.0.0.1/8\"]}}", "allowOut",
		"a network with bits behind its prefix");
	refuses("{\"templateID\":\"a\",\"network\":{\"allowOut\":[{\"private\":true}]}}",
		"allowOut", "an option without its host");
	refuses("{\"templateID\":\"a\",\"network\":{\"allowOut\":[{\"host\":\"a.example.org\","
		"\"private\":\"yes\"}]}}",
		"private", "an option as text");
	refuses("{\"templateID\":\"a\",\"network\":{\"allowOut\":[3]}}", "allowOut",
		"a host as a number");
	refuses("{\"templateID\":\"a\",\"network\":{\"allowPublicTraffic\":0}}",
		"allowPublicTraffic", "a restriction as a number");
	refuses("{\"templateID\":\"a\",\"network\":{\"maskRequestHost\":\"a b\"}}",
		"maskRequestHost", "a host with a blank in it");
	refuses("{\"templateID\":\"a\",\"network\":{\"maskRequestHost\":\"a\\r\\nX: y\"}}",
		"maskRequestHost", "one that would be two lines of a head");
	refuses("{\"templateID\":\"a\",\"network\":{\"egressProxy\":{\"address\":\"x:1\"}}}",
		"egressProxy", "a proxy of its own");
}

static int change(const char *text, const char *timeout, bool required, struct control_change *ret)
{
	err.text[0] = '\0';
	*ret = (struct control_change){.auto_pause = -1, .count = 1};
	return control_change_parse(text, strlen(text), timeout, required, ret, &err);
}

static void changes(void)
{
	struct control_change c;

	is_int(change("", "timeout", false, &c), 0, "an empty body where nothing is needed");
	ok(!c.has_timeout && c.auto_pause == -1 && c.count == 1 && !*c.name,
		"leaves all as it was");
	is_int(change("", "timeout", true, &c), -EINVAL,
		"null is refused where a timeout is needed");
	has_str(err.text, "timeout", "… by name");
	is_int(change("{\"timeout\":0}", "timeout", true, &c), 0, "no seconds more is a wish");
	ok(c.has_timeout && c.timeout_ms == 0, "a timeout of 0 seconds is told apart from none");
	is_int(change("{\"duration\":60,\"timeout\":5}", "duration", false, &c), 0, "a refresh");
	is_int((int64_t)c.timeout_ms, 60000, "a refresh's seconds are named duration");
	is_int(change("{\"count\":3,\"autoPause\":false}", "timeout", false, &c), 0,
		"a fork of three");
	ok(c.count == 3 && c.auto_pause == 0, "a fork's count is read");
	is_int(change("{\"count\":0}", NULL, false, &c), -EINVAL,
		"a fork of 0 sandboxes is refused");
	is_int(change("{\"count\":65}", NULL, false, &c), -EINVAL,
		"a fork of too many sandboxes is refused");
	is_int(change("{\"memory\":false}", NULL, false, &c), -EINVAL,
		"a snapshot without memory is refused");
	is_int(change("{\"name\":\"my-snapshot:v2\"}", NULL, false, &c), 0,
		"a snapshot with a name");
	is_str(c.name, "my-snapshot:v2", "which it keeps");
	is_int(change("{\"name\":\"../x\"}", NULL, false, &c), -EINVAL, "a path is no name");
	is_int(change("{\"name\":\"Upper\"}", NULL, false, &c), -EINVAL,
		"a snapshot's name in capitals is refused");
	is_int(change("{", NULL, false, &c), -EINVAL, "broken JSON");
}

static void queries(void)
{
	cleanup_json json_t *m = NULL, *none = NULL;
	cleanup_free char *token = control_token_make(1790000000123, "abc");
	char id[LIMIT_NAME_SIZE];
	int64_t ms = 0;

	is_int(control_metadata_parse("user=abc&app=a%20b+c%3D", &m, &err), 0,
		"metadata to find by");
	is_str(json_string_value(json_object_get(m, "app")),
		"a b c=", "metadata to find by is decoded");
	is_int((int64_t)json_object_size(m), 2, "each pair of the metadata to find by is read");
	is_int(control_metadata_parse("", &none, &err), 0, "metadata to find by may be empty");
	is_int(control_metadata_parse("user", &none, &err), -EINVAL,
		"metadata without a value is refused");
	is_int(control_metadata_parse("user=%zz", &none, &err), -EINVAL, "broken percents");
	is_int(control_metadata_parse("user=%00", &none, &err), -EINVAL, "a NUL");
	is_int(control_metadata_parse("user=%ff", &none, &err), -EINVAL, "not UTF-8");
	is_int(control_token_parse(token, &ms, id, &err), 0, "a token comes back");
	ok(ms == 1790000000123 && !strcmp(id, "abc"), "a page's token comes back as it was");
	is_int(control_token_parse("12", &ms, id, &err), -EINVAL, "half a token");
	is_int(control_token_parse("x.abc", &ms, id, &err), -EINVAL, "not a token");
	is_int(control_token_parse("99999999999999999999.a", &ms, id, &err), -EINVAL,
		"out of range");
}

static void filters(void)
{
	cleanup_json json_t *has = json_pack("{s:s, s:s}", "a", "1", "b", "2");
	cleanup_json json_t *one = json_pack("{s:s}", "a", "1"),
			    *other = json_pack("{s:s}", "a", "2");
	struct pool_sandbox_info f = {.id = "x",
		.template_name = "base",
		.template_tag = "latest",
		.state = POOL_RUNNING,
		.started_ms = 100,
		.metadata = has};

	ok(control_filter_match(&(struct control_filter){.states = CONTROL_RUNNING}, &f),
		"a running sandbox is found among the running ones");
	ok(!control_filter_match(&(struct control_filter){.states = CONTROL_PAUSED}, &f),
		"not paused");
	ok(control_filter_match(
		   &(struct control_filter){.states = CONTROL_RUNNING, .metadata = one}, &f),
		"some of its metadata");
	ok(!control_filter_match(
		   &(struct control_filter){.states = CONTROL_RUNNING, .metadata = other}, &f),
		"not another's");
	ok(!control_filter_match(
		   &(struct control_filter){.states = CONTROL_RUNNING, .started_after_ms = 101},
		   &f),
		"not before");
	ok(control_filter_match(
		   &(struct control_filter){.states = CONTROL_RUNNING, .template = "base"}, &f),
		"by its template");
	f.state = POOL_PAUSED;
	ok(control_filter_match(&(struct control_filter){.states = CONTROL_PAUSED}, &f),
		"a paused sandbox is found among the paused ones");
}

int main(void)
{
	creates();
	lifecycle();
	inside();
	options_in_hosts();
	refused_creates();
	changes();
	queries();
	filters();
	return tap_done();
}
