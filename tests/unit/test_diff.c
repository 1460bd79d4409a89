/* SPDX-License-Identifier: Apache-2.0 */
/* The difference of two texts, and of two trees. */
#include <stdlib.h>
#include <sys/stat.h>

#include "bake/ext4/ext4.h"
#include "prove/tree.h"
#include "tests/unit/ext4_images.h"

static void lines(const char *a, const char *b, const char *want)
{
	json_t *list = tree_lines(a, strlen(a), b, strlen(b));
	cleanup_free char *text = list ? json_text(list) : str_dup("(null)");

	is_str(text, want, "lines: %s", want);
	json_decref(list);
}

static void test_lines(void)
{
	cleanup_free char *many = calloc(1, 1000);

	lines("", "", "[]");
	lines("a\nb\nc\n", "a\nb\nc\n", "[]");
	lines("a\nb\nc\n", "a\nc\n", "[\"-b\"]");
	lines("a\nc\n", "a\nb\nc", "[\"+b\"]");
	lines("a\nb\nc\n", "a\nx\nc\n", "[\"-b\",\"+x\"]");
	lines("a\nb\n", "b\na\n", "[\"-a\",\"+a\"]");
	lines("a\377\n", "", "[\"-a\357\277\275\"]");
	memset(many, '\n', 900);
	lines(many, "x", "(null)");
	memset(many, 0, 1000);
	memset(many, '\n', 300);
	json_t *list = tree_lines(many, 300, "x", 1);

	is_int((int64_t)json_array_size(list), TREE_LINES, "a long difference is cut");
	json_decref(list);
}

struct made {
	const char *path, *text; /* NULL: a directory */
	unsigned mode, uid;
	const char *link, *capability; /* a value of security.capability */
};

static int make(const char *name, const struct made *items, size_t n)
{
	struct ext4_options opt = {.bytes = 16 << 20, .time = 1, .label = "test"};
	int fd = image_file(name);
	struct ext4 *fs = NULL;
	struct err err = {0};
	int r = ext4_create(fd, &opt, &fs, &err);

	for (size_t i = 0; i < n && !r; i++) {
		const struct made *m = &items[i];
		struct ext4_meta meta = {.uid = m->uid,
			.mode = (m->link                  ? S_IFLNK
						: m->text ? S_IFREG
							  : S_IFDIR) |
				m->mode};
		struct ext4_xattr x = {"security.capability", m->capability,
			m->capability ? strlen(m->capability) : 0};

		if (m->capability) {
			meta.xattrs = &x;
			meta.n_xattrs = 1;
		}
		if (m->link)
			r = ext4_add_symlink(fs, m->path, m->link, &meta, &err);
		else if (!m->text)
			r = ext4_add_dir(fs, m->path, &meta, &err);
		else if (!(r = ext4_file_begin(fs, m->path, &meta, &err)) &&
			!(r = ext4_file_write(fs, 0, m->text, strlen(m->text), &err)))
			r = ext4_file_end(fs, strlen(m->text), &err);
	}
	if (r || ext4_finish(fs, NULL, &err))
		ok(0, "an image: %s", err.text);
	return fd;
}

