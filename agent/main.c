/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent: PID 1 of every machine.
 *
 *   parbake-agent                       as /init: boots the machine, never ends
 *   parbake-agent --fd N [--root DIR] [--cgroup DIR]
 *                                       as an ordinary process over the socket N, for tests:
 *                                       no mounts, no clock, no reboot
 */
#include "agent/main.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "agent/agent.h"
#include "agent/boot.h"
#include "agent/context.h"
#include "agent/loop.h"
#include "agent/reap.h"
#include "agent/request.h"
#include "agent/tree.h"

struct wire *agent_wire;

static void main_hello(struct proto_hello *h)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	memcpy(h->boot, agent.boot, sizeof(h->boot));
	h->counter = ++agent.counter;
	h->realtime_ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	h->uptime_ns = (uint64_t)agent_now();
	h->flags = agent.rooted ? PROTO_HELLO_ROOT : 0;
}

static const struct wire_ops main_wire_ops = {
	.request = request_dispatch,
	.hello = main_hello,
	.reset = proxy_reset,
};

static void main_event(void *user, uint32_t events)
{
	(void)user;
	wire_event(agent_wire, events);
}

static bool main_turn(void)
{
	bool more = wire_turn(agent_wire);

	if (wire_closed(agent_wire))
		loop_quit();
	return more;
}

static int main_run(int port)
{
	/* everything is reported before the first wait, so what came before is not missed */
	if (!watch_add(port, EPOLLIN | EPOLLOUT | EPOLLET, main_event, NULL)) {
		agent_log("cannot watch the port: %s", strerror(errno));
		return 1;
	}
	agent_wire = wire_new(port, &main_wire_ops);
	loop_run(main_turn);
	wire_free(agent_wire);
	context_kill_all();
	tree_kill_all();
	return 0;
}

static int main_machine(void)
{
	struct rlimit files = {65536, 524288};
	int port;

	agent.machine = true;
	setrlimit(RLIMIT_NOFILE, &files);
	agent_random(agent.boot, sizeof(agent.boot));
	port = boot_machine();
	if (port < 0 || reap_init() < 0)
		return 1;
	return main_run(port);
}

static int main_test(int argc, char **argv)
{
	static const struct option options[] = {{"fd", required_argument, NULL, 'f'},
		{"root", required_argument, NULL, 'r'}, {"cgroup", required_argument, NULL, 'c'},
		{NULL, 0, NULL, 0}};
	const char *root = "/", *cgroup = NULL;
	int fd = -1, opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'f')
			fd = atoi(optarg);
		else if (opt == 'r')
			root = optarg;
		else if (opt == 'c')
			cgroup = optarg;
		else
			return 2;
	}
	if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
		fprintf(stderr, "usage: parbake-agent --fd N [--root DIR] [--cgroup DIR]\n");
		return 2;
	}
	agent_random(agent.boot, sizeof(agent.boot));
	agent.rooted = true;
	agent.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	agent.random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (agent.root < 0 || reap_init() < 0) {
		fprintf(stderr, "parbake-agent: cannot start in %s: %s\n", root, strerror(errno));
		return 1;
	}
	if (cgroup)
		tree_init(open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return main_run(fd);
}

int main(int argc, char **argv)
{
	if (loop_init() < 0)
		return 1;
	/* The kernel hands words of its command line that it does not know to /init. */
	if (getpid() == 1 && !(argc > 1 && !strcmp(argv[1], "--fd")))
		return main_machine();
	return main_test(argc, argv);
}
