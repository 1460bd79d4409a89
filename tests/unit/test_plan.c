/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache keys: the same for the same inputs wherever they lie, another for each input that is
 * changed; and what is read of the host's apt and pip.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bake/pip_lend.h"
#include "bake/plan/plan.h"
#include "bake/root.h"
#include "bake/source/source.h"
#include "bake/plan/stage.h"
#include "common/file.h"
#include "common/str.h"
#include "tests/unit/tap.h"

static char dir[] = "/tmp/parbake-test-XXXXXX";

static const char recipe_base[] =
	"[template]\nname = one\n[machine]\nmemory = 128M\ndisk = 64M\nvcpus = 1\n"
	"[root]\nsource = debian\nsuite = bookworm\npackages = aa bb\n"
	"[files]\n/f = f 0600\n[env]\nK = v\n[install]\n1 = true\n[warm]\n1 = python: 1\n";
static const struct plan_facts facts_base = {
	.epoch = 1000,
	.kernel_digest = "sha256:k",
	.agent_digest = "sha256:a",
	.monitor = "m",
	.accel = "tcg",
};

static void put(const char *where, const char *name, const char *text)
{
	struct err err = {0};

	if (file_publish(where, name, text, strlen(text), 0600, &err))
		ok(0, "write %s: %s", name, err.text);
}

static struct plan make(const char *where, const char *text, const struct plan_facts *facts)
{
	static const char *const no_dirs[] = {NULL};
	cleanup_free char *path = str_printf("%s/one.ini", where);
	struct recipe *r = NULL;
	struct plan p = {0};
	struct err err = {0};
	int rc = recipe_parse(path, text, strlen(text), no_dirs, &r, &err);

	if (!rc)
		rc = plan_make(r, facts, &p, &err);
	if (rc)
		ok(0, "plan: %s", err.text);
	recipe_free(r);
	return p;
}

/* recipe_base with @from replaced by @to. Caller frees. */
static char *changed(const char *from, const char *to)
{
	const char *at = strstr(recipe_base, from);

	if (!at)
		abort();
	return str_printf("%.*s%s%s", (int)(at - recipe_base), recipe_base, to, at + strlen(from));
}

/* Which keys differ from the base plan's, as "source root guest". */
static void differs(
	const struct plan *base, const struct plan *p, const char *want, const char *what)
{
	char got[64] = "";

	for (int i = 0; i < PLAN_STAGES; i++)
		if (strcmp(base->key[i], p->key[i]))
			snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s",
				*got ? " " : "", plan_stage_name((enum plan_stage)i));
	is_str(got, want, "%s", what);
}

static void test_recipe_changes(void)
{
	static const struct {
		const char *from, *to, *want;
	} changes[] = {
		{"packages = aa bb", "packages = bb\n\taa bb", ""},
		{"memory = 128M", "memory =   131072K", ""},
		{"1 = true", "7 = true", ""},
		{"packages = aa bb", "packages = aa", "source root guest"},
		{"bookworm", "trixie", "source root guest"},
		{"disk = 64M", "disk = 65M", "root guest"},
		{"/f = f 0600", "/f = f 0601", "root guest"},
		{"/f = f 0600", "/g = f 0600", "root guest"},
		{"/f = f 0600", "/f = f2 0600", "root guest"},
		{"memory = 128M", "memory = 130M", "guest"},
		{"vcpus = 1", "vcpus = 2", "guest"},
		{"vcpus = 1", "vcpus = 1\nrandomize_addresses = yes", "guest"},
		{"K = v", "K = w", "guest"},
		{"1 = true", "1 = true\n2 = true", "guest"},
		{"1 = true", "pip = six\n1 = true", "guest"},
		{"python: 1", "1", "guest"},
		{"name = one", "name = two", "guest"},
	};
	struct plan base = make(dir, recipe_base, &facts_base);

	ok(digest_valid(base.key[0]) && digest_valid(base.key[1]) && digest_valid(base.key[2]),
		"keys are digests");
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		cleanup_free char *text = changed(changes[i].from, changes[i].to);
		struct plan p = make(dir, text, &facts_base);

		differs(&base, &p, changes[i].want, changes[i].to);
	}
}

static void test_facts(void)
{
	struct plan base = make(dir, recipe_base, &facts_base), p;
	struct plan_facts f = facts_base;

	f.epoch = 1001;
	p = make(dir, recipe_base, &f);
	differs(&base, &p, "source root guest", "SOURCE_DATE_EPOCH");
	f = facts_base;
	f.kernel_digest = "sha256:l";
	p = make(dir, recipe_base, &f);
	differs(&base, &p, "guest", "the kernel");
	f = facts_base;
	f.agent_digest = "sha256:b";
	p = make(dir, recipe_base, &f);
	differs(&base, &p, "guest", "the agent");
	f = facts_base;
	f.monitor = "n";
	p = make(dir, recipe_base, &f);
	differs(&base, &p, "guest", "the monitor");
	f = facts_base;
	f.accel = "kvm";
	p = make(dir, recipe_base, &f);
	differs(&base, &p, "guest", "the accelerator");
}