static void test_trees(void)
{
	static const struct made a[] = {
		{"/etc/a", "one\ntwo\n", 0644, 0, NULL, NULL},
		{"/etc/same", "same", 0644, 0, NULL, NULL},
		{"/etc/mode", "text", 0644, 0, NULL, NULL},
		{"/etc/owner", "text", 0644, 0, NULL, NULL},
		{"/etc/link", NULL, 0777, 0, "a", NULL},
		{"/etc/kind", "text", 0644, 0, NULL, NULL},
		{"/etc/ping", "text", 0755, 0, NULL, "one"},
		{"/etc/pong", "text", 0755, 0, NULL, "one"},
		{"/etc/sung", "text", 0755, 0, NULL, NULL},
		{"/etc-gone", "12345", 0644, 0, NULL, NULL},
	};
	static const struct made b[] = {
		{"/etc/a", "one\nTWO\n", 0644, 0, NULL, NULL},
		{"/etc/same", "same", 0644, 0, NULL, NULL},
		{"/etc/mode", "text", 04755, 0, NULL, NULL},
		{"/etc/owner", "text", 0644, 7, NULL, NULL},
		{"/etc/link", NULL, 0777, 0, "b", NULL},
		{"/etc/kind", NULL, 0755, 0, NULL, NULL},
		{"/etc/ping", "text", 0755, 0, NULL, "one"},
		{"/etc/pong", "text", 0755, 0, NULL, "two"},
		{"/etc/sung", "text", 0755, 0, NULL, "one"},
		{"/srv/x/y/z/new", "0123456789", 0644, 0, NULL, NULL},
	};
	cleanup_fd int x = make("a", a, sizeof(a) / sizeof(*a)),
		       y = make("b", b, sizeof(b) / sizeof(*b));
	cleanup_ext4_image struct ext4_image *one = NULL, *other = NULL;
	cleanup_json json_t *got = NULL, *none = NULL;
	cleanup_free char *added = NULL, *removed = NULL, *changed = NULL, *dirs = NULL,
			  *nothing = NULL;
	struct err err = {0};

	if (ext4_image_open(x, &one, &err) || ext4_image_open(y, &other, &err))
		abort();
	is_int(tree_compare(one, other, &got, &err), 0, "two trees are compared");
	added = json_text(json_object_get(got, "added"));
	removed = json_text(json_object_get(got, "removed"));
	changed = json_text(json_object_get(got, "changed"));
	dirs = json_text(json_object_get(got, "directories"));
	is_str(removed, "[{\"bytes\":5,\"path\":\"/etc-gone\",\"type\":\"file\"}]", "what is gone");
	is_str(added,
		"[{\"bytes\":0,\"path\":\"/srv\",\"type\":\"directory\"},"
		"{\"bytes\":0,\"path\":\"/srv/x\",\"type\":\"directory\"},"
		"{\"bytes\":0,\"path\":\"/srv/x/y\",\"type\":\"directory\"},"
		"{\"bytes\":0,\"path\":\"/srv/x/y/z\",\"type\":\"directory\"},"
		"{\"bytes\":10,\"path\":\"/srv/x/y/z/new\",\"type\":\"file\"}]",
		"what is new");
	is_str(changed,
		"[{\"a_bytes\":8,\"b_bytes\":8,\"lines\":[\"-two\",\"+TWO\"],\"path\":\"/etc/"
		"a\",\"what\":[\"content\"]},"
		"{\"a_bytes\":4,\"b_bytes\":0,\"path\":\"/etc/kind\",\"what\":[\"type\",\"mode\"]},"
		"{\"a_bytes\":1,\"b_bytes\":1,\"path\":\"/etc/link\",\"what\":[\"link\"]},"
		"{\"a_bytes\":4,\"b_bytes\":4,\"path\":\"/etc/mode\",\"what\":[\"mode\"]},"
		"{\"a_bytes\":4,\"b_bytes\":4,\"path\":\"/etc/owner\",\"what\":[\"owner\"]},"
		"{\"a_bytes\":4,\"b_bytes\":4,\"path\":\"/etc/pong\",\"what\":[\"xattrs\"]},"
		"{\"a_bytes\":4,\"b_bytes\":4,\"path\":\"/etc/sung\",\"what\":[\"xattrs\"]}]",
		"what is another");
	is_str(dirs,
		"[{\"a\":36,\"b\":32,\"path\":\"/etc\"},{\"a\":0,\"b\":10,\"path\":\"/srv\"},"
		"{\"a\":0,\"b\":10,\"path\":\"/srv/x\"},{\"a\":0,\"b\":10,\"path\":\"/srv/x/y\"}]",
		"a difference tells what became of the directories' sizes");
	is_int(tree_compare(one, one, &none, &err), 0, "a tree with itself");
	nothing = json_text(none);
	is_str(nothing, "{\"added\":[],\"changed\":[],\"directories\":[],\"removed\":[]}",
		"a tree does not differ from itself");
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	test_lines();
	test_trees();
	free(run(NULL, "rm -rf %s", dir));
	return tap_done();
}
