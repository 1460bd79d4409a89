/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines with pages of their own at the pager (restore/pager/own.c), which check every byte of their memory
 * (pager_child.h) beside siblings without; and differences by themselves.
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/proc.h"
#include "restore/pager/memory_delta.h"
#include "restore/pager/pager.h"
#include "tests/unit/pager_image.h"
#include "tests/unit/tap.h"

#define PAGES 4096ul
#define DEADLINE_MS 60000

static struct image *img;
static int own_fd;
static struct snapshot_range own_ranges[PAGES];
static struct snapshot_ranges own = {.ranges = own_ranges};
static struct err err;

static void must(int r)
{
	if (r < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
}

static struct pager *pager_of(const struct snapshot_ranges *wset, const struct pager_options *opt)
{
	struct pager *p;

	must(pager_new(img, wset, PAGER_UFFD, opt, &p, &err));
	return p;
}

static struct memory_delta *difference_of(int fd)
{
	struct memory_delta *d;

	must(memory_delta_open(fd, &own, PAGES * PAGE, &d, &err));
	return d;
}

/* A machine attached to @p with the difference @d (taken; NULL: none); @news (taken; -1: none) for its news. */
static struct proc attached_news(
	struct pager *p, struct memory_delta *d, int news, char *const *args)
{
	const char *argv[16] = {"/proc/self/exe", "machine"};
	struct proc_spec spec = {.argv = argv, .keep_stderr = true, .die_with_parent = true};
	struct proc m = PROC_INIT;
	int pair[2];

	must(sock_pair(pair, &err));
	must(pager_attach(p, pair[0], d, -1, &err));
	for (int i = 0; args[i]; i++)
		argv[2 + i] = args[i];
	proc_map_fd(&spec, pager_memory_fd(p), 3);
	proc_map_fd(&spec, pair[1], 4);
	if (news >= 0)
		proc_map_fd(&spec, news, 5);
	must(proc_start(&spec, &m, &err));
	close(pair[1]);
	close_fd(&news);
	return m;
}

static struct proc attached(struct pager *p, struct memory_delta *d, char *const *args)
{
	return attached_news(p, d, -1, args);
}

#define ARGS(...) ((char *[]){__VA_ARGS__, NULL})

static int ended(struct proc *m)
{
	int status = -1;

	if (proc_wait(m, clock_deadline(DEADLINE_MS), &status) < 0) {
		proc_kill(m);
		return -1;
	}
	return status;
}

static uint64_t own_pages(void)
{
	uint64_t n = 0;

	for (uint64_t page = 0; page < PAGES; page++)
		n += oracle_own(page) != OWN_NOT;
	return n;
}

/* Compare a memory with what an oracle says of it. */
static bool same(int fd, void (*oracle)(uint64_t page, uint8_t *buf))
{
	uint8_t want[PAGE], got[PAGE];

	for (uint64_t page = 0; page < PAGES; page++) {
		oracle(page, want);
		if (pread(fd, got, PAGE, (off_t)(page * PAGE)) != (ssize_t)PAGE)
			child_die("pread");
		if (memcmp(got, want, PAGE) != 0) {
			printf("# page %" PRIu64 " differs\n", page);
			return false;
		}
	}
	return true;
}

static void test_chaos(const char *mode, uint32_t window)
{
	struct pager_options opt = {.threads = 2, .window_bytes = window};
	cleanup_pager struct pager *p = pager_of(NULL, &opt);
	struct pager_stats s;
	struct proc m[6];

	for (unsigned i = 0; i < 6; i++) {
		bool without = i == 2 || i == 4;
		char seed[16];

		snprintf(seed, sizeof(seed), "%u", i + 1);
		m[i] = attached(p, without ? NULL : difference_of(own_fd),
			ARGS(without ? "chaos" : (char *)mode, seed, "6000", "3"));
	}
	for (unsigned i = 0; i < 6; i++)
		is_int(ended(&m[i]), 0, "%s, window %u: machine %u agrees with the oracle", mode,
			window, i + 1);
	pager_get_stats(p, &s);
	printf("# %" PRIu64 " faults, %" PRIu64 " own pages given\n", s.faults, s.pages_own);
	ok(s.pages_own > own_pages() && s.pages_own <= 4 * own_pages(),
		"four of them were given theirs");
	ok(same(pager_memory_fd(p), oracle_page), "the shared memory is the image's");
}

/* Own pages within the working set and outside of it: all is there at the first touch. */
static void test_wset(void)
{
	struct snapshot_range ranges[] = {{0, 200 * PAGE}, {1050 * PAGE, 100 * PAGE}};
	struct snapshot_ranges wset = {.ranges = ranges, .n = 2};
	struct pager_options opt = {.threads = 2};
	cleanup_pager struct pager *p = pager_of(&wset, &opt);
	struct pager_stats s;
	struct proc m = attached(p, difference_of(own_fd),
		ARGS("own-read", "0", "1", "2", "3", "199", "1000", "1099", "1100", "1199",
			"1050"));

	is_int(ended(&m), 0, "a machine reads working set and own pages");
	pager_get_stats(p, &s);
	is_int(s.faults, 0, "without one fault");
	is_int(s.pages_own, own_pages(), "a machine was given every page of its own, once");
}

/* @fd copied with a byte changed in the middle. */
static int damaged(int fd)
{
	int to = memfd_create("damaged", MFD_CLOEXEC);
	off_t size = lseek(fd, 0, SEEK_END);
	uint8_t byte;

	if (lseek(fd, 0, SEEK_SET) != 0 || sendfile(to, fd, NULL, (size_t)size) != size ||
		pread(to, &byte, 1, size / 3) != 1)
		child_die("copy the image");
	byte ^= 1;
	if (pwrite(to, &byte, 1, size / 3) != 1)
		child_die("pwrite");
	return to;
}

static void test_damage(void)
{
	cleanup_pager struct pager *p = pager_of(NULL, NULL);
	int fd = damaged(own_fd), status;
	struct proc m = attached(p, difference_of(fd), ARGS("own-read", "0"));

	status = ended(&m);
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		"a machine with a damaged difference is not let run");
	pager_get_error(p, &err);
	has_str(err.text, "damaged", "the pager says why");
	m = attached(p, difference_of(own_fd), ARGS("own-read", "0", "1001"));
	is_int(ended(&m), 0, "another one runs");
	close(fd);
}

