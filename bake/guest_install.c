/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installing in the guest. The guest's way out is an HTTP proxy on its loopback (egress/) that
 * connects only to hosts the recipe allows; pip's index hosts are allowed by themselves where the
 * recipe has pip requirements: the configured ones, or pip's own default, and the hosts that the
 * index's pages point to for files.
 *
 * What the guest is lent meanwhile (the index URL, perhaps with a password, and the CA bundle) is
 * in the environment of the steps and in one file on the guest's tmpfs, never on its disk. The file
 * is removed here, and the memory that held any of this is zeroed before the capture with all other
 * free memory. Whether any of it is left after all is what the scan looks for (bake/scan/).
 */
#include "bake/guest_install.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/pip_lend.h"
#include "bake/secrets.h"
#include "common/str.h"
#include "vmm/guest/proxy.h"
#include "bake/recipe/recipe.h"
#include "common/clock.h"
#include "common/file.h"
#include "bake/limits.h"

#define LENT_DIR "/run/parbake-bake"
#define LENT_CA LENT_DIR "/ca.pem"
#define CALL_MS 60000
#define PROXY_PORT 3128 /* on guest loopback */
#define FIND_HOSTS_MS 300000
#define ASKED_NAMES 8

static const char *const quiet[] = {
	"DEBIAN_FRONTEND=noninteractive",
	"DEBCONF_NONINTERACTIVE_SEEN=true",
	"PIP_NO_INPUT=1",
	"PIP_BREAK_SYSTEM_PACKAGES=1",
	"PIP_ROOT_USER_ACTION=ignore",
	"PIP_DISABLE_PIP_VERSION_CHECK=1",
	"PIP_NO_CACHE_DIR=1",
	"GIT_TERMINAL_PROMPT=0",
};
#define N_QUIET (sizeof(quiet) / sizeof(*quiet))

static const char *const ca_variables[] = {
	"PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"};

/*
 * Prints the hosts that pip will ask: for the index argv[1], or pip's own default where that is
 * empty.
 */
static const char find_hosts[] =
	"import base64, re, sys\n"
	"from urllib.parse import urljoin, urlsplit\n"
	"from urllib.request import Request, urlopen\n"
	"index, found = sys.argv[1].rstrip('/'), set()\n"
	"if not index:\n"
	"    from pip._internal.models.index import PyPI\n"
	"    found = {PyPI.netloc, PyPI.file_storage_domain}\n"
	"else:\n"
	"    parts = urlsplit(index)\n"
	"    user, _, host = parts.netloc.rpartition('@')\n"
	"    index = parts._replace(netloc=host).geturl()\n"
	"    for name in sys.argv[2:]:\n"
	"        page = Request(f'{index}/{name}/')\n"
	"        if user:\n"
	"            page.add_header('Authorization', 'Basic ' + "
	"base64.b64encode(user.encode()).decode())\n"
	"        try:\n"
	"            with urlopen(page, timeout=60) as answer:\n"
	"                text, base = answer.read(1 << 25).decode(errors='replace'), "
	"answer.geturl()\n"
	"        except OSError as error:\n"
	"            print(f'{name}: {error}', file=sys.stderr)\n"
	"            continue\n"
	"        for link in re.findall(r'href=[\"\\']([^\"\\'#]+)', text):\n"
	"            found.add(urlsplit(urljoin(base, link)).netloc.rpartition('@')[2])\n"
	"print(*sorted(found - {''}), sep='\\n')\n";

struct install {
	struct oven *o;
	const struct recipe *r;
	struct pip_lend lend;
	struct proxy_rule *allow;
	size_t n_allow;
	struct strings env; /* on top of the recipe's */
	struct proxy *proxy;
	struct lent *lent;
	uint64_t lent_bytes; /* of the CA bundle in the guest */
};

/* What the recipe says of a variable stands. Returns how many were added. */
static size_t add_unless_there(const char **env, size_t n, const char *pair)
{
	size_t key = strcspn(pair, "=") + 1;

	for (size_t i = 0; i < n; i++)
		if (!strncmp(env[i], pair, key))
			return 0;
	env[n] = pair;
	return 1;
}

const char **guest_env(const struct recipe *r, const struct strings *more)
{
	size_t n = 0, n_more = more ? more->n : 0;
	const char **env = calloc(r->env.n + N_QUIET + n_more + 1, sizeof(*env));

	if (!env)
		abort();
	for (size_t i = 0; i < r->env.n; i++)
		env[n++] = r->env.items[i];
	for (size_t i = 0; i < n_more; i++)
		n += add_unless_there(env, n, more->items[i]);
	for (size_t i = 0; i < N_QUIET; i++)
		n += add_unless_there(env, n, quiet[i]);
	return env;
}

static void add_env(struct install *in, const char *name, const char *value)
{
	cleanup_free char *pair = str_printf("%s=%s", name, value);

	strings_add(&in->env, pair);
}

/* ---- the way out ------------------------------------------------------------------------ */

static void note(void *user, const char *text)
{
	struct install *in = user;

	progress_note(in->o->progress, "%s", text);
}

