/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consoles. A serial port that nobody reads stalls its guest: the kernel waits up to 10 ms for each
 * byte, and a boot of one second took 49 seconds. So one thread of this process drains every
 * machine's pipes for as long as there are machines, whatever their owners are doing, and keeps the
 * newest bytes in a ring, which does not grow. Pipes are used and not sockets, because the monitor
 * writes byte by byte, and 64 KiB of that fit into a pipe but only some hundred bytes into a
 * socket.
 *
 * After each round the thread sleeps for PACE_MS. A pipe has room for what is printed in that time,
 * and a guest that prints without end costs one small read per sleep and not one per byte.
 *
 * One lock covers everything here. The thread knows a pipe by slot and generation, so an event that
 * was fetched before console_free() finds nothing.
 */
#include "vmm/console.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/limits.h"

#define PACE_MS 4
#define WAKE UINT64_MAX /* the eventfd's mark in the epoll set */

struct console {
	int fd; /* -1: it has ended */
	size_t slot;
	uint64_t total;
	size_t size;
	char ring[]; /* byte number n lies at n % size */
};

struct slot {
	struct console *console; /* NULL: free */
	uint32_t generation;
};

static struct {
	pthread_mutex_t lock;
	int epoll_fd; /* -1: there is no thread */
	int wake_fd; /* an eventfd in there: the thread is to end */
	pthread_t thread;
	struct slot *slots;
	size_t n_slots;
} drain = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1, .wake_fd = -1};

static void ring_add(struct console *c, const char *bytes, size_t len)
{
	if (len > c->size) {
		c->total += len - c->size;
		bytes += len - c->size;
		len = c->size;
	}
	while (len) {
		size_t at = c->total % c->size;
		size_t n = c->size - at < len ? c->size - at : len;

		memcpy(c->ring + at, bytes, n);
		c->total += n;
		bytes += n;
		len -= n;
	}
}

/* Take what the pipe holds now, at most one pipe full. With the lock. */
static void drain_one(struct console *c)
{
	char buf[16 * KIB];

	for (size_t taken = 0; c->fd >= 0 && taken < 64 * KIB;) {
		ssize_t n = read(c->fd, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			close_fd(&c->fd); /* leaves the epoll set too */
			return;
		}
		ring_add(c, buf, (size_t)n);
		taken += (size_t)n;
	}
}

static void *drain_main(void *arg)
{
	const struct timespec pace = {.tv_nsec = PACE_MS * 1000000};
	struct epoll_event events[64];
	int epoll_fd = (int)(intptr_t)arg;

	for (;;) {
		int n = epoll_wait(epoll_fd, events, 64, -1);

		pthread_mutex_lock(&drain.lock);
		for (int i = 0; i < n; i++) {
			size_t slot = (uint32_t)events[i].data.u64;
			const struct slot *s = &drain.slots[slot];

			if (events[i].data.u64 == WAKE) {
				pthread_mutex_unlock(&drain.lock);
				return NULL; /* there is no console any more */
			}
			if (s->console && s->generation == events[i].data.u64 >> 32)
				drain_one(s->console);
		}
		pthread_mutex_unlock(&drain.lock);
		nanosleep(&pace, NULL);
	}
	return NULL;
}

/* With the lock. */
static int start_thread(struct err *err)
{
	struct epoll_event wake = {.events = EPOLLIN, .data.u64 = WAKE};
	cleanup_fd int fd = -1, wake_fd = -1;
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	if (drain.epoll_fd >= 0)
		return 0;
	fd = epoll_create1(EPOLL_CLOEXEC);
	wake_fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0 || wake_fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, wake_fd, &wake) < 0)
		return err_sys(err, errno, "epoll");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * KIB);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&drain.thread, &attr, drain_main, (void *)(intptr_t)fd);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		return err_sys(err, r, "start a thread");
	drain.epoll_fd = steal_fd(&fd);
	drain.wake_fd = steal_fd(&wake_fd);
	return 0;
}

bool console_stop(void)
{
	cleanup_fd int fd = -1, wake_fd = -1;
	pthread_t thread;
	bool used = false;

	pthread_mutex_lock(&drain.lock);
	for (size_t i = 0; i < drain.n_slots; i++)
		used |= drain.slots[i].console != NULL;
	if (!used && drain.epoll_fd >= 0) {
		fd = steal_fd(&drain.epoll_fd);
		wake_fd = steal_fd(&drain.wake_fd);
		thread = drain.thread;
	}
	pthread_mutex_unlock(&drain.lock);
	if (fd >= 0) {
		eventfd_write(wake_fd, 1);
		pthread_join(thread, NULL);
	}
	return !used;
}