/* A machine in this process, that registers the first half of its memory alone. */
static void test_regions(void)
{
	cleanup_pager struct pager *p = pager_of(NULL, NULL);
	int uffd = uffd_create(NULL, NULL), pair[2];
	char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
		pager_memory_fd(p), 0);
	char text[256], byte;
	struct pollfd pfd = {.events = POLLIN};

	if (map == MAP_FAILED || uffd < 0 || uffd_register(uffd, map, PAGES / 2 * PAGE) < 0)
		child_die("register");
	must(sock_pair(pair, &err));
	must(pager_attach(p, pair[0], difference_of(own_fd), -1, &err));
	snprintf(text, sizeof(text),
		"[{\"base_host_virt_addr\":%llu,\"size\":%llu,\"offset\":0,\"page_size\":4096}]",
		(unsigned long long)(uintptr_t)map, (unsigned long long)(PAGES / 2 * PAGE));
	must(sock_send_fds(pair[1], text, strlen(text), &uffd, 1));
	pfd.fd = pair[1];
	ok(poll(&pfd, 1, DEADLINE_MS) == 1 && read(pair[1], &byte, 1) == 0,
		"a machine that leaves out own pages gets no answer");
	pager_get_error(p, &err);
	has_str(err.text, "leave out", "the pager says why");
	close(pair[1]);
	close(uffd);
	munmap(map, PAGES * PAGE);
}

static void refused(struct snapshot_range *ranges, size_t n, const char *what)
{
	struct snapshot_ranges w = {ranges, n};
	struct memory_delta *d = NULL;

	is_int(memory_delta_open(own_fd, &w, PAGES * PAGE, &d, &err), -EBADMSG, "refused: %s",
		what);
	memory_delta_free(d);
}

