/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake cp: one file into a sandbox of the pool or out of it. What comes out is seen whole or not at
 * all: a transfer that breaks off leaves whatever was there before.
 */
#include "cli/cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/client.h"
#include "cli/terminal.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"

/* "ID:PATH", where ID has no slash; else a path here. */
struct place {
	char *sandbox; /* owned; NULL: here */
	const char *path;
};

struct args {
	struct place from, to;
	const char *from_word, *to_word; /* as written */
	const char *user;
	bool json;
};

static void split(const char *text, struct place *ret)
{
	size_t len = strcspn(text, ":/");

	*ret = (struct place){.path = text};
	if (text[len] != ':' || len == 0)
		return;
	ret->sandbox = str_printf("%.*s", (int)len, text);
	ret->path = text + len + 1;
}

static const char *leaf_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* A place that is a directory by its look gets the other's name behind it. Caller frees. */
static char *with_leaf(const char *path, const char *from, bool is_dir)
{
	size_t len = strlen(path);

	if (!len)
		return str_printf("%s", leaf_of(from));
	if (path[len - 1] == '/')
		return str_printf("%s%s", path, leaf_of(from));
	return is_dir ? str_printf("%s/%s", path, leaf_of(from)) : str_dup(path);
}

static char *request_path(const struct args *c, const char *id, const char *path, const char *mode)
{
	cleanup_free char *escaped = client_escape(path);
	/* "" is root, whatever the template's user is, and a file that is there keeps its owner */
	cleanup_free char *user = client_escape(c->user ? c->user : "");

	return str_printf("/sandboxes/%s/files?path=%s&username=%s%s", id, escaped, user, mode);
}

/* ---- in ------------------------------------------------------------------------------------ */

static int put(const struct args *copy, struct client *c, const char *id, uint64_t *ret_bytes,
	struct err *err)
{
	cleanup_fd int fd = open(copy->from.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	cleanup_free char *to = with_leaf(copy->to.path, copy->from.path, false);
	cleanup_free char *path = NULL, *mode = NULL;
	struct client_spec spec = {
		.method = "POST", .type = "application/octet-stream", .timeout_ms = -1};
	struct stat st;
	char byte;

	if (!strcmp(copy->from.path, "-"))
		return err_set(err, EINVAL, "- is standard output, and nothing else");
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, errno, "%s", copy->from.path);
	if (S_ISDIR(st.st_mode))
		return err_set(err, EISDIR,
			"%s: a directory; pack it: tar c DIR | parbake exec ID -- tar x",
			copy->from.path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "%s: not a regular file", copy->from.path);
	mode = str_printf("&mode=%o", st.st_mode & 0777);
	spec.path = path = request_path(copy, id, to, mode);
	if (st.st_size) {
		spec.upload_fd = fd;
		spec.upload_bytes = (uint64_t)st.st_size;
	} else if (read(fd, &byte, 1) > 0) {
		return err_set(err, EINVAL,
			"%s: does not tell its size (or is being written); pipe it: cat FILE | "
			"parbake exec "
			"ID --shell 'cat >PATH'",
			copy->from.path);
	} else {
		spec.body = "";
	}
	*ret_bytes = (uint64_t)st.st_size;
	return client_call_spec(c, &spec, NULL, err);
}

/* ---- out ----------------------------------------------------------------------------------- */

struct getting {
	int fd;
	uint64_t bytes;
	bool over;
	int r;
	struct err *err;
};

static int on_data(void *user, const char *bytes, size_t len)
{
	struct getting *g = user;

	if (len > LIMIT_HTTP_UPLOAD - g->bytes)
		return -EFBIG;
	g->bytes += len;
	return terminal_pass(g->fd, bytes, len);
}

static void on_done(void *user, const struct client_answer *a)
{
	struct getting *g = user;

	g->over = true;
	if (a->error)
		g->r = err_set(g->err, a->error, "%s", a->text);
}

static int fetch(struct client *c, const char *path, int fd, uint64_t *ret_bytes, struct err *err)
{
	struct getting g = {.fd = fd, .err = err};
	struct client_call *call = client_begin(c,
		&(struct client_spec){.method = "GET",
			.path = path,
			.timeout_ms = -1,
			.data = on_data,
			.done = on_done,
			.user = &g},
		err);
	int r = call ? 0 : -EIO;

	while (r == 0 && !g.over)
		r = client_turn(c, NULL, 0, CLOCK_NEVER, err);
	if (call && !g.over)
		client_drop(call);
	*ret_bytes = g.bytes;
	return r < 0 ? r : g.r;
}

static int get(const struct args *copy, struct client *c, const char *id, uint64_t *ret_bytes,
	struct err *err)
{
	cleanup_publish struct publish p = PUBLISH_INIT;
	cleanup_free char *path = request_path(copy, id, copy->from.path, ""), *to = NULL,
			  *dir = NULL;
	struct stat st;
	const char *leaf;
	int r;

	if (!strcmp(copy->to.path, "-"))
		return fetch(c, path, STDOUT_FILENO, ret_bytes, err);
	to = with_leaf(copy->to.path, copy->from.path,
		stat(copy->to.path, &st) == 0 && S_ISDIR(st.st_mode));
	leaf = leaf_of(to);
	dir = leaf == to ? str_dup(".") : str_printf("%.*s", (int)(leaf - to), to);
	r = publish_begin(&p, dir, err);
	if (r == 0)
		r = fetch(c, path, p.fd, ret_bytes, err);
	return r < 0 ? r : publish_commit(&p, leaf, 0666 & ~cli_umask, err);
}

static int transfer(const struct args *copy, struct err *err)
{
	cleanup_client struct client *c = NULL;
	cleanup_free char *id = NULL;
	bool in = copy->to.sandbox != NULL;
	uint64_t bytes = 0;
	int r = client_open(in ? copy->to.sandbox : copy->from.sandbox, &c, &id, err);

	if (r == 0)
		r = in ? put(copy, c, id, &bytes, err) : get(copy, c, id, &bytes, err);
	if (r < 0) {
		if (id)
			err_prefix(err, "copy %s to %s", copy->from.path, copy->to.path);
		return r;
	}
	if (copy->json && strcmp(copy->to.path, "-") != 0) {
		cleanup_json json_t *obj =
			json_pack("{s:s, s:I}", "sandboxID", id, "bytes", (json_int_t)bytes);

		json_print_line(obj);
	}
	return 0;
}

static int run(void *user)
{
	struct args *copy = user;
	struct err err = {0};
	int r;

	split(copy->from_word, &copy->from);
	split(copy->to_word, &copy->to);
	if (!copy->from.sandbox == !copy->to.sandbox)
		r = command_usage(&command_cp, "one of the two must be ID:PATH");
	else
		r = transfer(copy, &err) < 0 ? cli_fail(&err) : CLI_OK;
	free(copy->from.sandbox);
	free(copy->to.sandbox);
	return r;
}

static const struct option_entry options[] = {
	{"user", 'u', OPTION_TEXT, "USER", AT(user), "whose file it is in the sandbox"},
	OPTION_JSON(struct args, json),
	{0},
};

static const struct operand_entry operands[] = {
	{"FROM", AT(from_word), NAMES_FILE},
	{"TO", AT(to_word), NAMES_FILE},
	{0},
};

const struct command command_cp = {"cp", "copy a file into a sandbox of the pool or out of it",
	.notes = "One of FROM and TO is ID:PATH. A directory as TO: end it with /; - as TO: "
		 "standard output.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
