/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying files to and from a guest. Nothing is collected in memory: what is read here is sent as
 * the agent gives credit, and what comes is taken as fast as the local descriptor takes it.
 */
#include "vmm/guest/guest_private.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>

#include "common/buffer.h"
#include "common/limits.h"

/* Does the reply, where it counts bytes, count @total? */
static bool bytes_agree(const struct guest_reply *reply, uint64_t total)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;
	uint64_t bytes;

	while (proto_next(&in, &f) == 1) {
		if (f.tag == PROTO_T_BYTES && (proto_u64(&f, &bytes) < 0 || bytes != total))
			return false;
	}
	return true;
}

/* ---- to the guest ----------------------------------------------------------------------- */

struct put_call {
	bool done, disagrees;
	int error;
	char *text;
	struct guest_pump pump;
};

static void put_done(void *user, const struct guest_reply *reply)
{
	struct put_call *c = user;

	guest_pump_stop(&c->pump);
	c->done = true;
	c->error = reply->error;
	if (reply->error)
		c->text = strdup(reply->text);
	else
		c->disagrees = !bytes_agree(reply, c->pump.total);
}

static void put_writable(void *user, enum proto_channel channel)
{
	struct put_call *c = user;

	(void)channel;
	guest_pump_writable(&c->pump);
}

int guest_put_file(struct guest *g, int fd, const char *path, uint32_t mode, const char *user,
	int64_t deadline, int also_fd, struct err *err)
{
	static const struct guest_stream_ops ops = {.writable = put_writable, .done = put_done};
	uint8_t buf[PROTO_PATH_MAX + 512];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	struct put_call c = {0};
	struct guest_stream *s;
	struct stat st;
	off_t at;
	int rc;

	rc = guest_check_text("the path in the guest", path, PROTO_PATH_MAX, err);
	if (rc == 0)
		rc = guest_check_text("the user's name", user, LIMIT_USER, err);
	if (rc < 0)
		return rc;
	proto_put_str(&o, PROTO_T_PATH, path);
	proto_put_u32(&o, PROTO_T_MODE, mode & 07777);
	proto_put_bool(&o, PROTO_T_PARENTS, 1);
	if (user)
		proto_put_str(&o, PROTO_T_USER, user);
	s = guest_request(g, PROTO_FILE_PUT, o.buf, o.len, &ops, &c);
	if (!s)
		return guest_request_error(g, PROTO_FILE_PUT, o.len, err);
	guest_pump_start(&c.pump, g, s, fd);
	at = lseek(fd, 0, SEEK_CUR);
	/* what has no blocks may say any size: a file of /sys */
	if (at >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_blocks &&
		st.st_size > at)
		c.pump.due = (uint64_t)(st.st_size - at);
	rc = guest_wait_stream(g, s, &c.done, deadline, also_fd, err);
	guest_pump_stop(&c.pump);
	if (c.pump.error == ENODATA)
		rc = err_set(err, EIO,
			"what is to be %s in the guest became shorter while it was read", path);
	else if (c.pump.error)
		rc = err_sys(err, c.pump.error, "reading what is to be %s in the guest", path);
	else if (rc < 0)
		err_prefix(err, "writing %s in the guest", path);
	else if (c.error)
		rc = guest_reply_error(path, c.error, c.text, err);
	else if (c.disagrees)
		rc = err_set(err, EIO, "%s in the guest: fewer bytes arrived than were sent", path);
	free(c.text);
	return rc;
}

/* ---- from the guest --------------------------------------------------------------------- */

struct get_call {
	bool done, disagrees, too_big;
	int error, write_error;
	char *text;
	struct guest_stream *s;
	struct guest_watch *watch; /* until `fd` takes more; NULL: a regular file, it always does */
	bool writable;
	int fd;
	uint64_t total, max;
};

static void get_done(void *user, const struct guest_reply *reply)
{
	struct get_call *c = user;

	guest_watch_remove(c->watch);
	c->watch = NULL;
	c->done = true;
	c->error = reply->error;
	if (reply->error)
		c->text = strdup(reply->text);
	else
		c->disagrees = !bytes_agree(reply, c->total);
}

static void get_ready(void *user, short revents)
{
	struct get_call *c = user;

	(void)revents;
	c->writable = true;
	guest_watch_set(c->watch, 0);
	guest_stream_resume(c->s);
}

