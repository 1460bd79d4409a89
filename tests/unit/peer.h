/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_PEER_H
#define PARBAKE_TESTS_PEER_H

/*
 * An agent as a test wants it: frames by hand over the other end of a socketpair, and the real
 * agent's program in a process of its own (parbake-agent --fd N), where it has been built.
 */
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "tests/unit/tap.h"
#include "vmm/guest/guest.h"

#define PEER_DEADLINE_MS 20000

__attribute__((unused)) static void peer_die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Exactly @len bytes, by a deadline. False at the end. */
__attribute__((unused)) static bool peer_read(int fd, void *buf, size_t len)
{
	int64_t deadline = clock_deadline(PEER_DEADLINE_MS);
	uint8_t *p = buf;

	while (len) {
		struct pollfd w = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (poll(&w, 1, clock_left_ms(deadline)) <= 0)
			peer_die("the peer waited in vain");
		n = recv(fd, p, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

__attribute__((unused)) static void peer_write(int fd, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return; /* the guest is dead: that is what the test looks at */
		p += n;
		len -= (size_t)n;
	}
}

__attribute__((unused)) static void peer_frame(
	int fd, unsigned type, unsigned flags, uint32_t stream, const void *body, uint32_t len)
{
	struct proto_header h = {PROTO_MAGIC, (uint16_t)type, (uint16_t)flags, stream, len};
	uint8_t *whole = malloc(sizeof(h) + len);

	memcpy(whole, &h, sizeof(h));
	if (len)
		memcpy(whole + sizeof(h), body, len);
	peer_write(fd, whole, sizeof(h) + len);
	free(whole);
}

/* The next frame; its body, terminated, in a static buffer. False at the end. */
__attribute__((unused)) static bool peer_next(int fd, struct proto_header *h, uint8_t **body)
{
	static __thread uint8_t buf[PROTO_BODY_MAX + 1];

	if (!peer_read(fd, h, sizeof(*h)))
		return false;
	if (h->magic != PROTO_MAGIC || h->length > PROTO_BODY_MAX)
		peer_die("the host sent a broken header");
	if (!peer_read(fd, buf, h->length))
		return false;
	buf[h->length] = '\0';
	*body = buf;
	return true;
}

__attribute__((unused)) static void peer_hello(
	int fd, const uint8_t *nonce, uint64_t counter, uint32_t version)
{
	struct proto_hello hello = {
		.counter = counter, .version = version, .flags = PROTO_HELLO_ROOT};

	memcpy(hello.nonce, nonce, sizeof(hello.nonce));
	peer_frame(fd, PROTO_HELLO, 0, 0, &hello, sizeof(hello));
}

/* Wait for a SYNC and answer it. */
__attribute__((unused)) static void peer_sync(int fd)
{
	struct proto_header h;
	uint8_t *body;

	if (!peer_next(fd, &h, &body) || h.type != PROTO_SYNC || h.length != PROTO_SYNC_LEN)
		peer_die("SYNC was expected");
	peer_hello(fd, body, 1, PROTO_VERSION);
}

/* A guest whose agent is the test; synchronised. */
__attribute__((unused)) static struct guest *peer_guest(int *ret_fd)
{
	struct guest *g;
	struct err err;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
		guest_new(pair[0], &g, &err) < 0)
		peer_die("socketpair");
	guest_sync_send(g);
	guest_dispatch(g, NULL);
	peer_sync(pair[1]);
	guest_dispatch(g, NULL);
	*ret_fd = pair[1];
	return g;
}

/* The real agent on the other end. NULL where it has not been built. */
__attribute__((unused)) static struct guest *peer_real(pid_t *ret_pid)
{
	char exe[4096], path[4200], number[16];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	struct guest *g;
	struct err err;
	int pair[2];

	if (n < 0)
		peer_die("/proc/self/exe");
	exe[n] = '\0';
	snprintf(path, sizeof(path), "%s/../agent/parbake-agent", dirname(exe));
	if (access(path, X_OK) < 0)
		return NULL;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		peer_die("socketpair");
	*ret_pid = fork();
	if (*ret_pid == 0) {
		int fd = dup(pair[1]); /* not close-on-exec */

		snprintf(number, sizeof(number), "%d", fd);
		execl(path, path, "--fd", number, NULL);
		_exit(127);
	}
	close(pair[1]);
	if (guest_new(pair[0], &g, &err) < 0)
		peer_die("guest_new");
	if (guest_sync(g, clock_deadline(PEER_DEADLINE_MS), -1, NULL, &err) < 0) {
		printf("Bail out! the agent: %s\n", err.text);
		exit(1);
	}
	return g;
}

__attribute__((unused)) static void peer_end(struct guest *g, pid_t pid)
{
	guest_free(g);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#endif
