/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the package managers' own records from a disk. */
#include "prove/inventory.h"

#include <string.h>
#include <sys/stat.h>

#include "common/json.h"
#include "common/limits.h"
#include "prove/limits.h"
#include "common/str.h"

#define STATUS_BYTES (64 * MIB)
#define RECORD_BYTES (16 * MIB)

static const struct {
	const char *name, *purl;
} kinds[] = {
	[PACKAGE_DEBIAN] = {"debian", "deb"},
	[PACKAGE_NPM] = {"npm", "npm"},
	[PACKAGE_PYTHON] = {"wheel", "pypi"},
};
_Static_assert(sizeof(kinds) / sizeof(*kinds) == PACKAGE_KINDS, "every kind has its words");

const char *package_kind_name(enum package_kind kind)
{
	return kinds[kind].name;
}

const char *package_kind_purl(enum package_kind kind)
{
	return kinds[kind].purl;
}

/* Is it a word that may stand in a lock? */
static bool is_word(const char *text)
{
	for (const char *p = text; *p; p++)
		if (*p <= ' ' || *p == 0x7f)
			return false;
	return *text && strlen(text) < LIMIT_PACKAGE_TEXT;
}

/* Takes @name, @version, @arch; a package without a proper name and version is left out. */
static struct package *add(
	struct inventory *inv, enum package_kind kind, char *name, char *version, char *arch)
{
	if (!name || !version || !is_word(name) || !is_word(version) || inv->n >= LIMIT_INVENTORY) {
		free(name);
		free(version);
		free(arch);
		return NULL;
	}
	inv->items = reallocarray(inv->items, inv->n + 1, sizeof(*inv->items));
	if (!inv->items)
		abort();
	inv->items[inv->n] = (struct package){
		.kind = kind, .name = name, .version = version, .arch = arch ? arch : str_dup("")};
	return &inv->items[inv->n++];
}

/* The value of "@key: …" in the lines from @text to @end. Caller frees; NULL: not there. */
static char *field(const char *text, const char *end, const char *key)
{
	size_t len = strlen(key);

	for (const char *line = text, *next; line < end; line = next) {
		next = memchr(line, '\n', (size_t)(end - line));
		next = next ? next + 1 : end;
		if ((size_t)(next - line) > len + 1 && !strncmp(line, key, len) &&
			line[len] == ':') {
			const char *from = line + len + 1, *to = next;

			while (from < to && (*from == ' ' || *from == '\t'))
				from++;
			while (to > from && (to[-1] == '\n' || to[-1] == '\r' || to[-1] == ' '))
				to--;
			return strndup(from, (size_t)(to - from));
		}
	}
	return NULL;
}

/* ---- Debian ------------------------------------------------------------------------------ */

static void sum_of(struct ext4_image *img, const char *path, char ret[static DIGEST_TEXT_SIZE])
{
	uint32_t ino;

	if (ext4_image_find(img, path, &ino) || ext4_image_digest(img, ino, ret, NULL))
		*ret = '\0';
}

static void add_debian(
	struct ext4_image *img, struct inventory *inv, const char *from, const char *to)
{
	cleanup_free char *status = field(from, to, "Status"), *list = NULL;
	struct package *p;

	if (!status || !strstr(status, " installed"))
		return;
	p = add(inv, PACKAGE_DEBIAN, field(from, to, "Package"), field(from, to, "Version"),
		field(from, to, "Architecture"));
	if (!p || strchr(p->name, '/'))
		return;
	list = str_printf("/var/lib/dpkg/info/%s.md5sums", p->name);
	sum_of(img, list, p->digest);
	if (*p->digest)
		return;
	free(list);
	list = str_printf("/var/lib/dpkg/info/%s:%s.md5sums", p->name, p->arch);
	sum_of(img, list, p->digest);
}

static int read_debian(struct ext4_image *img, struct inventory *inv, struct err *err)
{
	cleanup_free char *text = NULL;
	uint32_t ino;
	size_t len;
	int r;

	if (ext4_image_find(img, "/var/lib/dpkg/status", &ino))
		return 0;
	r = ext4_image_read(img, ino, STATUS_BYTES, &text, &len, err);
	if (r) {
		err_prefix(err, "/var/lib/dpkg/status");
		return r;
	}
	for (const char *p = text, *end = text + len, *next; p < end; p = next) {
		next = memmem(p, (size_t)(end - p), "\n\n", 2);
		next = next ? next + 2 : end;
		add_debian(img, inv, p, next);
	}
	return 0;
}