static void test_difference(void)
{
	cleanup_memory_delta struct memory_delta *d = difference_of(own_fd);
	struct snapshot_ranges none = {0};
	struct memory_delta *empty;
	int fd = memfd_create("memory", MFD_CLOEXEC);
	uint64_t at, wrong = 0;

	must(image_expand(img, fd, NULL, NULL, &err));
	is_int(memory_delta_apply(d, fd, &err), 0, "a difference is put over a memory");
	ok(same(fd, oracle_own_page), "which is then what it should be");
	close(fd);
	for (uint64_t page = 0; page < PAGES; page++)
		wrong += memory_delta_find(d, page * PAGE, &at) != (oracle_own(page) != OWN_NOT);
	is_int(wrong, 0, "each page is found, or not");
	is_int(memory_delta_open(-1, &none, PAGES * PAGE, &empty, &err), 0, "one without pages");
	ok(!memory_delta_find(empty, 0, &at), "has none");
	memory_delta_free(empty);
	refused((struct snapshot_range[]){{PAGE, PAGE}, {0, PAGE}}, 2, "ranges that fall");
	refused((struct snapshot_range[]){{0, 2 * PAGE}, {PAGE, PAGE}}, 2, "that overlap");
	refused((struct snapshot_range[]){{(PAGES - 1) * PAGE, 2 * PAGE}}, 1, "beyond the memory");
	refused((struct snapshot_range[]){{UINT64_MAX - PAGE + 1, 2 * PAGE}}, 1, "that wrap");
	refused((struct snapshot_range[]){{512, PAGE}}, 1, "that are not pages");
	refused((struct snapshot_range[]){{0, PAGE}}, 1,
		"ranges of another number of pages than the image has are refused");
}

/* ---- one takes all it can ------------------------------------------------------------------------ */

/* The most memory there may be, all of it a hole. */
static int huge_image(void)
{
	struct image_options opt = {.frame_bytes = 32768, .level = 1, .no_raw_digest = true};
	int raw = memfd_create("raw", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
	struct image_stats stats;

	if (raw < 0 || out < 0 || ftruncate(raw, (off_t)LIMIT_MEMORY_MAX) < 0)
		child_die("memfd");
	must(image_write(raw, LIMIT_MEMORY_MAX, &opt, out, NULL, &stats, &err));
	close(raw);
	return out;
}

/* A machine gives much memory back, all the time: a pager with one thread serves its sibling. */
static void test_flood(struct image *huge)
{
	struct pager_options opt = {.threads = 1};
	cleanup_pager struct pager *p = NULL;
	struct proc flood, m;
	int news[2];
	char byte;

	must(pager_new(huge, NULL, PAGER_UFFD, &opt, &p, &err));
	must(sock_pair(news, &err));
	flood = attached_news(p, NULL, news[1], ARGS("flood"));
	ok(read(news[0], &byte, 1) == 1, "a machine gives memory back all the time");
	m = attached(p, NULL, ARGS("touch"));
	is_int(ended(&m), 0, "beside it another is served");
	ok(!proc_ended(&flood), "a machine that gives memory back all the time goes on");
	proc_kill(&flood);
	close(news[0]);
}

/* As many ranges as a working set may have. */
static void test_many_ranges(struct image *huge)
{
	const struct rlimit cpu = {60, 61};
	struct snapshot_ranges wset = {.n = 1000000};
	int status = -1;
	pid_t pid;

	wset.ranges = calloc(wset.n, sizeof(*wset.ranges));
	for (size_t i = 0; i < wset.n; i++)
		wset.ranges[i] = (struct snapshot_range){i * 16 * PAGE, PAGE};
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct pager *p;

		setrlimit(RLIMIT_CPU, &cpu);
		must(pager_new(huge, &wset, PAGER_UFFD, NULL, &p, &err));
		_exit(0);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0,
		"a million ranges of 64 GiB are planned in less than a minute of processor");
	free(wset.ranges);
}

/* Pagers of the greatest memory. */
static void test_huge(void)
{
	cleanup_image struct image *huge = NULL;
	int fd = huge_image();

	must(image_open(fd, &huge, &err));
	close(fd);
	test_flood(huge);
	test_many_ranges(huge);
}

int main(int argc, char **argv)
{
	int fd;

	if (argc > 1 && strcmp(argv[1], "machine") == 0)
		return child_main(argc, argv);
	fd = image_file(PAGES, 32768);
	must(image_open(fd, &img, &err));
	own_fd = own_file(PAGES, 65536, own_ranges, &own.n);
	test_difference();
	if (pager_probe(NULL, &err) < 0) {
		tap_skip("userfaultfd may not be used here");
		return tap_done();
	}
	test_wset();
	test_chaos("own-chaos", 0);
	test_chaos("early-own-chaos", 0);
	test_chaos("early-own-chaos", PAGE);
	test_damage();
	test_regions();
	test_huge();
	image_free(img);
	close(fd);
	close(own_fd);
	return tap_done();
}
