/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two template versions. The texts of commands and pages are made from one object. */
#include "prove/diff.h"

#include <string.h>

#include "bake/capture.h"
#include "prove/processes.h"
#include "prove/subject.h"
#include "prove/tree.h"
#include "store/image.h"

/* ---- the config -------------------------------------------------------------------------- */

/* Fields that say how a version is run or was made, in the order in which they are told. */
static const char *const fields[] = {"description", "memory_bytes", "vcpus", "disk_bytes", "accel",
	"monitor", "monitor_version", "machine", "cpu", "kernel_digest", "agent_digest", "protocol",
	"env", "user", "ready", "context", "exec_timeout_ms", "output_bytes", "exec_memory_bytes",
	"exec_pids"};

static json_t *diff_config(const json_t *a, const json_t *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		json_t *x = json_object_get(a, fields[i]), *y = json_object_get(b, fields[i]);

		if ((!x && !y) || (x && y && json_equal(x, y)))
			continue;
		json_array_append_new(list,
			json_pack("{s:s, s:o, s:o}", "field", fields[i], "a",
				x ? json_incref(x) : json_null(), "b",
				y ? json_incref(y) : json_null()));
	}
	return list;
}

static json_t *diff_lines(const struct snapshot_config *a, const struct snapshot_config *b)
{
	const char *x = a->recipe ? a->recipe : "", *y = b->recipe ? b->recipe : "";
	json_t *lines = tree_lines(x, strlen(x), y, strlen(y));

	return lines ? lines : json_array();
}

/* ---- packages ---------------------------------------------------------------------------- */

static int compare_names(const struct package *a, const struct package *b)
{
	int r = (a->kind > b->kind) - (a->kind < b->kind);

	if (!r)
		r = strcmp(a->name, b->name);
	return r ? r : strcmp(a->arch, b->arch);
}

static bool same_package(const struct package *a, const struct package *b)
{
	return !strcmp(a->version, b->version) && !strcmp(a->digest, b->digest);
}

static json_t *diff_packages(const struct inventory *a, const struct inventory *b)
{
	json_t *list = json_array();
	size_t i = 0, j = 0;

	while (i < a->n || j < b->n) {
		const struct package *x = i < a->n ? &a->items[i] : NULL;
		const struct package *y = j < b->n ? &b->items[j] : NULL;
		int order = !x ? 1 : !y ? -1 : compare_names(x, y);
		const struct package *any = order <= 0 ? x : y;

		i += order <= 0;
		j += order >= 0;
		if (!order && same_package(x, y))
			continue;
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:s, s:s?, s:s?}", "kind",
				package_kind_name(any->kind), "name", any->name, "arch", any->arch,
				"a", order <= 0 ? x->version : NULL, "b",
				order >= 0 ? y->version : NULL));
	}
	return list;
}

/* ---- memory ------------------------------------------------------------------------------ */

static int open_memory(const struct diff_side *side, struct image **ret, struct err *err)
{
	const struct store_layer *layer = store_layer(side->manifest, STORE_MEDIA_MEMORY);
	cleanup_fd int fd = -1;
	int r = layer ? store_blob_open(side->store, layer->digest, layer->bytes, &fd, err)
		      : err_set(err, EBADMSG, "it has no memory");

	if (!r)
		r = image_open(fd, ret, err);
	if (r)
		err_prefix(err, "%s:%s", side->manifest->name, side->manifest->tag);
	return r;
}

/* A page of an image, by way of the frame it was read with last. */
struct reader {
	struct image *img;
	uint8_t *buf;
	uint64_t start, bytes; /* of the frame in buf */
};

/* The page at @at: NULL where it is a hole, or in a frame that cannot be read (@ret_r). */
static const uint8_t *page_at(struct reader *rd, uint64_t at, int *ret_r, struct err *err)
{
	if (at >= image_raw_bytes(rd->img) || !image_page_has_data(rd->img, at))
		return NULL;
	if (at < rd->start || at >= rd->start + rd->bytes) {
		image_frame_at(rd->img, at, &rd->start, &rd->bytes);
		*ret_r = image_read_frame(rd->img, rd->start, rd->buf, err);
		if (*ret_r)
			return NULL;
	}
	return rd->buf + (at - rd->start);
}

struct pages {
	uint64_t same, differ, only_a, only_b;
};

static int compare_pages(struct image *a, struct image *b, struct pages *ret, struct err *err)
{
	cleanup_free uint8_t *one = malloc(image_frame_bytes(a)),
			     *other = malloc(image_frame_bytes(b));
	struct reader x = {.img = a, .buf = one}, y = {.img = b, .buf = other};
	uint64_t end =
		image_raw_bytes(a) > image_raw_bytes(b) ? image_raw_bytes(a) : image_raw_bytes(b);
	int r = 0;

	if (!one || !other)
		return err_set(err, ENOMEM, "no memory to compare memories");
	for (uint64_t at = 0; at < end; at += IMAGE_PAGE) {
		const uint8_t *p = page_at(&x, at, &r, err);
		const uint8_t *q = r ? NULL : page_at(&y, at, &r, err);

		if (r)
			return r;
		if (p && q)
			*(memcmp(p, q, IMAGE_PAGE) ? &ret->differ : &ret->same) += 1;
		ret->only_a += p && !q;
		ret->only_b += q && !p;
	}
	return 0;
}

