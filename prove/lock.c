/* SPDX-License-Identifier: Apache-2.0 */
/* The text of locks, and what is the difference between two. */
#include "prove/lock.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "common/limits.h"

#define HEAD "parbake-lock 1\n"

static const char *const names[] = {
	[LOCK_AGENT] = "agent",
	[LOCK_ARCHIVE] = "archive",
	[LOCK_DEBIAN] = "debian",
	[LOCK_EPOCH] = "epoch",
	[LOCK_FILE] = "file",
	[LOCK_KERNEL] = "kernel",
	[LOCK_MONITOR] = "monitor",
	[LOCK_NPM] = "npm",
	[LOCK_PARBAKE] = "parbake",
	[LOCK_RECIPE] = "recipe",
	[LOCK_ROOT] = "root",
	[LOCK_WHEEL] = "wheel",
};
static_assert(sizeof(names) / sizeof(*names) == LOCK_KINDS, "every kind has its word");

/* ---- lines ------------------------------------------------------------------------------- */

/* A word of a lock: blanks, controls and % as %XX; "-" where there is nothing. Caller frees. */
static char *encoded(const char *text)
{
	char *out = NULL;
	size_t len;
	FILE *f;

	if (!text || !*text)
		return str_dup("-");
	f = open_memstream(&out, &len);
	if (!f)
		abort();
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		fprintf(f, *p <= ' ' || *p == '%' || *p == 0x7f ? "%%%02X" : "%c", *p);
	if (fclose(f))
		abort();
	return out;
}

static void add_line(struct lock *l, enum lock_kind kind, const char *name, const char *version,
	const char *digest)
{
	l->lines = reallocarray(l->lines, l->n + 1, sizeof(*l->lines));
	if (!l->lines)
		abort();
	l->lines[l->n++] =
		(struct lock_line){kind, encoded(name), encoded(version), encoded(digest)};
}

static int compare_lines(const struct lock_line *x, const struct lock_line *y)
{
	int r = strcmp(names[x->kind], names[y->kind]);

	return r ? r : strcmp(x->name, y->name);
}

static int in_order(const void *a, const void *b)
{
	const struct lock_line *x = a, *y = b;
	int r = compare_lines(x, y);

	if (!r)
		r = strcmp(x->version, y->version);
	return r ? r : strcmp(x->digest, y->digest);
}

static void sort_lines(struct lock *l)
{
	if (l->n)
		qsort(l->lines, l->n, sizeof(*l->lines), in_order);
}

void lock_clear(struct lock *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->lines[i].name);
		free(l->lines[i].version);
		free(l->lines[i].digest);
	}
	free(l->lines);
	*l = (struct lock){0};
}

/* ---- text -------------------------------------------------------------------------------- */

char *lock_text(const struct lock *l)
{
	struct lock sorted = {calloc(l->n + 1, sizeof(*l->lines)), l->n};
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f || !sorted.lines)
		abort();
	if (l->n)
		memcpy(sorted.lines, l->lines, l->n * sizeof(*l->lines));
	sort_lines(&sorted);
	fputs(HEAD, f);
	for (size_t i = 0; i < sorted.n; i++) {
		const struct lock_line *line = &sorted.lines[i];

		/* a package that lies there twice is one input */
		if (i && !in_order(line - 1, line))
			continue;
		fprintf(f, "%s %s %s %s\n", names[line->kind], line->name, line->version,
			line->digest);
	}
	if (fclose(f))
		abort();
	free(sorted.lines);
	return out;
}

static int parse_line(
	struct lock *l, char *line, const char *path, unsigned number, struct err *err)
{
	char *words[4], *save = NULL;
	size_t n = 0;
	unsigned kind = 0;

	for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		if (n == 4)
			return err_set(err, EINVAL, "%s:%u: more than four words", path, number);
		words[n++] = w;
	}
	if (n != 4)
		return err_set(err, EINVAL,
			"%s:%u: a line is four words: kind, name, version, digest", path, number);
	while (kind < LOCK_KINDS && strcmp(names[kind], words[0]))
		kind++;
	if (kind == LOCK_KINDS)
		return err_set(
			err, EINVAL, "%s:%u: there is no kind \"%.40s\"", path, number, words[0]);
	if (strcmp(words[3], "-") && !digest_valid(words[3]))
		return err_set(
			err, EINVAL, "%s:%u: \"%.80s\" is no digest", path, number, words[3]);
	l->lines = reallocarray(l->lines, l->n + 1, sizeof(*l->lines));
	if (!l->lines)
		abort();
	l->lines[l->n++] = (struct lock_line){
		(enum lock_kind)kind, str_dup(words[1]), str_dup(words[2]), str_dup(words[3])};
	return 0;
}

