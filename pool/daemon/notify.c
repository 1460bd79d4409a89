/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the service manager: a NOTIFY_SOCKET that begins with @ or / is a usable address. The
 * largest datagram that a socket takes is far larger than any message here. */
#include "pool/daemon/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

struct notify {
	struct loop *loop;
	struct sockaddr_un addr;
	socklen_t addr_len;
	int fd; /* -1: nobody wants to know */
	int64_t every_ns; /* 0: no watchdog */
	struct loop_timer *feeding;
	bool complained;
};

static void feed(void *user)
{
	struct notify *n = user;

	notify_send(n, "WATCHDOG=1");
	n->feeding = loop_timer(n->loop, clock_now_ns() + n->every_ns, feed, n);
}

static int64_t watchdog_ns(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	unsigned long long n = usec ? strtoull(usec, NULL, 10) : 0;

	if ((pid && strtol(pid, NULL, 10) != getpid()) || n > 86400000000ULL)
		return 0;
	return (int64_t)n * 1000 / 2;
}

struct notify *notify_new(struct loop *l)
{
	struct notify *n = calloc(1, sizeof(*n));
	const char *to = getenv("NOTIFY_SOCKET");
	size_t len = to ? strlen(to) : 0;

	if (!n)
		abort();
	*n = (struct notify){.loop = l, .fd = -1, .addr.sun_family = AF_UNIX};
	if (len > 1 && len < sizeof(n->addr.sun_path) && (*to == '/' || *to == '@')) {
		memcpy(n->addr.sun_path, to, len);
		if (*to == '@')
			n->addr.sun_path[0] = '\0';
		n->addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
		n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		n->every_ns = watchdog_ns();
	}
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	if (n->fd >= 0 && n->every_ns)
		feed(n);
	return n;
}

void notify_free(struct notify *n)
{
	if (!n)
		return;
	loop_timer_cancel(n->feeding);
	close_fd(&n->fd);
	free(n);
}

void notify_send(struct notify *n, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	if (n->fd < 0)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (sendto(n->fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&n->addr,
		    n->addr_len) < 0 &&
		!n->complained) {
		log_warn("tell the service manager: %s", strerrordesc_np(errno));
		n->complained = true;
	}
}
