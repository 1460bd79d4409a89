/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inotify(7), with the names of directories kept by watch number. A directory that is new is watched and then looked
 * through: what was made in it before the watch is told as made, and perhaps twice. Other file systems that are
 * mounted below, and what symbolic links lead to, are not watched.
 *
 * An upload is a file beside its target, renamed at its end (fileop.c). Whoever watches is told what was meant: the
 * target was made, if it is new, and written.
 */
#include "agent/notify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/entry.h"
#include "agent/fileop.h"
#include "agent/root.h"

#define NOTIFY_MASK                                                                                \
	(IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |             \
		IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

_Static_assert(PROTO_EVENT_MAX <= PIPE_BUF, "an event is written whole");

struct dir {
	int wd;
	char *name; /* relative to the top; "": the top itself */
};

struct watching {
	const struct request *request;
	int in, out, top;
	dev_t dev;
	struct dir dirs[AGENT_WATCHES_MAX]; /* by wd */
	unsigned n;
	bool lost;
	struct entry entry;
	uint8_t event[PROTO_EVENT_MAX];
};

/* ---- telling -------------------------------------------------------------------------- */

uint32_t notify_event_len(const uint8_t *bytes, uint32_t len)
{
	struct proto_event e;
	struct proto_stat st;
	uint32_t need = PROTO_EVENT_HEAD;

	if (len < need)
		return 0;
	memcpy(&e, bytes, sizeof(e));
	if (e.entry) {
		need += PROTO_STAT_LEN;
		if (len < need)
			return 0;
		memcpy(&st, bytes + PROTO_EVENT_HEAD, sizeof(st));
		need += st.metadata_len;
	}
	need += e.name_len + (uint32_t)e.link_len;
	return len < need ? 0 : need;
}

static uint32_t put(struct watching *w, uint32_t at, const void *bytes, uint32_t len)
{
	memcpy(w->event + at, bytes, len);
	return at + len;
}

/* Is there an entry of @name, and does it fit behind the name? */
static bool look(struct watching *w, const char *name)
{
	char self[64], path[PROTO_PATH_MAX + PROTO_EVENT_MAX];
	struct entry *e = &w->entry;
	struct stat st;
	bool there;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", w->request->path, name);
	fd = root_open(path, O_PATH | O_NOFOLLOW, 0);
	there = fd >= 0 && fstat(fd, &st) == 0;
	if (there) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		entry_fill(e, path, self, &st);
	}
	close_fd(&fd);
	return there &&
		PROTO_EVENT_HEAD + PROTO_STAT_LEN + strlen(name) + e->link_len +
			e->stat.metadata_len <=
		PROTO_EVENT_MAX;
}

/* Nobody reads any more: the worker's end. */
static void tell(struct watching *w, enum proto_event_kind kind, const char *name)
{
	const struct entry *en = &w->entry;
	bool gone = kind == PROTO_EVENT_REMOVE || kind == PROTO_EVENT_RENAME;
	struct proto_event e = {.kind = (uint16_t)kind, .name_len = (uint16_t)strlen(name)};
	uint32_t at = PROTO_EVENT_HEAD;

	if (PROTO_EVENT_HEAD + strlen(name) > PROTO_EVENT_MAX) {
		w->lost = true;
		return;
	}
	e.entry = w->request->entries && *name && !gone && look(w, name);
	if (e.entry) {
		e.link_len = en->link_len;
		at = put(w, at, &en->stat, PROTO_STAT_LEN);
	}
	put(w, 0, &e, sizeof(e));
	at = put(w, at, name, e.name_len);
	if (e.entry) {
		at = put(w, at, en->link, en->link_len);
		at = put(w, at, en->metadata, en->stat.metadata_len);
	}
	if (write(w->out, w->event, at) != (ssize_t)at)
		_exit(0);
}

enum upload { UPLOAD_NONE, UPLOAD_NEW, UPLOAD_OVER };