int lock_parse(const char *path, const char *text, size_t len, struct lock *ret, struct err *err)
{
	cleanup_lock struct lock l = {0};
	cleanup_free char *copy = strndup(text, len);
	unsigned number = 0;
	int r = 0;

	if (!copy)
		abort();
	if (strlen(copy) != len || (len && text[len - 1] != '\n'))
		return err_set(err, EINVAL, "%s: no lock, or one that was cut off", path);
	if (strncmp(copy, HEAD, strlen(HEAD)))
		return err_set(err, EINVAL,
			"%s: its first line is not \"parbake-lock 1\": make it anew with `parbake "
			"bake "
			"--lock`, or use the parbake that wrote it",
			path);
	for (char *line = copy, *end; !r && (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (number++)
			r = parse_line(&l, line, path, number, err);
	}
	if (r)
		return r;
	sort_lines(&l);
	*ret = l;
	l = (struct lock){0};
	return 0;
}

char *lock_path(const struct recipe *r)
{
	const char *file = r->files_read[r->n_files_read - 1], *slash = strrchr(file, '/');

	return str_printf("%.*s%s.lock", slash ? (int)(slash + 1 - file) : 0, file, r->name);
}

/* ---- what a bake is made of -------------------------------------------------------------- */

/* Add what is known before anything is baked. Reads the files of [files]. */
static int lock_add_inputs(struct lock *l, const struct bake_view *view, struct err *err)
{
	const struct recipe *r = view->recipe;
	cleanup_free char *epoch = str_printf("%lld", (long long)view->epoch);
	cleanup_free char *monitor =
		str_printf("%s/%s/%s/%s", view->monitor->name, machine_accel_name(view->accel),
			view->monitor->machine, monitor_cpu_model(view->monitor, view->accel));

	add_line(l, LOCK_AGENT, "initramfs", NULL, view->agent_digest);
	add_line(l, LOCK_EPOCH, "SOURCE_DATE_EPOCH", epoch, NULL);
	add_line(l, LOCK_KERNEL, "vmlinux", NULL, view->kernel_digest);
	add_line(l, LOCK_MONITOR, monitor, view->monitor->version, NULL);
	add_line(l, LOCK_PARBAKE, "parbake", PARBAKE_VERSION, NULL);
	add_line(l, LOCK_RECIPE, r->name, NULL, view->plan->recipe_digest);
	if (r->source == RECIPE_TAR)
		add_line(l, LOCK_ARCHIVE, "root", NULL, view->plan->source_digest);
	for (size_t i = 0; i < r->n_files; i++) {
		char digest[DIGEST_TEXT_SIZE];
		int rc = plan_file_digest(r->files[i].host, digest, err);

		if (rc) {
			err_prefix(err, "[files] %s", r->files[i].guest);
			return rc;
		}
		add_line(l, LOCK_FILE, r->files[i].guest, NULL, digest);
	}
	return 0;
}

static void lock_add_packages(struct lock *l, const struct inventory *packages)
{
	static const enum lock_kind kinds[] = {
		[PACKAGE_DEBIAN] = LOCK_DEBIAN,
		[PACKAGE_NPM] = LOCK_NPM,
		[PACKAGE_PYTHON] = LOCK_WHEEL,
	};

	for (size_t i = 0; i < packages->n; i++) {
		const struct package *p = &packages->items[i];
		cleanup_free char *name =
			*p->arch ? str_printf("%s:%s", p->name, p->arch) : str_dup(p->name);

		add_line(l, kinds[p->kind], name, p->version, p->digest);
	}
}

static void lock_add_root(struct lock *l, const char *digest)
{
	add_line(l, LOCK_ROOT, "disk", NULL, digest);
}

/* ---- drift ------------------------------------------------------------------------------- */

/* "7.88 sha256:…", of a line; caller frees. */
static char *value(const struct lock_line *line)
{
	bool version = strcmp(line->version, "-"), digest = strcmp(line->digest, "-");

	return str_printf("%s%s%s", version ? line->version : "", version && digest ? " " : "",
		digest ? line->digest : "");
}

static void tell(struct strings *drift, const struct lock_line *want, const struct lock_line *have)
{
	const struct lock_line *any = want ? want : have;
	cleanup_free char *was = want ? value(want) : NULL, *is = have ? value(have) : NULL;
	cleanup_free char *line = str_printf("%s %s: %s%s, %s%s", names[any->kind], any->name,
		want ? "locked as " : "not in the lock", want ? was : "",
		have ? "here it is " : "not here", have ? is : "");

	strings_add(drift, line);
}

void lock_compare(const struct lock *want, const struct lock *have, unsigned kinds, bool more,
	struct strings *drift)
{
	size_t i = 0, j = 0;

	while (i < want->n || j < have->n) {
		const struct lock_line *w = i < want->n ? &want->lines[i] : NULL;
		const struct lock_line *h = j < have->n ? &have->lines[j] : NULL;
		int order = !w ? 1 : !h ? -1 : compare_lines(w, h);

		/* of the same name, the same line if there is one */
		if (!order && in_order(w, h) && w->kind == h->kind) {
			if (i + 1 < want->n && !in_order(&want->lines[i + 1], h))
				order = -1;
			else if (j + 1 < have->n && !in_order(w, &have->lines[j + 1]))
				order = 1;
		}
		if (order <= 0)
			i++;
		if (order >= 0)
			j++;
		if (!(kinds >> (order <= 0 ? w : h)->kind & 1))
			continue;
		if (order < 0 && more)
			continue;
		if (order || in_order(w, h))
			tell(drift, order <= 0 ? w : NULL, order >= 0 ? h : NULL);
	}
}

/* ---- watching a bake --------------------------------------------------------------------- */

void lock_watch_clear(struct lock_watch *w)
{
	lock_clear(&w->lock);
	strings_clear(&w->drift);
}

static int judge(
	struct lock_watch *w, struct lock *have, unsigned kinds, bool more, struct err *err)
{
	sort_lines(have);
	lock_compare(&w->lock, have, kinds, more, &w->drift);
	return w->drift.n
		? err_set(err, ESTALE, "it differs from the lock in %zu of its lines", w->drift.n)
		: 0;
}

/*
 * The root disk, before anything was done in the guest. Steps may install more packages, so one that is missing is told only
 * where the root is another one anyway: a Debian package that the mirror has no more.
 */
static int judge_root(
	struct lock_watch *w, const struct bake_view *view, struct lock *have, struct err *err)
{
	cleanup_lock struct lock root = {0};

	lock_add_root(&root, view->root_digest);
	sort_lines(have);
	lock_compare(&w->lock, &root, 1U << LOCK_ROOT, false, &w->drift);
	lock_compare(&w->lock, have, 1U << LOCK_DEBIAN, !w->drift.n, &w->drift);
	return judge(w, have, 1U << LOCK_NPM | 1U << LOCK_WHEEL, true, err);
}

static int add_made(struct lock *l, const struct bake_view *view, struct err *err)
{
	cleanup_subject struct subject subject = SUBJECT_INIT;
	int r = subject_open(view->store, view->made, NULL, &subject, err);

	if (r)
		return r;
	lock_add_packages(l, &subject.packages);
	lock_add_root(l, subject.config.disk_raw_digest);
	return 0;
}

static int add_root_packages(struct lock *l, const struct bake_view *view, struct err *err)
{
	cleanup_ext4_image struct ext4_image *root = NULL;
	cleanup_inventory struct inventory packages = {0};
	int r = ext4_image_open(view->root_fd, &root, err);

	if (!r)
		r = inventory_read(root, &packages, err);
	if (!r)
		lock_add_packages(l, &packages);
	return r;
}

int lock_hold(void *user, enum bake_point point, const struct bake_view *view, struct err *err)
{
	const unsigned packages = 1U << LOCK_DEBIAN | 1U << LOCK_NPM | 1U << LOCK_WHEEL;
	cleanup_lock struct lock have = {0};
	int r;

	switch (point) {
	case BAKE_PLANNED:
		r = lock_add_inputs(&have, view, err);
		return r ? r : judge(user, &have, LOCK_INPUTS, false, err);
	case BAKE_ROOTED:
		r = add_root_packages(&have, view, err);
		return r ? r : judge_root(user, view, &have, err);
	case BAKE_MADE:
		r = add_made(&have, view, err);
		return r ? r : judge(user, &have, packages | 1U << LOCK_ROOT, false, err);
	}
	return 0;
}

int lock_make(void *user, enum bake_point point, const struct bake_view *view, struct err *err)
{
	struct lock_watch *w = user;

	if (point == BAKE_PLANNED)
		return lock_add_inputs(&w->lock, view, err);
	return point == BAKE_MADE ? add_made(&w->lock, view, err) : 0;
}