static int proxy_off(struct install *in, struct err *err)
{
	int rc = in->proxy
		? guest_proxy_listen(in->o->guest, 0, clock_deadline(CALL_MS), in->o->alive_fd, err)
		: 0;

	proxy_free(steal_ptr(&in->proxy));
	return rc;
}

/* Begin, or begin again with what is allowed by now. */
static int proxy_on(struct install *in, struct err *err)
{
	int rc = proxy_off(in, err);

	if (!rc)
		rc = guest_proxy_new(in->o->guest,
			&(struct proxy_spec){.rules = in->allow,
				.n_rules = in->n_allow,
				.note = note,
				.user = in},
			&in->proxy, err);
	if (!rc)
		rc = guest_proxy_listen(
			in->o->guest, PROXY_PORT, clock_deadline(CALL_MS), in->o->alive_fd, err);
	if (rc)
		err_prefix(err, "start the guest's proxy");
	return rc;
}

static void allow(struct install *in, const struct proxy_rule *rule)
{
	in->allow = reallocarray(in->allow, in->n_allow + 1, sizeof(*in->allow));
	if (!in->allow)
		abort();
	in->allow[in->n_allow++] = *rule;
}

/* One that pip is set up to ask. @host_said: by the host's configuration, and not by what runs in the guest. */
static int allow_index(struct install *in, const char *host, bool host_said, struct err *err)
{
	struct proxy_rule rule;
	int rc = proxy_rule_parse(host, &rule, err);

	if (rc)
		return rc;
	/* the host's own index may well be in a private network; where a guest wants to go may not */
	rule.private_ok = host_said;
	allow(in, &rule);
	return 0;
}