static enum upload upload_of(const char *name)
{
	return !strncmp(name, FILEOP_TEMP_NEW, strlen(FILEOP_TEMP_NEW))      ? UPLOAD_NEW
		: !strncmp(name, FILEOP_TEMP_OVER, strlen(FILEOP_TEMP_OVER)) ? UPLOAD_OVER
									     : UPLOAD_NONE;
}

/* ---- the directories -------------------------------------------------------------------- */

static unsigned dir_at(const struct watching *w, int wd)
{
	unsigned low = 0, high = w->n;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (w->dirs[middle].wd < wd)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct dir *dir_find(struct watching *w, int wd)
{
	unsigned at = dir_at(w, wd);

	return at < w->n && w->dirs[at].wd == wd ? &w->dirs[at] : NULL;
}

static void dir_forget(struct watching *w, struct dir *d)
{
	unsigned at = (unsigned)(d - w->dirs);

	free(d->name);
	memmove(d, d + 1, (--w->n - at) * sizeof(*d));
}

static bool is_below(const char *name, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(name, dir, n) && (!name[n] || name[n] == '/');
}

/* The directory @name and all below have gone elsewhere: watched no more. */
static void dirs_leave(struct watching *w, const char *name)
{
	for (unsigned i = w->n; i--;) {
		if (!is_below(w->dirs[i].name, name))
			continue;
		inotify_rm_watch(w->in, w->dirs[i].wd);
		dir_forget(w, &w->dirs[i]);
	}
}

/* Watch @name, the open directory @fd. 0 or -errno. */
static int dir_add(struct watching *w, int fd, const char *name)
{
	char self[64];
	struct dir *d;
	unsigned at;
	int wd;

	if (w->n == AGENT_WATCHES_MAX)
		return -ENOSPC;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(w->in, self, NOTIFY_MASK);
	if (wd < 0)
		return -errno;
	d = dir_find(w, wd);
	if (d) {
		free(d->name);
	} else {
		at = dir_at(w, wd);
		d = &w->dirs[at];
		memmove(d + 1, d, (w->n++ - at) * sizeof(*d));
	}
	*d = (struct dir){.wd = wd, .name = strdup(name)};
	if (!d->name)
		abort();
	return 0;
}

/*
 * Watch @name (relative to the top) and, where that was asked for, what is below. @fresh: it has just come, so what is
 * in it is told. -ENOSPC: too many; one that has gone again, or is closed to us, is no error.
 */
static int tree_add(struct watching *w, const char *name, bool fresh, unsigned depth)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	int fd = (int)syscall(SYS_openat2, w->top, *name ? name : ".", &how, sizeof(how)), res;
	struct dirent *e;
	struct stat st;
	DIR *d;

	if (fd < 0)
		return errno == EMFILE ? -ENOSPC : 0;
	if (fstat(fd, &st) < 0 || st.st_dev != w->dev) {
		close(fd);
		return 0;
	}
	res = depth > AGENT_DEPTH_MAX ? -ENOSPC : dir_add(w, fd, name);
	d = res < 0 || !w->request->recursive ? NULL : fdopendir(fd);
	while (d && res == 0 && (e = readdir(d)) != NULL) {
		char *below;
		bool is_dir;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
			fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		is_dir = S_ISDIR(st.st_mode);
		if (!is_dir && !fresh)
			continue;
		if (asprintf(&below, "%s%s%s", name, *name ? "/" : "", e->d_name) < 0)
			abort();
		if (fresh && upload_of(e->d_name) == UPLOAD_NONE)
			tell(w, PROTO_EVENT_CREATE, below);
		if (is_dir)
			res = tree_add(w, below, fresh, depth + 1);
		free(below);
	}
	if (d)
		closedir(d);
	else
		close(fd);
	return res;
}

/* ---- events ---------------------------------------------------------------------------- */

/* An upload's own file: its rename is remembered by its cookie. */
static struct {
	uint32_t cookie;
	enum upload kind;
} moved;

