/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_FAKE_PAGER_H
#define PARBAKE_TESTS_FAKE_PAGER_H

/*
 * A pager as small as can be: one thread, one machine, one page a fault, out of a memfd that is
 * already filled.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/json.h"
#include "common/sock.h"

struct fake_pager {
	int sock, stop_fd;
	bool serve; /* answer faults */
	const char *answer;
	pthread_t thread;
	uint64_t base, size;
	int minor, missing, removed, failed;
};

static int map_page(int uffd, uint64_t at, bool minor)
{
	struct uffdio_range range = {.start = at, .len = 4096};
	struct uffdio_continue cont = {.range = range};
	struct uffdio_zeropage zero = {.range = range};
	int r = minor ? ioctl(uffd, UFFDIO_CONTINUE, &cont) : ioctl(uffd, UFFDIO_ZEROPAGE, &zero);

	if (r < 0 && errno == EEXIST)
		r = ioctl(uffd, UFFDIO_WAKE, &range);
	return r < 0 ? -errno : 0;
}

static void serve_one(struct fake_pager *p, int uffd)
{
	struct uffd_msg msg;

	if (read(uffd, &msg, sizeof(msg)) != (ssize_t)sizeof(msg))
		return;
	if (msg.event == UFFD_EVENT_REMOVE) {
		p->removed++;
	} else if (msg.event == UFFD_EVENT_PAGEFAULT) {
		bool minor = msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR;
		uint64_t at = msg.arg.pagefault.address & ~4095ull;
		int r;

		while ((r = map_page(uffd, at, minor)) == -EAGAIN)
			;
		p->failed += r < 0 && r != -ESRCH && r != -ENOENT;
		*(minor ? &p->minor : &p->missing) += 1;
	}
}

static int take_handshake(struct fake_pager *p, int *ret_uffd)
{
	cleanup_json json_t *regions = NULL;
	char text[4096];
	size_t n_fds = 1;
	ssize_t n = sock_recv_fds(p->sock, text, sizeof(text), ret_uffd, &n_fds);
	const json_t *region;
	uint64_t page = 0, offset = 1;

	if (n <= 0 || n_fds != 1 || json_parse("handshake", text, (size_t)n, &regions, NULL) < 0)
		return -1;
	region = json_array_get(regions, 0);
	if (json_get_u64(region, "base_host_virt_addr", 0, INT64_MAX, &p->base, NULL) < 0 ||
		json_get_u64(region, "size", 0, INT64_MAX, &p->size, NULL) < 0 ||
		json_get_u64(region, "offset", 0, INT64_MAX, &offset, NULL) < 0 ||
		json_get_u64(region, "page_size", 0, INT64_MAX, &page, NULL) < 0)
		return -1;
	return offset == 0 && page == 4096 && json_array_size(regions) == 1 ? 0 : -1;
}

static void *pager_main(void *arg)
{
	struct fake_pager *p = arg;
	cleanup_fd int uffd = -1;

	if (take_handshake(p, &uffd) < 0)
		p->failed = 1000;
	else if (send(p->sock, p->answer, strlen(p->answer), MSG_NOSIGNAL) < 0)
		p->failed = 1001;
	while (p->failed < 1000) {
		struct pollfd fds[2] = {{.fd = p->stop_fd, .events = POLLIN},
			{.fd = p->serve ? uffd : -1, .events = POLLIN}};

		if (poll(fds, 2, -1) < 0 || fds[0].revents)
			break;
		if (fds[1].revents & POLLIN)
			serve_one(p, uffd);
	}
	close_fd(&p->sock);
	return NULL;
}

/* Start it; returns the machine's end. */
static int pager_start(struct fake_pager *p, const char *answer, bool serve)
{
	int pair[2];

	if (sock_pair(pair, NULL) < 0)
		abort();
	*p = (struct fake_pager){.sock = pair[0],
		.answer = answer,
		.serve = serve,
		.stop_fd = eventfd(0, EFD_CLOEXEC)};
	if (pthread_create(&p->thread, NULL, pager_main, p))
		abort();
	return pair[1];
}

static void pager_stop(struct fake_pager *p)
{
	uint64_t one = 1;

	if (write(p->stop_fd, &one, sizeof(one)) < 0)
		abort();
	pthread_join(p->thread, NULL);
	close_fd(&p->stop_fd);
}

#endif