static void test_places(void)
{
	cleanup_free char *other = str_printf("%s/other", dir), *f = str_printf("%s/other/f", dir);
	struct plan base = make(dir, recipe_base, &facts_base), p;

	mkdir(other, 0700);
	put(other, "f", "content");
	chmod(f, 0777);
	p = make(other, recipe_base, &facts_base);
	differs(&base, &p, "", "another directory, another mode of the file on the host");
	put(other, "f", "Content");
	p = make(other, recipe_base, &facts_base);
	differs(&base, &p, "root guest", "what the file holds");
}

static void test_tar(void)
{
	static const char text[] = "[root]\nsource = tar\npath = f\n";
	static const char *const no_dirs[] = {NULL};
	cleanup_free char *bad = str_printf("%ssha256 = %064d\n", text, 0);
	cleanup_free char *path = str_printf("%s/one.ini", dir);
	char sum[DIGEST_TEXT_SIZE];
	struct plan p = make(dir, text, &facts_base);
	struct recipe *r = NULL;
	struct err err = {0};

	digest_buffer("content", 7, sum);
	is_str(p.source_digest, sum, "an archive's digest is known before it is read");
	ok(!recipe_parse(path, bad, strlen(bad), no_dirs, &r, &err), "a recipe with a wrong sum");
	is_int(plan_make(r, &facts_base, &p, &err), -EBADMSG,
		"a plan whose archive has another sum is refused");
	has_str(err.text, "differs", "a sum that differs is told as different");
	recipe_free(r);
}

/* Recipe, plan, then @name (NULL: nothing) holds what @from does, then the root is made. */
static int root_after_change(const char *text, const char *name, const char *from)
{
	static const char *const no_dirs[] = {NULL};
	cleanup_free char *path = str_printf("%s/one.ini", dir);
	cleanup_free char *other = str_printf("%s/%s", dir, from), *content = NULL;
	struct root_disk root = {.fd = -1};
	struct recipe *r = NULL;
	struct plan p;
	struct err err = {0};
	size_t len;
	int rc = recipe_parse(path, text, strlen(text), no_dirs, &r, &err);

	if (!rc)
		rc = plan_make(r, &facts_base, &p, &err);
	if (!rc && name)
		rc = file_read_all(AT_FDCWD, other, 1 << 20, &content, &len, &err);
	if (!rc && name)
		rc = file_publish(dir, name, content, len, 0644, &err);
	if (!rc)
		rc = root_get(r, &p, facts_base.epoch, false, false, NULL, &root, &err);
	if (rc)
		printf("# %s\n", err.text);
	close_fd(&root.fd);
	recipe_free(r);
	return rc;
}

static void test_changed_meanwhile(void)
{
	static const char recipe[] =
		"[machine]\ndisk = 16M\n[root]\nsource = tar\npath = a.tar\n[files]\n/f = g\n";
	cleanup_free char *line =
		str_printf("cd %s && echo x >x && tar -cf a.tar x && echo y >x && "
			   "tar -cf b.tar x",
			dir);

	ok(system(line) == 0, "two archives");
	put(dir, "g", "before");
	is_int(root_after_change(recipe, "g", "f2"), -ESTALE,
		"a file that changes after the plan is noticed");
	is_int(root_after_change(recipe, "a.tar", "b.tar"), -ESTALE,
		"an archive that changes after the plan is noticed");
	is_int(root_after_change(recipe, NULL, ""), 0, "unchanged, they make a root");
}

static void test_epoch(void)
{
	int64_t v = 0;
	struct err err = {0};

	unsetenv("SOURCE_DATE_EPOCH");
	ok(!plan_epoch(&v, &err) && v == PLAN_EPOCH, "an epoch without the variable");
	setenv("SOURCE_DATE_EPOCH", "12345", 1);
	ok(!plan_epoch(&v, &err) && v == 12345, "SOURCE_DATE_EPOCH is the epoch");
	setenv("SOURCE_DATE_EPOCH", "12 345", 1);
	is_int(plan_epoch(&v, &err), -EINVAL, "an epoch that is no number is refused");
	setenv("SOURCE_DATE_EPOCH", "-1", 1);
	is_int(plan_epoch(&v, &err), -EINVAL, "an epoch before 1970 is refused");
	unsetenv("SOURCE_DATE_EPOCH");
}

