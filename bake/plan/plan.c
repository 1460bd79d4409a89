/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache keys. Each stage's inputs go into one sum as lines `name length` and the bytes, so that two
 * different lists of inputs never give the same text. A stage's own version stands first: it is
 * raised when the code of the stage begins to make something different from the same inputs.
 *
 * A file's path, its times and its permissions are no inputs; its content is.
 */
#include "bake/plan/plan.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/str.h"

static const struct {
	const char *name;
	unsigned version;
} stages[] = {
	[PLAN_SOURCE] = {"source", 1},
	[PLAN_ROOT] = {"root", 1},
	[PLAN_GUEST] = {"guest", 3},
};
_Static_assert(sizeof(stages) / sizeof(*stages) == PLAN_STAGES, "every stage has a name");

const char *plan_stage_name(enum plan_stage stage)
{
	return stages[stage].name;
}

int plan_epoch(int64_t *ret, struct err *err)
{
	const char *env = getenv("SOURCE_DATE_EPOCH");
	char *end;
	long long v;

	*ret = PLAN_EPOCH;
	if (!env || !*env)
		return 0;
	errno = 0;
	v = strtoll(env, &end, 10);
	/* ext4 with 256-byte inodes ends in 2446 */
	if (errno || *end || v < 0 || v > 15032385535LL)
		return err_set(err, EINVAL,
			"SOURCE_DATE_EPOCH = %s: not seconds since 1970; unset it or write e.g. %d",
			env, PLAN_EPOCH);
	*ret = v;
	return 0;
}

static void add(struct digest *d, const char *name, const char *value)
{
	cleanup_free char *head = str_printf("%s %zu\n", name, value ? strlen(value) : 0);

	digest_update(d, head, strlen(head));
	if (value)
		digest_update(d, value, strlen(value));
}

static void add_number(struct digest *d, const char *name, int64_t v)
{
	cleanup_free char *text = str_printf("%" PRId64, v);

	add(d, name, text);
}

static struct digest *begin(enum plan_stage stage)
{
	struct digest *d = digest_new();

	add(d, "stage", stages[stage].name);
	add_number(d, "version", stages[stage].version);
	return d;
}

int plan_file_digest(const char *path, char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return err_sys(err, errno, "%s", path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "%s: not a regular file", path);
	return digest_fd(fd, ret, err);
}

static int source_key(
	const struct recipe *r, const struct plan_facts *facts, struct plan *p, struct err *err)
{
	cleanup_digest struct digest *d = begin(PLAN_SOURCE);

	if (r->source == RECIPE_DEBIAN) {
		add(d, "source", "debian");
		add(d, "suite", r->suite);
		for (size_t i = 0; i < r->packages.n; i++)
			add(d, "package", r->packages.items[i]);
		add_number(d, "epoch", facts->epoch);
		digest_final(d, p->key[PLAN_SOURCE]);
		return 0;
	}
	if (r->path) {
		int rc = plan_file_digest(r->path, p->source_digest, err);

		if (rc) {
			err_prefix(err, "[root] path");
			return rc;
		}
		if (r->sha256[0] && strcmp(p->source_digest + strlen("sha256:"), r->sha256))
			return err_set(err, EBADMSG,
				"[root] path: %s differs: the recipe says sha256 %s, the file has "
				"%s",
				r->path, r->sha256, p->source_digest + strlen("sha256:"));
	} else {
		snprintf(p->source_digest, sizeof(p->source_digest), "sha256:%s", r->sha256);
	}
	add(d, "source", "tar");
	add(d, "digest", p->source_digest);
	digest_final(d, p->key[PLAN_SOURCE]);
	return 0;
}

void plan_root_key(const struct recipe *r, int64_t epoch, const struct plan *p,
	const char (*sums)[DIGEST_TEXT_SIZE], char ret[static DIGEST_TEXT_SIZE])
{
	cleanup_digest struct digest *d = begin(PLAN_ROOT);

	add(d, "before", p->key[PLAN_SOURCE]);
	add_number(d, "epoch", epoch);
	add_number(d, "disk", (int64_t)r->disk_bytes);
	for (size_t i = 0; i < r->n_files; i++) {
		add(d, "file", r->files[i].guest);
		add_number(d, "mode", r->files[i].mode);
		add(d, "digest", sums[i]);
	}
	digest_final(d, ret);
}

static int root_key(
	const struct recipe *r, const struct plan_facts *facts, struct plan *p, struct err *err)
{
	cleanup_free char(*sums)[DIGEST_TEXT_SIZE] = calloc(r->n_files + 1, sizeof(*sums));

	if (!sums)
		abort();
	for (size_t i = 0; i < r->n_files; i++) {
		int rc = plan_file_digest(r->files[i].host, sums[i], err);

		if (rc) {
			err_prefix(err, "[files] %s", r->files[i].guest);
			return rc;
		}
	}
	plan_root_key(r, facts->epoch, p, sums, p->key[PLAN_ROOT]);
	return 0;
}

int plan_make(
	const struct recipe *r, const struct plan_facts *facts, struct plan *ret, struct err *err)
{
	cleanup_free char *text = recipe_text(r);
	cleanup_digest struct digest *d = NULL;
	struct plan p = {0};
	int rc;

	digest_buffer(text, strlen(text), p.recipe_digest);
	rc = source_key(r, facts, &p, err);
	if (!rc)
		rc = root_key(r, facts, &p, err);
	if (rc)
		return rc;
	d = begin(PLAN_GUEST);
	add(d, "before", p.key[PLAN_ROOT]);
	add(d, "recipe", text);
	add(d, "kernel", facts->kernel_digest);
	add(d, "agent", facts->agent_digest);
	add(d, "monitor", facts->monitor);
	add(d, "accel", facts->accel);
	digest_final(d, p.key[PLAN_GUEST]);
	*ret = p;
	return 0;
}
