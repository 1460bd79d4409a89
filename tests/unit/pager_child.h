/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_PAGER_CHILD_H
#define PARBAKE_TESTS_PAGER_CHILD_H

/*
 * A machine for the pager's tests: this test's own program started again, `test machine MODE …`. It
 * does what the preload library does in a monitor: maps the sealed memory privately, registers it,
 * hands the userfaultfd over and keeps its own, and kills itself when the pager's socket ends. Then
 * it reads and writes its memory, byte for byte against an oracle that never saw the pager.
 *
 * Descriptors: 3 the memory, 4 the pager's socket (absent: the private way), 5 a pipe for one byte
 * of news.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sock.h"
#include "restore/pager/uffd.h"

#define PAGE 4096ul
#define CHILD_BLOCK 4 /* pages that one thread has to itself */

/* ---- the oracle: what a page of the image holds ------------------------------------------- */

static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Long holes, long data, and a mixture of single pages of both. */
static inline bool oracle_has_data(uint64_t page)
{
	uint64_t part = page / 256 % 4;

	if (part == 0)
		return true;
	if (part == 1)
		return false;
	return mix(page) % 3 != 0;
}

static inline void oracle_page(uint64_t page, uint8_t *buf)
{
	uint64_t words[PAGE / 8];

	memset(words, 0, sizeof(words));
	for (size_t i = 0; oracle_has_data(page) && i < PAGE / 8; i++)
		words[i] = mix(page * 512 + i) & (i % 3 ? 0xff : UINT64_MAX);
	memcpy(buf, words, PAGE);
}

/* What a machine has for itself, where it has: its difference to the image. */
enum oracle_own { OWN_NOT, OWN_DATA, OWN_ZERO };

static inline enum oracle_own oracle_own(uint64_t page)
{
	if (page / 100 == 10 || page / 100 == 11)
		return page / 100 == 10 ? OWN_DATA : OWN_ZERO;
	switch (mix(page * 7) % 5) {
	case 0:
		return OWN_DATA;
	case 1:
		return OWN_ZERO;
	default:
		return OWN_NOT;
	}
}

static inline void oracle_own_page(uint64_t page, uint8_t *buf)
{
	switch (oracle_own(page)) {
	case OWN_DATA:
		memset(buf, (int)(1 + page % 255), PAGE);
		memcpy(buf, &page, sizeof(page));
		break;
	case OWN_ZERO:
		memset(buf, 0, PAGE);
		break;
	default:
		oracle_page(page, buf);
	}
}

/* ---- the machine --------------------------------------------------------------------------- */

struct child {
	uint8_t *map, *shadow;
	uint64_t pages;
	int uffd, sock, news;
	bool linger; /* see child_watch() */
	bool own; /* it has a difference */
	bool early; /* it does not wait for the pager's answer (nor do monitors) */
	unsigned threads;
	uint64_t seed, ops;
	atomic_int bad;
};

struct child_thread {
	struct child *c;
	unsigned number;
	pthread_t id;
	int scratch; /* a file for kernel-mode accesses */
};

static inline void child_die(const char *what)
{
	fprintf(stderr, "# machine: %s: %s\n", what, strerror(errno));
	_exit(3);
}

/* The preload library's watch. With linger it gives a thread that should be blocked time to prove
 * otherwise. */
static inline void *child_watch(void *arg)
{
	struct child *c = arg;
	char byte;

	while (read(c->sock, &byte, 1) > 0)
		;
	if (c->linger)
		poll(NULL, 0, 300);
	kill(getpid(), SIGKILL);
	return NULL;
}

