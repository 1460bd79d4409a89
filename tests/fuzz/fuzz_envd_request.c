/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's bytes to each route of the wire: the first byte chooses the route, the rest is the
 * body. The sandbox's agent says nothing, and then is gone. What must hold: every request is
 * answered, and nothing is left of it.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/sock.h"
#include "pool/envd/envd.h"
#include "pool/envd/text.h"
#include "tests/unit/http_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
	const char *request, *type;
} routes[] = {
	{"POST /process.Process/Start", "application/connect+json"},
	{"POST /process.Process/Connect", "application/connect+json"},
	{"POST /process.Process/SendInput", "application/json"},
	{"POST /process.Process/SendSignal", "application/json"},
	{"POST /process.Process/Update", "application/json"},
	{"POST /process.Process/List", "application/json"},
	{"POST /exec", "application/json"},
	{"POST /execute", "application/json"},
	{"POST /contexts", "application/json"},
	{"POST /filesystem.Filesystem/ListDir", "application/json"},
	{"POST /filesystem.Filesystem/Move", "application/json"},
	{"POST /files?path=/a", "application/octet-stream"},
	{"POST /files", "multipart/form-data; boundary=X"},
};
#define N_ROUTES (sizeof(routes) / sizeof(routes[0]))

static struct loop *loop;
static struct http_server *server;
static struct envd *wire;
static struct guest *guest;
static char path[64];

static bool find(void *user, const char *id, struct envd_target *ret)
{
	(void)user;
	(void)id;
	*ret = (struct envd_target){.guest = guest, .state = "running"};
	return true;
}

static void kick(void *user, const char *id)
{
	(void)user;
	(void)id;
}

static void handle(void *user, struct http_request *rq)
{
	(void)user;
	if (!envd_handle(wire, "sb", rq, http_path(rq), false))
		http_reply(rq, 404, NULL);
}

static void stop(void)
{
	unlink(path);
}

static void start(void)
{
	static const struct envd_ops ops = {.find = find, .kick = kick};
	struct err err;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	snprintf(path, sizeof(path), "/tmp/parbake-fuzz-%d", (int)getpid());
	unlink(path);
	fd = sock_listen(path, &err);
	if (fd < 0 || loop_new(&loop, &err) < 0 ||
		http_server_new(loop, handle, NULL, &server, &err) < 0 ||
		http_server_listen(server, fd, false, &err) < 0)
		abort();
	atexit(stop);
	wire = envd_new(loop, &ops, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int64_t deadline = clock_deadline(20000);
	char head[512], sink[4096];
	int pair[2], fd;
	size_t route;
	ssize_t n = -1;

	if (!size || size > 60000)
		return 0;
	route = data[0] % N_ROUTES;
	data++;
	size--;
	if (!loop)
		start();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
		guest_new(pair[0], &guest, NULL) < 0)
		abort();
	fd = sock_connect(path, NULL);
	if (fd < 0)
		abort();
	snprintf(head, sizeof(head),
		"%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
		"%s\r\nContent-Length: "
		"%zu\r\n\r\n",
		routes[route].request, routes[route].type, size);
	if (send(fd, head, strlen(head), MSG_NOSIGNAL) != (ssize_t)strlen(head) ||
		send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		abort();
	/* it is taken in; then the machine is gone, and what waits for it is answered */
	for (int i = 0; i < 4; i++)
		loop_once(loop, clock_deadline(0), NULL);
	guest_free(guest);
	guest = NULL;
	close(pair[1]);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (n != 0) {
		if (clock_now_ns() > deadline)
			abort();
		loop_once(loop, clock_deadline(1), NULL);
		while ((n = recv(fd, sink, sizeof(sink), 0)) > 0)
			continue;
	}
	close(fd);
	while (http_open(server)) {
		if (clock_now_ns() > deadline)
			abort();
		loop_once(loop, clock_deadline(1), NULL);
	}
	return 0;
}