static void test_apt(void)
{
	static const char targets[] =
		"Debian|http://mirror.example.org/debian/|bookworm|main\n"
		"Debian|http://mirror.example.org/debian/|bookworm-updates|main\n"
		"Debian|http://mirror.example.org/debian-security/|bookworm-security|main\n"
		"Debian|http://mirror.example.org/debian/|bookworm-backports|main\n"
		"Debian|http://mirror.example.org/debian/|trixie|main\n"
		"Other|http://other.example.org/debian/|bookworm|main\n"
		"Debian|http://x y|bookworm|main\n"
		"Debian|broken\n\n";
	cleanup_free char *list = NULL;
	struct err err = {0};

	ok(!source_debian_list(targets, "bookworm", &list, &err), "the host's sources: %s",
		err.text);
	is_str(list,
		"deb http://mirror.example.org/debian/ bookworm main\n"
		"deb http://mirror.example.org/debian/ bookworm-updates main\n"
		"deb http://mirror.example.org/debian-security/ bookworm-security main\n",
		"apt's lines are those of the suite");
	free(steal_ptr(&list));
	is_int(source_debian_list(targets, "sid", &list, &err), -ENOENT,
		"a suite apt does not know");
	has_str(err.text, "apt-get update", "the error says what to do");
}

static void test_pip(void)
{
	struct pip_lend l;
	char *host;

	pip_lend_parse(
		":env:.cert='/nonexistent/ca.pem'\n"
		"global.index-url='http://wrong.example.org/simple'\n"
		"install.index-url='https://user:pw@Index.example.org:8443/simple'\n"
		"global.extra-index-url='\\nhttps://a.example.org/x\\nhttp://b.example.org'\n"
		"global.find-links='/opt'\n",
		&l);
	is_str(l.index, "https://user:pw@Index.example.org:8443/simple", "the section that counts");
	is_int((int64_t)l.hosts.n, 3, "hosts of all indexes");
	is_str(l.hosts.n ? l.hosts.items[0] : NULL, "index.example.org:8443",
		"an index's host is without user, with port");
	is_str(l.hosts.n > 1 ? l.hosts.items[1] : NULL, "a.example.org:443",
		"the default port of https is known");
	is_str(l.hosts.n > 2 ? l.hosts.items[2] : NULL, "b.example.org:80",
		"the default port of http is known");
	ok(!l.ca_path, "a CA bundle that is not there is not lent");
	is_int((int64_t)l.env.n, 2, "find-links stays at home");
	pip_lend_clear(&l);
	pip_lend_parse("", &l);
	ok(!l.index && !l.hosts.n && !l.env.n, "a pip without configuration lends nothing");
	pip_lend_clear(&l);
	host = pip_url_host("no url");
	ok(!host, "no host in what is no URL");
	free(host);
}

/* A bit of it changed: it is not there. */
static void test_stage_damaged(const char *key)
{
	cleanup_free char *stages = NULL, *path = NULL;
	struct err err = {0};
	int fd = -1;
	char byte;

	ok(!stage_dir(&stages, &err), "the cache has a directory");
	path = str_printf(
		"%s/%s-%s.x", stages, plan_stage_name(PLAN_ROOT), key + strlen("sha256:"));
	fd = open(path, O_RDWR | O_CLOEXEC);
	ok(fd >= 0 && pread(fd, &byte, 1, 0) == 1, "the file");
	byte ^= 1;
	ok(pwrite(fd, &byte, 1, 0) == 1, "a byte of a cached file is changed");
	close(fd);
	is_int(stage_open(PLAN_ROOT, key, "x", &fd, &err), -ENOENT,
		"a changed file of the cache is not used any more");
}

static void test_cache(void)
{
	struct plan p = make(dir, recipe_base, &facts_base);
	const char *key = p.key[PLAN_ROOT];
	struct publish out = PUBLISH_INIT;
	struct err err = {0};
	char text[8] = "";
	int fd = -1;

	is_int(stage_open(PLAN_ROOT, key, "x", &fd, &err), -ENOENT, "an empty cache has no result");
	for (int i = 0; i < 2; i++) {
		ok(!stage_begin(&out, &err), "begin: %s", err.text);
		file_write_full(out.fd, i ? "two" : "one", 3);
		if (!i)
			is_int(stage_open(PLAN_ROOT, key, "x", &fd, &err), -ENOENT,
				"what is not committed is not there");
		ok(!stage_commit(&out, PLAN_ROOT, key, "x", &err), "commit: %s", err.text);
		publish_end(&out);
	}
	ok(!stage_open(PLAN_ROOT, key, "x", &fd, &err), "a committed result is in the cache");
	ok(read(fd, text, 3) == 3 && !strcmp(text, "two"), "the newest");
	close(fd);
	ok(stage_open(PLAN_SOURCE, key, "x", &fd, &err) == -ENOENT, "for its own stage alone");
	test_stage_damaged(key);
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	setenv("PARBAKE_HOME", dir, 1);
	put(dir, "f", "content");
	put(dir, "f2", "other content");
	test_recipe_changes();
	test_facts();
	test_places();
	test_tar();
	test_changed_meanwhile();
	test_epoch();
	test_apt();
	test_pip();
	test_cache();
	file_remove_tree(AT_FDCWD, dir, NULL);
	return tap_done();
}