/* The bundle's lines, and the index's address and password, are what the snapshot must not have. */
static int note_lent(struct install *in, struct err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int rc;

	for (size_t i = 0; i < in->lend.env.n; i++) {
		cleanup_free char *urls = str_dup(strchr(in->lend.env.items[i], '=') + 1);
		char *save = NULL;

		for (char *w = strtok_r(urls, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
			lent_add_url(in->lent, "pip", w);
	}
	if (!in->lend.ca_path)
		return 0;
	rc = file_read_all(AT_FDCWD, in->lend.ca_path, LIMIT_CA_BYTES, &text, &len, err);
	if (rc)
		return rc;
	lent_add_lines(in->lent, "a line of the host's CA bundle", text, len);
	return 0;
}

static int lend_ca(struct install *in, struct err *err)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int rc;

	if (!in->lend.ca_path)
		return 0;
	fd = open(in->lend.ca_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "the host's CA bundle %s", in->lend.ca_path);
	if (fstat(fd, &st) || st.st_size <= 0)
		return err_set(err, EIO, "the host's CA bundle %s is empty", in->lend.ca_path);
	in->lent_bytes = (uint64_t)st.st_size;
	rc = guest_put_file(in->o->guest, fd, LENT_CA, 0644, NULL, clock_deadline(CALL_MS),
		in->o->alive_fd, err);
	if (rc) {
		err_prefix(err, "lend the CA bundle");
		return rc;
	}
	for (size_t i = 0; i < sizeof(ca_variables) / sizeof(*ca_variables); i++)
		add_env(in, ca_variables[i], LENT_CA);
	return 0;
}

/* Zeros over it first: what is merely freed lies in memory until somebody else needs the page. */
static int take_back(struct install *in, struct err *err)
{
	uint8_t buf[256];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	cleanup_free char *line = str_printf(
		"head -c %llu /dev/zero 1<>" LENT_CA, (unsigned long long)in->lent_bytes);
	int rc;

	if (!in->lent_bytes)
		return 0;
	rc = oven_shell(in->o, "wipe the lent CA bundle", line, NULL, err);
	proto_put_str(&body, PROTO_T_PATH, LENT_DIR);
	proto_put_bool(&body, PROTO_T_RECURSIVE, 1);
	return rc ? rc : oven_call(in->o, PROTO_FILE_REMOVE, &body, CALL_MS, err);
}

static int network_on(struct install *in, struct err *err)
{
	static const char *const names[] = {
		"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
	static const char *const direct[] = {"no_proxy", "NO_PROXY"};
	cleanup_free char *url = NULL;
	int rc;

	pip_lend_get(&in->lend);
	rc = note_lent(in, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < in->r->allow.n; i++)
		allow(in, &in->r->allow.items[i]);
	for (size_t i = 0; i < in->lend.hosts.n && in->r->pip.n; i++) {
		rc = allow_index(in, in->lend.hosts.items[i], true, err);
		if (rc) {
			err_prefix(err, "the host's pip configuration");
			return rc;
		}
	}
	rc = proxy_on(in, err);
	if (rc)
		return rc;
	url = str_printf("http://127.0.0.1:%u", PROXY_PORT);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		add_env(in, names[i], url);
	for (size_t i = 0; i < sizeof(direct) / sizeof(*direct); i++)
		add_env(in, direct[i], "127.0.0.1,localhost");
	for (size_t i = 0; i < in->lend.env.n; i++)
		strings_add(&in->env, in->lend.env.items[i]);
	return lend_ca(in, err);
}

/* ---- pip -------------------------------------------------------------------------------- */

/* The name in a requirement ("numpy>=1.2" → "numpy"). Caller frees; NULL where there is none. */
static char *requirement_name(const char *requirement)
{
	size_t n = strspn(
		requirement, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	char *name = n ? strndup(requirement, n) : NULL;

	for (char *p = name; p && *p; p++)
		if (*p == '_' || *p == '.')
			*p = '-';
	return name;
}

/* Let the guest's pip reach the hosts its index sends it to. */
static int allow_index_hosts(struct install *in, struct err *err)
{
	const char *argv[5 + ASKED_NAMES] = {
		"python3", "-c", find_hosts, in->lend.index ? in->lend.index : ""};
	cleanup_free const char **env = guest_env(in->r, &in->env);
	struct guest_exec_spec spec = {
		.argv = argv, .env = env, .timeout_ms = FIND_HOSTS_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	char *names[ASKED_NAMES], *save = NULL;
	size_t n = 0;
	int rc;

	for (size_t i = 0; i < in->r->pip.n && n < ASKED_NAMES; i++)
		if ((names[n] = requirement_name(in->r->pip.items[i])))
			argv[4 + n] = names[n], n++;
	rc = guest_exec(in->o->guest, &spec, clock_deadline(FIND_HOSTS_MS + CALL_MS),
		in->o->alive_fd, &res, err);
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	if (rc)
		return rc;
	if (res.exit_code)
		return err_set(err, EIO,
			"asking the guest's pip for its index (exit status %d): %.600s%s",
			res.exit_code, res.err ? res.err : "",
			res.exit_code == 127 ||
					strstr(res.err ? res.err : "", "No module named 'pip'")
				? "\n[install] pip needs python3-pip among [root] packages"
				: "");
	for (char *w = strtok_r(res.out, "\n", &save); w; w = strtok_r(NULL, "\n", &save))
		allow_index(in, w, false, NULL); /* what is no host is not allowed */
	return proxy_on(in, err);
}

static int run_pip(struct install *in, struct err *err)
{
	cleanup_free const char **env = NULL;
	cleanup_free char *line = NULL;
	size_t len;
	FILE *f;
	int rc;

	if (!in->r->pip.n)
		return 0;
	rc = allow_index_hosts(in, err);
	if (rc) {
		err_prefix(err, "[install] pip");
		return rc;
	}
	f = open_memstream(&line, &len);
	if (!f)
		abort();
	fputs("exec python3 -m pip install --progress-bar off --no-warn-script-location --", f);
	for (size_t i = 0; i < in->r->pip.n; i++) {
		fputs(" '", f);
		for (const char *p = in->r->pip.items[i]; *p; p++)
			if (*p == '\'')
				fputs("'\\''", f);
			else
				fputc(*p, f);
		fputc('\'', f);
	}
	if (fclose(f))
		abort();
	env = guest_env(in->r, &in->env);
	return oven_shell(in->o, "[install] pip", line, env, err);
}

/* ---- all of it -------------------------------------------------------------------------- */

/* What programs say where there is no network, which an author may not expect. */
static void explain_network(const struct install *in, struct err *err)
{
	static const char *const words[] = {"resolve host", "name resolution",
		"Name or service not known", "Network is unreachable", "Could not connect"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strstr(err->text, words[i]))
			continue;
		err_append(err,
			"\na guest has no network; a step reaches the hosts in [network] allow "
			"(%s), by "
			"the proxy in its environment",
			in->r->allow.n
				? "this one was not among them, or the program does not use it"
				: "here none");
		return;
	}
}

static int run_steps(struct install *in, struct err *err)
{
	cleanup_free const char **env = guest_env(in->r, &in->env);

	for (size_t i = 0; i < in->r->install.n; i++) {
		const struct recipe_step *s = &in->r->install.items[i];
		cleanup_free char *label = str_printf("[install] %u", s->number);
		int rc = oven_shell(in->o, label, s->text, env, err);

		if (rc) {
			explain_network(in, err);
			err_prefix(err, "%s:%u", s->file, s->line);
			return rc;
		}
	}
	return 0;
}

int guest_install(struct oven *o, const struct recipe *r, struct lent *lent, struct err *err)
{
	struct install in = {.o = o, .r = r, .lent = lent};
	bool network = r->allow.n || r->pip.n;
	int rc;

	if (!r->install.n && !r->pip.n)
		return 0;
	progress_stage(o->progress, "install", NULL, 0);
	o->lent = lent;
	rc = secrets_read(r, &in.env, lent, err);
	if (!rc && network)
		rc = network_on(&in, err);
	if (!rc)
		rc = run_pip(&in, err);
	if (!rc)
		rc = run_steps(&in, err);
	if (proxy_off(&in, rc ? NULL : err) && !rc)
		rc = -EIO;
	if (!rc)
		rc = take_back(&in, err);
	if (!rc)
		progress_done(o->progress, "%zu steps", r->install.n + (r->pip.n ? 1 : 0));
	pip_lend_clear(&in.lend);
	free(in.allow);
	secrets_clear(&in.env);
	return rc;
}