static size_t get_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct get_call *c = user;
	size_t want = len < c->max - c->total ? len : (size_t)(c->max - c->total);
	ssize_t n = 0;

	(void)channel;
	if (c->write_error || c->too_big)
		return len;
	if (want && c->watch && !c->writable) {
		guest_watch_set(c->watch, POLLOUT);
		return 0;
	}
	/* a pipe that poll(2) calls writable takes PIPE_BUF bytes without blocking (pipe(7)) */
	if (c->watch && want > PIPE_BUF)
		want = PIPE_BUF;
	c->writable = false;
	if (want)
		n = write(c->fd, bytes, want);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		n = 0;
	if (n < 0) {
		c->write_error = errno;
		guest_stream_cancel(c->s);
		return len;
	}
	c->total += (uint64_t)n;
	if ((size_t)n == len)
		return len;
	if (c->total == c->max) {
		c->too_big = true;
		guest_stream_cancel(c->s);
		return len;
	}
	if (!c->watch) /* a regular file that took less: full; the next write says why */
		return (size_t)n + get_data(user, channel, bytes + n, len - (size_t)n);
	guest_watch_set(c->watch, POLLOUT);
	return (size_t)n;
}

int guest_get_file(struct guest *g, const char *path, int fd, uint64_t max, int64_t deadline,
	int also_fd, struct err *err)
{
	static const struct guest_stream_ops ops = {.data = get_data, .done = get_done};
	uint8_t buf[PROTO_PATH_MAX + 512];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	struct get_call c = {.fd = fd, .max = max};
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "where %s of the guest is to go", path);
	rc = guest_check_text("the path in the guest", path, PROTO_PATH_MAX, err);
	if (rc < 0)
		return rc;
	proto_put_str(&o, PROTO_T_PATH, path);
	if (max < UINT64_MAX)
		proto_put_u64(&o, PROTO_T_LENGTH, max + 1); /* one more: there was more */
	c.s = guest_request(g, PROTO_FILE_GET, o.buf, o.len, &ops, &c);
	if (!c.s)
		return guest_request_error(g, PROTO_FILE_GET, o.len, err);
	if (!S_ISREG(st.st_mode))
		c.watch = guest_watch_add(g, fd, 0, get_ready, &c);
	rc = guest_wait_stream(g, c.s, &c.done, deadline, also_fd, err);
	guest_watch_remove(c.watch);
	if (c.write_error)
		rc = err_sys(err, c.write_error, "writing what %s in the guest holds", path);
	else if (c.too_big)
		rc = err_set(err, EFBIG, "%s in the guest is larger than %llu bytes", path,
			(unsigned long long)max);
	else if (rc < 0)
		err_prefix(err, "reading %s in the guest", path);
	else if (c.error)
		rc = guest_reply_error(path, c.error, c.text, err);
	else if (c.disagrees)
		rc = err_set(err, EIO, "%s in the guest: fewer bytes arrived than were sent", path);
	free(c.text);
	return rc;
}

/* ---- into memory ------------------------------------------------------------------------ */

struct read_call {
	bool done, too_big;
	int error;
	char *text;
	struct guest_stream *s;
	struct buffer got;
	size_t max;
};

static void read_done(void *user, const struct guest_reply *reply)
{
	struct read_call *c = user;

	c->done = true;
	c->error = reply->error;
	if (reply->error)
		c->text = strdup(reply->text);
}

static size_t read_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct read_call *c = user;

	(void)channel;
	if (!c->too_big && len > c->max - c->got.len) {
		c->too_big = true;
		guest_stream_cancel(c->s);
	}
	if (!c->too_big)
		buffer_append(&c->got, bytes, len);
	return len;
}

int guest_read(struct guest *g, enum proto_type type, const char *path, size_t max,
	int64_t deadline, int also_fd, char **ret, size_t *ret_len, struct err *err)
{
	static const struct guest_stream_ops ops = {.data = read_data, .done = read_done};
	uint8_t buf[PROTO_PATH_MAX + 512];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	struct read_call c = {.max = max};
	int rc = guest_check_text("the path in the guest", path, PROTO_PATH_MAX, err);

	if (rc < 0)
		return rc;
	proto_put_str(&o, PROTO_T_PATH, path);
	c.s = guest_request(g, type, o.buf, o.len, &ops, &c);
	if (!c.s)
		return guest_request_error(g, type, o.len, err);
	rc = guest_wait_stream(g, c.s, &c.done, deadline, also_fd, err);
	if (c.too_big)
		rc = err_set(err, EFBIG, "%s in the guest is larger than %zu bytes", path, max);
	else if (rc < 0)
		err_prefix(err, "reading %s in the guest", path);
	else if (c.error)
		rc = guest_reply_error(path, c.error, c.text, err);
	free(c.text);
	if (rc == 0) {
		*ret = malloc(c.got.len + 1);
		if (!*ret)
			abort();
		if (c.got.len)
			memcpy(*ret, c.got.bytes + c.got.head, c.got.len);
		(*ret)[c.got.len] = '\0';
		*ret_len = c.got.len;
	}
	buffer_free(&c.got);
	return rc;
}