static inline void child_attach(struct child *c)
{
	char text[256], answer[4] = "";
	size_t got = 0;
	pthread_t id;
	int len;

	c->uffd = uffd_create(NULL, NULL);
	if (c->uffd < 0 || uffd_register(c->uffd, c->map, c->pages * PAGE) < 0)
		child_die("userfaultfd");
	/* two regions, as a machine with a hole in its address space has */
	len = snprintf(text, sizeof(text),
		"[{\"base_host_virt_addr\":%llu,\"size\":%llu,\"offset\":0,\"page_size\":4096},"
		"{\"base_host_virt_addr\":%llu,\"size\":%llu,\"offset\":%llu,\"page_size\":4096}]",
		(unsigned long long)(uintptr_t)c->map, (unsigned long long)(c->pages / 2 * PAGE),
		(unsigned long long)(uintptr_t)(c->map + c->pages / 2 * PAGE),
		(unsigned long long)((c->pages - c->pages / 2) * PAGE),
		(unsigned long long)(c->pages / 2 * PAGE));
	if (sock_send_fds(c->sock, text, (size_t)len, &c->uffd, 1) < 0)
		child_die("handshake");
	while (!c->early && got < 3) {
		ssize_t n = read(c->sock, answer + got, 3 - got);

		if (n <= 0) /* as the preload library does */
			kill(getpid(), SIGKILL);
		got += (size_t)n;
	}
	if (!c->early && memcmp(answer, "ok\n", 3) != 0)
		child_die("answer");
	if (pthread_create(&id, NULL, child_watch, c) != 0)
		child_die("watch");
}

static inline bool child_same(struct child *c, uint64_t page)
{
	if (memcmp(c->map + page * PAGE, c->shadow + page * PAGE, PAGE) == 0)
		return true;
	fprintf(stderr, "# machine: page %llu differs from the oracle\n", (unsigned long long)page);
	atomic_store(&c->bad, 1);
	return false;
}

/* The kernel reads the page, or writes it: faults in kernel mode. */
static inline void child_kernel_op(struct child_thread *t, uint64_t page, uint64_t r)
{
	uint8_t *mem = t->c->map + page * PAGE, *want = t->c->shadow + page * PAGE, buf[PAGE];

	if (r & 1) {
		if (pwrite(t->scratch, mem, PAGE, 0) != (ssize_t)PAGE ||
			pread(t->scratch, buf, PAGE, 0) != (ssize_t)PAGE)
			child_die("write(2) from the memory");
		if (memcmp(buf, want, PAGE) != 0) {
			fprintf(stderr, "# machine: the kernel read another page %llu\n",
				(unsigned long long)page);
			atomic_store(&t->c->bad, 1);
		}
		return;
	}
	memset(buf, (int)(r >> 8), PAGE);
	if (pwrite(t->scratch, buf, PAGE, 0) != (ssize_t)PAGE ||
		pread(t->scratch, mem, PAGE, 0) != (ssize_t)PAGE)
		child_die("read(2) into the memory");
	memcpy(want, buf, PAGE);
}

static inline void *child_chaos(void *arg)
{
	struct child_thread *t = arg;
	struct child *c = t->c;
	uint64_t x = mix(c->seed * 1000 + t->number), blocks = c->pages / CHILD_BLOCK;

	for (uint64_t i = 0; i < c->ops && !atomic_load(&c->bad); i++) {
		uint64_t block, page;

		x = mix(x);
		block = (x >> 8) % blocks;
		block = block - block % c->threads + t->number;
		if (block >= blocks)
			continue;
		page = block * CHILD_BLOCK + (x >> 48) % CHILD_BLOCK;
		switch (x % 16) {
		case 0 ... 6:
			child_same(c, page);
			break;
		case 7 ... 9: {
			size_t at = (x >> 32) % PAGE;

			c->map[page * PAGE + at] = (uint8_t)x;
			c->shadow[page * PAGE + at] = (uint8_t)x;
			break;
		}
		case 10:
		case 11:
			child_kernel_op(t, page, x >> 16);
			break;
		default: {
			uint64_t n = 1 + (x >> 56) % CHILD_BLOCK;

			page = block * CHILD_BLOCK;
			if (madvise(c->map + page * PAGE, n * PAGE, MADV_DONTNEED) < 0)
				child_die("madvise");
			memset(c->shadow + page * PAGE, 0, n * PAGE);
			if (x >> 40 & 1)
				child_same(c, page);
		}
		}
	}
	return NULL;
}