/* ---- Python and Node --------------------------------------------------------------------- */

struct look {
	struct ext4_image *img;
	struct inventory *inv;
	struct err *err;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

static int add_wheel(struct look *l, const struct ext4_found *f)
{
	cleanup_free char *text = NULL, *record = NULL;
	const char *head_end;
	struct package *p;
	size_t len;
	int r = ext4_image_read(l->img, f->ino, RECORD_BYTES, &text, &len, l->err);

	if (r)
		return r == -EFBIG ? 0 : r;
	/* behind the first empty line is what the package says of itself */
	head_end = strstr(text, "\n\n");
	if (!head_end)
		head_end = text + strlen(text);
	p = add(l->inv, PACKAGE_PYTHON, field(text, head_end, "Name"),
		field(text, head_end, "Version"), NULL);
	if (!p)
		return 0;
	record = str_printf("%.*sRECORD", (int)(strlen(f->path) - strlen("METADATA")), f->path);
	sum_of(l->img, record, p->digest);
	return 0;
}

static int add_node(struct look *l, const struct ext4_found *f)
{
	cleanup_free char *text = NULL;
	cleanup_json json_t *json = NULL;
	const char *name, *version;
	struct package *p;
	size_t len;
	int r = ext4_image_read(l->img, f->ino, RECORD_BYTES, &text, &len, l->err);

	if (r)
		return r == -EFBIG ? 0 : r;
	json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	name = json_string_value(json_object_get(json, "name"));
	version = json_string_value(json_object_get(json, "version"));
	p = add(l->inv, PACKAGE_NPM, str_dup(name), str_dup(version), NULL);
	if (p)
		digest_buffer(text, len, p->digest);
	return 0;
}

/* "…/node_modules/NAME/package.json" or "…/node_modules/@SCOPE/NAME/package.json" */
static bool is_node(const char *path)
{
	const char *last = NULL, *p = path;
	unsigned parts = 0;

	while ((p = strstr(p, "/node_modules/")))
		last = p += strlen("/node_modules/");
	if (!last)
		return false;
	for (p = last; (p = strchr(p, '/')); p++)
		parts++;
	return parts == (*last == '@' ? 2 : 1);
}

static int look_at(void *user, const struct ext4_found *f)
{
	if (!S_ISREG(f->mode))
		return 0;
	if (!strcmp(f->name, "METADATA") && ends_with(f->path, ".dist-info/METADATA") &&
		strncmp(f->path, "/usr/lib/python3/", 17))
		return add_wheel(user, f);
	if (!strcmp(f->name, "package.json") && is_node(f->path))
		return add_node(user, f);
	return 0;
}

/* ---- all of them ------------------------------------------------------------------------- */

static int in_order(const void *a, const void *b)
{
	const struct package *x = a, *y = b;
	int r = (x->kind > y->kind) - (x->kind < y->kind);

	if (!r)
		r = strcmp(x->name, y->name);
	if (!r)
		r = strcmp(x->version, y->version);
	return r ? r : strcmp(x->digest, y->digest);
}

int inventory_read(struct ext4_image *img, struct inventory *ret, struct err *err)
{
	cleanup_inventory struct inventory inv = {0};
	struct look l = {img, &inv, err};
	int r = read_debian(img, &inv, err);

	if (!r)
		r = ext4_image_walk(img, look_at, &l, err);
	if (r)
		return r;
	if (inv.n)
		qsort(inv.items, inv.n, sizeof(*inv.items), in_order);
	*ret = inv;
	inv = (struct inventory){0};
	return 0;
}

void inventory_clear(struct inventory *inv)
{
	for (size_t i = 0; i < inv->n; i++) {
		free(inv->items[i].name);
		free(inv->items[i].version);
		free(inv->items[i].arch);
	}
	free(inv->items);
	*inv = (struct inventory){0};
}