static int diff_memory(
	const struct diff_side *a, const struct diff_side *b, json_t **ret, struct err *err)
{
	cleanup_image struct image *x = NULL, *y = NULL;
	struct pages pages = {0};
	int r = open_memory(a, &x, err);

	if (!r)
		r = open_memory(b, &y, err);
	if (!r)
		r = compare_pages(x, y, &pages, err);
	if (r)
		return r;
	*ret = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "a_bytes",
		(json_int_t)((pages.same + pages.differ + pages.only_a) * IMAGE_PAGE), "b_bytes",
		(json_int_t)((pages.same + pages.differ + pages.only_b) * IMAGE_PAGE), "same_pages",
		(json_int_t)pages.same, "different_pages", (json_int_t)pages.differ, "pages_only_a",
		(json_int_t)pages.only_a, "pages_only_b", (json_int_t)pages.only_b);
	return 0;
}

/* ---- processes --------------------------------------------------------------------------- */

/* JSON's null where the version has no record of them. */
static int read_processes(const struct diff_side *side, json_t **ret, struct err *err)
{
	const struct store_layer *layer = store_layer(side->manifest, STORE_MEDIA_PROCESSES);
	int r = 0;

	if (layer)
		r = store_layer_json(side->store, layer, "the record of processes", ret, err);
	else
		*ret = json_null();
	if (r)
		err_prefix(err, "%s:%s", side->manifest->name, side->manifest->tag);
	return r;
}

static int diff_processes(
	const struct diff_side *a, const struct diff_side *b, json_t **ret, struct err *err)
{
	cleanup_json json_t *x = NULL, *y = NULL;
	int r = read_processes(a, &x, err);

	if (!r)
		r = read_processes(b, &y, err);
	if (!r)
		*ret = processes_compare(x, y);
	return r;
}

/* ---- all of it --------------------------------------------------------------------------- */

static json_t *side_json(const struct store_manifest *m)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "name", m->name, "tag", m->tag, "digest",
		m->digest, "created", m->created);
}

static bool is_same(const json_t *all)
{
	static const char *const lists[] = {"config", "recipe", "packages"};
	static const char *const of_files[] = {"added", "removed", "changed"};
	const json_t *files = json_object_get(all, "files");
	size_t n = 0;

	for (size_t i = 0; i < 3; i++)
		n += json_array_size(json_object_get(all, lists[i])) +
			json_array_size(json_object_get(files, of_files[i]));
	return !n && processes_same(json_object_get(all, "processes"));
}

int diff_versions(const struct diff_side *a, const struct diff_side *b, struct progress *progress,
	json_t **ret, struct err *err)
{
	cleanup_subject struct subject x = SUBJECT_INIT, y = SUBJECT_INIT;
	cleanup_json json_t *all = NULL, *files = NULL, *memory = NULL, *processes = NULL;
	int r = subject_open(a->store, a->manifest, progress, &x, err);

	if (!r)
		r = subject_open(b->store, b->manifest, progress, &y, err);
	if (!r)
		r = tree_compare(x.disk, y.disk, &files, err);
	if (!r)
		r = diff_memory(a, b, &memory, err);
	if (!r)
		r = diff_processes(a, b, &processes, err);
	if (r)
		return r;
	all = json_pack("{s:o, s:o, s:o, s:o, s:o, s:O, s:O, s:O}", "a", side_json(a->manifest),
		"b", side_json(b->manifest), "config",
		diff_config(a->manifest->config, b->manifest->config), "recipe",
		diff_lines(&x.config, &y.config), "packages",
		diff_packages(&x.packages, &y.packages), "files", files, "memory", memory,
		"processes", processes);
	if (!all)
		abort();
	json_object_set_new(all, "same", json_boolean(is_same(all)));
	*ret = steal_ptr(&all);
	return 0;
}

int diff_recipe(
	const struct bake_view *view, const struct store_manifest *b, json_t **ret, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config have = {0}, want = {0};
	cleanup_json json_t *config = NULL, *all = NULL;
	int r = snapshot_config_from_json(b->config, &have, err);

	if (r)
		return r;
	capture_describe(&(struct capture_what){.recipe = view->recipe,
				 .plan = view->plan,
				 .monitor = view->monitor,
				 .accel = view->accel,
				 .kernel_digest = view->kernel_digest,
				 .initrd_digest = view->agent_digest},
		&want);
	config = snapshot_config_to_json(&want);
	all = json_pack("{s:{s:s, s:s}, s:o, s:o, s:o}", "a", "name", view->recipe->name, "digest",
		view->plan->recipe_digest, "b", side_json(b), "config",
		diff_config(config, b->config), "recipe", diff_lines(&want, &have));
	if (!all)
		abort();
	json_object_set_new(all, "same", json_boolean(is_same(all)));
	*ret = steal_ptr(&all);
	return 0;
}