/* A free slot, the table made longer where there is none. With the lock. */
static int take_slot(struct console *c, struct err *err)
{
	struct slot *more;
	size_t n;

	for (size_t i = 0; i < drain.n_slots; i++) {
		if (!drain.slots[i].console) {
			c->slot = i;
			drain.slots[i].console = c;
			drain.slots[i].generation++;
			return 0;
		}
	}
	n = drain.n_slots ? drain.n_slots * 2 : 16;
	more = realloc(drain.slots, n * sizeof(*more));
	if (!more)
		return err_set(err, ENOMEM, "out of memory");
	memset(more + drain.n_slots, 0, (n - drain.n_slots) * sizeof(*more));
	drain.slots = more;
	c->slot = drain.n_slots;
	drain.n_slots = n;
	more[c->slot].console = c;
	return 0;
}

/* With the lock. */
static int watch(struct console *c, struct err *err)
{
	struct epoll_event event = {.events = EPOLLIN};
	int r = start_thread(err);

	if (r == 0)
		r = take_slot(c, err);
	if (r < 0)
		return r;
	event.data.u64 = (uint64_t)drain.slots[c->slot].generation << 32 | c->slot;
	if (epoll_ctl(drain.epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0) {
		r = err_sys(err, errno, "epoll");
		drain.slots[c->slot].console = NULL;
	}
	return r;
}

int console_new(size_t size, struct console **ret, int *ret_fd, struct err *err)
{
	cleanup_free struct console *c = calloc(1, sizeof(*c) + size);
	int fds[2], r;

	assert(size > 0);
	if (!c)
		return err_set(err, ENOMEM, "out of memory");
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		r = err_sys(err, errno, "make a pipe");
	else
		r = 0;
	c->fd = fds[0];
	c->size = size;
	if (r == 0) {
		pthread_mutex_lock(&drain.lock);
		r = watch(c, err);
		pthread_mutex_unlock(&drain.lock);
	}
	if (r < 0) {
		close(fds[0]);
		close(fds[1]);
		return r;
	}
	*ret_fd = fds[1];
	*ret = steal_ptr(&c);
	return 0;
}

void console_free(struct console *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&drain.lock);
	close_fd(&c->fd);
	drain.slots[c->slot].console = NULL;
	pthread_mutex_unlock(&drain.lock);
	free(c);
}

uint64_t console_total(struct console *c)
{
	uint64_t total;

	pthread_mutex_lock(&drain.lock);
	drain_one(c);
	total = c->total;
	pthread_mutex_unlock(&drain.lock);
	return total;
}

/* With the lock. */
static size_t copy_out(const struct console *c, uint64_t *pos, char *buf, size_t len)
{
	uint64_t oldest = c->total > c->size ? c->total - c->size : 0;
	size_t done = 0;

	if (*pos < oldest)
		*pos = oldest;
	while (done < len && *pos < c->total) {
		size_t at = *pos % c->size;
		size_t n = c->size - at;

		if (n > len - done)
			n = len - done;
		if (n > c->total - *pos)
			n = c->total - *pos;
		memcpy(buf + done, c->ring + at, n);
		done += n;
		*pos += n;
	}
	return done;
}

size_t console_read(struct console *c, uint64_t *pos, char *buf, size_t len)
{
	size_t n;

	pthread_mutex_lock(&drain.lock);
	drain_one(c);
	n = copy_out(c, pos, buf, len);
	pthread_mutex_unlock(&drain.lock);
	return n;
}

/* The length of the escape sequence that begins at @s[0] (ESC). */
static size_t escape_len(const char *s, size_t len)
{
	size_t n = 1;

	if (n < len && s[n] == '[') {
		n++;
		while (n < len && s[n] >= 0x20 && s[n] < 0x40)
			n++;
	}
	return n < len ? n + 1 : len;
}

/*
 * Make bytes fit for a terminal, in place: printable ASCII, tabs and newlines stay, escape
 * sequences and carriage returns go, all else becomes `?`. Returns the new length, ≤ @len.
 */
static size_t clean(char *text, size_t len)
{
	size_t to = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char ch = (unsigned char)text[i];

		if (ch == 0x1b)
			i += escape_len(text + i, len - i) - 1;
		else if (ch == '\n' || ch == '\t' || (ch >= ' ' && ch < 0x7f))
			text[to++] = (char)ch;
		else if (ch != '\r')
			text[to++] = '?';
	}
	return to;
}

char *console_text(struct console *c)
{
	char *text = malloc(c->size + 1);
	uint64_t pos = 0;

	if (text)
		text[clean(text, console_read(c, &pos, text, c->size))] = '\0';
	return text;
}

const char *console_tail(const char *text, size_t max)
{
	size_t len = strlen(text);
	const char *line;

	if (len <= max)
		return text;
	text += len - max;
	line = strchr(text, '\n');
	return line && line[1] ? line + 1 : text;
}