/* @name has come to be, or to be here. */
static void event_come(struct watching *w, const struct inotify_event *e, const char *name)
{
	bool upload =
		e->mask & IN_MOVED_TO && moved.kind != UPLOAD_NONE && e->cookie == moved.cookie;

	if (!upload || moved.kind == UPLOAD_NEW)
		tell(w, PROTO_EVENT_CREATE, name);
	if (upload)
		tell(w, PROTO_EVENT_WRITE, name);
	else if (e->mask & IN_ISDIR && w->request->recursive && tree_add(w, name, true, 1) < 0)
		w->lost = true;
	if (upload)
		moved.kind = UPLOAD_NONE;
}

static void event_of(struct watching *w, const struct inotify_event *e, const char *name)
{
	if (e->mask & (IN_MOVED_FROM | IN_MOVE_SELF))
		tell(w, PROTO_EVENT_RENAME, name);
	if (e->mask & IN_MOVED_FROM && e->mask & IN_ISDIR)
		dirs_leave(w, name);
	if (e->mask & (IN_CREATE | IN_MOVED_TO))
		event_come(w, e, name);
	if (e->mask & IN_MODIFY)
		tell(w, PROTO_EVENT_WRITE, name);
	if (e->mask & IN_ATTRIB)
		tell(w, PROTO_EVENT_CHMOD, name);
	if (e->mask & (IN_DELETE | IN_DELETE_SELF))
		tell(w, PROTO_EVENT_REMOVE, name);
}

static void event_read(struct watching *w, const struct inotify_event *e)
{
	struct dir *d = dir_find(w, e->wd);
	const char *base = e->len ? e->name : "";
	char *name;

	if (e->mask & IN_Q_OVERFLOW)
		w->lost = true;
	if (d && e->mask & IN_IGNORED) {
		dir_forget(w, d);
		d = NULL;
	}
	if (!d || (!*base && *d->name)) /* of a directory below its parent's watch tells it, too */
		return;
	if (upload_of(base) != UPLOAD_NONE) {
		if (e->mask & IN_MOVED_FROM) {
			moved.cookie = e->cookie;
			moved.kind = upload_of(base);
		}
		return;
	}
	if (asprintf(&name, "%s%s%s", d->name, *d->name && *base ? "/" : "", base) < 0)
		abort();
	event_of(w, e, name);
	free(name);
}

static int events_read(struct watching *w)
{
	static char buf[64u << 10] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	for (;;) {
		n = read(w->in, buf, sizeof(buf));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -errno;
		for (const char *at = buf; at < buf + n;) {
			const struct inotify_event *e = (const void *)at;

			event_read(w, e);
			at += sizeof(*e) + e->len;
		}
		if (w->lost)
			tell(w, PROTO_EVENT_LOST, "");
		w->lost = false;
	}
}

int notify_run(const void *arg, int data, int control, struct proto_out *reply, struct fail *f)
{
	struct watching *w = agent_alloc(sizeof(*w));
	const char *path = ((const struct request *)arg)->path;
	struct stat st;
	int res;

	(void)control;
	(void)reply;
	*w = (struct watching){.request = arg, .out = data};
	w->top = root_open(path, O_PATH | O_DIRECTORY, 0);
	w->in = inotify_init1(IN_CLOEXEC);
	if (w->top < 0 || w->in < 0 || fstat(w->top, &st) < 0)
		return fail_set(f, w->top < 0 ? -w->top : errno, "cannot watch '%.300s': %s", path,
			strerror(w->top < 0 ? -w->top : errno));
	w->dev = st.st_dev;
	res = tree_add(w, "", false, 0);
	if (res == -ENOSPC)
		return fail_set(f, ENOSPC, "cannot watch '%.300s': more than %u directories", path,
			AGENT_WATCHES_MAX);
	if (res == 0) {
		tell(w, PROTO_EVENT_STARTED, "");
		res = events_read(w);
	}
	return fail_set(f, -res, "cannot watch '%.300s': %s", path, strerror(-res));
}