static inline int child_run_chaos(struct child *c)
{
	struct child_thread threads[8] = {0};

	for (unsigned i = 0; i < c->threads; i++) {
		threads[i] = (struct child_thread){.c = c, .number = i};
		threads[i].scratch = memfd_create("scratch", MFD_CLOEXEC);
		if (threads[i].scratch < 0 ||
			pthread_create(&threads[i].id, NULL, child_chaos, &threads[i]) != 0)
			child_die("thread");
	}
	for (unsigned i = 0; i < c->threads; i++)
		pthread_join(threads[i].id, NULL);
	for (uint64_t page = 0; page < c->pages && !atomic_load(&c->bad); page++)
		child_same(c, page);
	return atomic_load(&c->bad);
}

static inline void *child_flood(void *arg)
{
	struct child *c = arg;

	for (;;) {
		if (madvise(c->map, c->pages / 2 * PAGE, MADV_DONTNEED) < 0)
			child_die("madvise");
	}
	return NULL;
}

/* Threads that give half of the memory back all the time, while the other half is touched; 'h' when they are at it. */
static inline void child_run_flood(struct child *c)
{
	pthread_t id;

	for (int i = 0; i < 8; i++) {
		if (pthread_create(&id, NULL, child_flood, c) != 0)
			child_die("thread");
	}
	if (write(c->news, "h", 1) != 1)
		child_die("news");
	for (uint64_t page = c->pages / 2;; page++)
		*(volatile uint8_t *)(c->map + page % c->pages * PAGE);
}

/*
 * `machine chaos SEED OPS THREADS`, `machine read PAGE…` (compared, in that order),
 * `machine stop PAGE` (reads half of the memory, sends 'h', waits for the pager to end
 * while reading the rest; any byte after that is a page it should not have had), `machine flood` (until it is killed), `machine touch`
 * (reads one byte). MODE may have "own-" in front: the
 * machine has a difference; and "early-" before that: it runs before it is answered.
 */
static inline int child_main(int argc, char **argv)
{
	static struct child c = {.sock = 4, .news = 5, .threads = 1, .uffd = -1};
	const char *mode = argc > 2 ? argv[2] : "";
	struct stat st;

	c.early = strncmp(mode, "early-", 6) == 0;
	mode += c.early ? 6 : 0;
	c.own = strncmp(mode, "own-", 4) == 0;
	mode += c.own ? 4 : 0;
	alarm(120); /* never to stay behind a test that died */
	if (fstat(3, &st) < 0)
		child_die("memory");
	c.pages = (uint64_t)st.st_size / PAGE;
	c.map = mmap(
		NULL, c.pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, 3, 0);
	if (c.map == MAP_FAILED)
		child_die("memory");
	if (strcmp(mode, "flood") == 0 || strcmp(mode, "touch") == 0) {
		child_attach(&c);
		if (mode[0] == 'f')
			child_run_flood(&c);
		return *(volatile uint8_t *)c.map;
	}
	c.shadow = malloc(c.pages * PAGE);
	if (!c.shadow)
		child_die("memory");
	for (uint64_t page = 0; page < c.pages; page++)
		(c.own ? oracle_own_page : oracle_page)(page, c.shadow + page * PAGE);
	c.linger = strcmp(mode, "chaos") != 0;
	if (fcntl(c.sock, F_GETFD) >= 0)
		child_attach(&c);
	if (strcmp(mode, "chaos") == 0 && argc == 6) {
		c.seed = strtoull(argv[3], NULL, 10);
		c.ops = strtoull(argv[4], NULL, 10);
		c.threads = (unsigned)strtoul(argv[5], NULL, 10);
		return child_run_chaos(&c);
	}
	if (strcmp(mode, "read") == 0) {
		for (int i = 3; i < argc; i++)
			child_same(&c, strtoull(argv[i], NULL, 10));
		return atomic_load(&c.bad);
	}
	if (strcmp(mode, "stop") == 0 && argc == 4) {
		uint64_t last = strtoull(argv[3], NULL, 10);

		for (uint64_t page = 0; page < c.pages / 2; page++) {
			if (page != last)
				child_same(&c, page);
		}
		if (write(c.news, atomic_load(&c.bad) ? "x" : "h", 1) != 1)
			child_die("news");
		if (read(c.news, &st, 1) != 1) /* go on once told */
			child_die("news");
		child_same(&c, last);
		if (write(c.news, "!", 1) != 1)
			child_die("news");
		return 4;
	}
	return 2;
}

#endif
