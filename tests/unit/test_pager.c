/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pager's engine against machines that check every byte (pager_child.h). This program is also
 * those machines (`machine`), and a pager that may be killed (`engine`).
 */
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/proc.h"
#include "restore/pager/pager.h"
#include "tests/unit/pager_image.h"
#include "tests/unit/tap.h"

#define PAGES 4096ul
#define DEADLINE_MS 60000

static struct image *image_of(int fd)
{
	struct image *img;
	struct err err;

	if (image_open(fd, &img, &err) < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
	return img;
}

static struct pager *pager_of(struct image *img, const struct snapshot_ranges *wset,
	enum pager_way way, const struct pager_options *opt)
{
	struct pager *p;
	struct err err;

	if (pager_new(img, wset, way, opt, &p, &err) < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
	return p;
}

/* Start a machine with this memory and this end of a pager's socket (taken; -1: none). */
static struct proc machine(int memory, int sock, int news, char *const *args)
{
	const char *argv[16] = {"/proc/self/exe", "machine"};
	struct proc_spec spec = {.argv = argv, .keep_stderr = true, .die_with_parent = true};
	struct proc p = PROC_INIT;
	struct err err;

	for (int i = 0; args[i]; i++)
		argv[2 + i] = args[i];
	proc_map_fd(&spec, memory, 3);
	if (sock >= 0)
		proc_map_fd(&spec, sock, 4);
	if (news >= 0)
		proc_map_fd(&spec, news, 5);
	if (proc_start(&spec, &p, &err) < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
	close_fd(&sock);
	close_fd(&news);
	return p;
}

#define ARGS(...) ((char *[]){__VA_ARGS__, NULL})

/* A machine attached to @p; @ret_news (or NULL): a socket for its news. */
static struct proc attached(struct pager *p, int *ret_news, char *const *args)
{
	int pair[2], news[2] = {-1, -1};
	struct err err;

	if (sock_pair(pair, &err) < 0 || (ret_news && sock_pair(news, &err) < 0) ||
		pager_attach(p, pair[0], NULL, -1, &err) < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
	if (ret_news)
		*ret_news = news[0];
	return machine(pager_memory_fd(p), pair[1], news[1], args);
}

static int ended(struct proc *m)
{
	int status = -1;

	if (proc_wait(m, clock_deadline(DEADLINE_MS), &status) < 0) {
		proc_kill(m);
		return -1;
	}
	return status;
}

static uint64_t data_pages(void)
{
	uint64_t n = 0;

	for (uint64_t page = 0; page < PAGES; page++)
		n += oracle_has_data(page);
	return n;
}

/* The memory itself, seen from outside, is the image still: data where it was filled, never
 * anything else. */
static void check_memory(struct pager *p, const char *when, bool all)
{
	uint8_t want[PAGE], got[PAGE], zero[PAGE] = {0};
	uint64_t wrong = 0, empty = 0;

	for (uint64_t page = 0; page < PAGES; page++) {
		oracle_page(page, want);
		if (pread(pager_memory_fd(p), got, PAGE, (off_t)(page * PAGE)) != (ssize_t)PAGE)
			child_die("pread");
		if (memcmp(got, want, PAGE) == 0)
			continue;
		empty += memcmp(got, zero, PAGE) == 0;
		wrong += memcmp(got, zero, PAGE) != 0;
	}
	ok(wrong == 0 && (!all || empty == 0), "%s, the shared memory is the image's", when);
}

static void test_chaos(
	struct image *img, uint32_t window, unsigned machines, const char *ops, uint64_t min_faults)
{
	struct pager_options opt = {.threads = 3, .window_bytes = window};
	cleanup_pager struct pager *p = pager_of(img, NULL, PAGER_UFFD, &opt);
	struct pager_stats s;
	struct proc m[8];
	uint64_t frames = 0;
	int64_t begin = clock_now_ns();

	for (unsigned i = 0; i < machines; i++) {
		char seed[16];

		snprintf(seed, sizeof(seed), "%u", i + 1);
		m[i] = attached(p, NULL, ARGS("chaos", seed, (char *)ops, "3"));
	}
	for (unsigned i = 0; i < machines; i++)
		is_int(ended(&m[i]), 0, "window %u: machine %u of %u agrees with the oracle",
			window, i + 1, machines);
	pager_get_stats(p, &s);
	printf("# %" PRIu64 " faults (%" PRIu64 " minor, %" PRIu64 " missing, %" PRIu64
	       " holes, %" PRIu64 " removed), %" PRIu64 " frames, %" PRIu64 " ms\n",
		s.faults, s.faults_minor, s.faults_missing, s.faults_hole, s.faults_removed,
		s.frames_filled, (uint64_t)(clock_now_ns() - begin) / 1000000);
	ok(s.faults >= min_faults, "at least %" PRIu64 " faults", min_faults);
	ok(s.faults_minor && s.faults_missing && s.faults_hole && s.faults_removed,
		"minor, missing, hole and removed among them");
	is_int(s.machines_total, machines, "every machine attached");
	for (uint64_t at = 0, start, bytes; at < PAGES * PAGE; at = start + bytes) {
		bool data;

		image_frame_at(img, at, &start, &bytes);
		frames += image_run_end(img, start, start + bytes, &data) < start + bytes || data;
	}
	is_int(s.frames_filled, frames, "each frame was filled once");
	is_int(s.bytes_filled, data_pages() * PAGE,
		"a template's memory is filled with its data pages alone");
	check_memory(p, "after it all", true);
}

static void test_wset(struct image *img)
{
	struct snapshot_range ranges[] = {{700 * PAGE, 40 * PAGE}, {0, 64 * PAGE},
		{60 * PAGE, 8 * PAGE}, {300 * PAGE, 10 * PAGE}};
	struct snapshot_ranges wset = {.ranges = ranges, .n = 4}, got = {0}, bad = wset;
	struct snapshot_range outside[] = {{(PAGES - 1) * PAGE, 2 * PAGE}};
	struct pager_options opt = {.threads = 2};
	struct pager_stats s;
	struct pager *p = pager_of(img, &wset, PAGER_UFFD, &opt);
	struct proc m =
		attached(p, NULL, ARGS("read", "705", "0", "63", "67", "305", "739", "700"));
	struct err err;

	is_int(ended(&m), 0, "a machine reads its working set");
	pager_get_stats(p, &s);
	is_int(s.faults, 0, "a machine reads its working set without one fault");
	is_int(s.pages_premapped, 40 + 68 + 10, "all of the working set was mapped at attach");
	pager_free(p);

	bad.ranges = outside;
	bad.n = 1;
	is_int(pager_new(img, &bad, PAGER_UFFD, &opt, &p, &err), -EINVAL,
		"a working set beyond the memory is refused");

	opt = (struct pager_options){.record = true, .no_premap = true};
	p = pager_of(img, &wset, PAGER_UFFD, &opt);
	m = attached(p, NULL, ARGS("read", "900", "5", "6", "300", "7", "5", "899"));
	is_int(ended(&m), 0, "a machine is recorded");
	is_int(pager_recorded(p, &got, &err), 0, "a machine's working set is recorded");
	ok(got.n == 5 && got.ranges[0].offset == 900 * PAGE && got.ranges[0].bytes == PAGE &&
			got.ranges[1].offset == 5 * PAGE && got.ranges[1].bytes == 2 * PAGE &&
			got.ranges[2].offset == 300 * PAGE && got.ranges[3].offset == 7 * PAGE &&
			got.ranges[4].offset == 899 * PAGE,
		"in the order of first faults, neighbours together");
	snapshot_ranges_clear(&got);
	is_int(pager_recorded(p, &got, &err), 0, "recorded again");
	is_int(got.n, 0, "what was told is not told again");
	snapshot_ranges_clear(&got);
	pager_free(p);
}

static void test_private(struct image *img)
{
	cleanup_pager struct pager *p = pager_of(img, NULL, PAGER_PRIVATE, NULL);
	struct proc m = machine(pager_memory_fd(p), -1, -1, ARGS("chaos", "9", "0", "2"));
	int pair[2], fd = pager_memory_fd(p);
	struct err err;

	is_int(ended(&m), 0, "private way: the whole memory is there");
	check_memory(p, "private way", true);
	ok(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM, "the memory cannot be written");
	ok(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
			errno == EPERM,
		"a machine's memory cannot be mapped shared for writing");
	ok(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) < 0,
		"no hole can be punched into a machine's memory");
	ok(ftruncate(fd, 0) < 0, "a machine's memory cannot be cut");
	if (sock_pair(pair, &err) < 0)
		child_die("sockets");
	is_int(pager_attach(p, pair[0], NULL, -1, &err), -EOPNOTSUPP,
		"no userfaultfd attaches to a pager of the private way");
	close(pair[1]);
}

/* Wait until @news says something, at most 20 s: the byte, 0 at its end, -1. */
static int hear(int news)
{
	struct pollfd pfd = {.fd = news, .events = POLLIN};
	char byte;

	if (poll(&pfd, 1, 20000) <= 0)
		return -1;
	return read(news, &byte, 1) == 1 ? byte : 0;
}

/* The machine was ended: by its own watch, and before the page could be read. */
static void check_ended(struct proc *m, int news, const char *what)
{
	int status;

	is_int(hear(news), 0, "%s: the machine never got the page", what);
	status = ended(m);
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: the machine is dead", what);
	close(news);
}

static void test_damage(int image_fd)
{
	int fd = memfd_create("damaged", MFD_CLOEXEC), news;
	off_t size = lseek(image_fd, 0, SEEK_END);
	struct pager_options opt = {.threads = 2};
	uint64_t bad = UINT64_MAX;
	uint8_t byte, buf[32768];
	struct image *img;
	struct pager *p;
	struct proc m;
	struct err err;
	char page[24];

	if (lseek(image_fd, 0, SEEK_SET) != 0 ||
		sendfile(fd, image_fd, NULL, (size_t)size) != size ||
		pread(fd, &byte, 1, size / 4) != 1)
		child_die("copy the image");
	byte ^= 1;
	if (pwrite(fd, &byte, 1, size / 4) != 1)
		child_die("pwrite");
	img = image_of(fd);
	for (uint64_t at = 0, start, bytes; at < PAGES * PAGE; at = start + bytes) {
		bool data;

		image_frame_at(img, at, &start, &bytes);
		if (bytes <= sizeof(buf) && image_read_frame(img, start, buf, &err) == -EBADMSG) {
			bad = start;
			while (!image_page_has_data(img, bad))
				bad = image_run_end(img, bad, UINT64_MAX, &data);
		}
	}
	if (!ok(bad / PAGE < PAGES / 2, "a frame in the first half is damaged"))
		return;
	p = pager_of(img, NULL, PAGER_UFFD, &opt);
	snprintf(page, sizeof(page), "%llu", (unsigned long long)(bad / PAGE));
	m = attached(p, &news, ARGS("read", page));
	check_ended(&m, news, "damaged frame");
	pager_get_error(p, &err);
	has_str(err.text, "damaged", "the pager says why");
	m = attached(p, NULL, ARGS("read", "3000", "3001"));
	is_int(ended(&m), 0, "damaged frame: another machine that does not need it runs");
	pager_free(p);
	image_free(img);
}

/* A pager killed while its machine runs. */
static void test_killed(int image_fd, const char *page)
{
	const char *argv[] = {"/proc/self/exe", "engine", NULL};
	struct proc_spec spec = {.argv = argv, .keep_stderr = true, .die_with_parent = true};
	cleanup_proc struct proc engine = PROC_INIT;
	int sock[2], control[2], news[2], memory = -1;
	size_t n_fds = 1;
	struct proc m;
	struct err err;
	int64_t begin;
	int status;
	char byte;

	if (sock_pair(sock, &err) < 0 || sock_pair(control, &err) < 0 || sock_pair(news, &err) < 0)
		child_die("sockets");
	proc_map_fd(&spec, image_fd, 3);
	proc_map_fd(&spec, sock[0], 4);
	proc_map_fd(&spec, control[1], 5);
	if (proc_start(&spec, &engine, &err) < 0)
		child_die("engine");
	close(sock[0]);
	close(control[1]);
	if (sock_recv_fds(control[0], &byte, 1, &memory, &n_fds) != 1 || n_fds != 1)
		child_die("memory of the engine");
	m = machine(memory, sock[1], news[1], ARGS("stop", (char *)page));
	is_int(hear(news[0]), 'h', "a machine reads half of its memory");
	/* stopped, so that it cannot serve the page before it is killed */
	if (kill(engine.pid, SIGSTOP) < 0 ||
		waitpid(engine.pid, &status, WUNTRACED) != engine.pid || !WIFSTOPPED(status))
		child_die("stop the engine");
	if (write(news[0], "g", 1) != 1)
		child_die("news");
	begin = clock_now_ns();
	proc_kill(&engine);
	check_ended(&m, news[0], "pager killed");
	ok(clock_now_ns() - begin < 1000000000LL, "within a second");
	close(memory);
	close(control[0]);
}

static int engine_main(void)
{
	struct pager_options opt = {.threads = 2, .window_bytes = PAGE};
	struct pager *p = pager_of(image_of(3), NULL, PAGER_UFFD, &opt);
	int memory = pager_memory_fd(p);
	struct err err;
	char byte;

	alarm(120);
	if (pager_attach(p, 4, NULL, -1, &err) < 0 || sock_send_fds(5, "m", 1, &memory, 1) < 0)
		return 1;
	return read(5, &byte, 1) == 1; /* until the test goes */
}

/* Handshakes that are refused: the socket ends, and says nothing. */
static void test_handshakes(struct image *img)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"[1]",
		"[{\"base_host_virt_addr\":4096}]",
		"[{\"base_host_virt_addr\":4096,\"size\":4096,\"offset\":16777216,\"page_size\":"
		"4096}]",
		"[{\"base_host_virt_addr\":4097,\"size\":4096,\"offset\":0,\"page_size\":4096}]",
		"[{\"base_host_virt_addr\":4096,\"size\":8192,\"offset\":0,\"page_size\":4096},"
		"{\"base_host_virt_addr\":65536,\"size\":8192,\"offset\":4096,\"page_size\":4096}]",
		"[{\"base_host_virt_addr\":4096,\"size\":4096,\"offset\":0,\"page_size\":2097152}]",
	};
	cleanup_pager struct pager *p = pager_of(img, NULL, PAGER_UFFD, NULL);
	int uffd = uffd_create(NULL, NULL), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct pager_stats s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad) + 2; i++) {
		bool no_fd = i == sizeof(bad) / sizeof(*bad),
		     not_uffd = i > sizeof(bad) / sizeof(*bad);
		const char *text = i < sizeof(bad) / sizeof(*bad) ? bad[i] : "[]";
		int pair[2];
		struct err err;

		if (sock_pair(pair, &err) < 0 || pager_attach(p, pair[0], NULL, -1, &err) < 0)
			child_die("attach");
		if (sock_send_fds(pair[1], text[0] ? text : "x", strlen(text) ?: 1,
			    not_uffd ? &null : &uffd, no_fd ? 0 : 1) < 0)
			child_die("send");
		is_int(hear(pair[1]), 0, "handshake refused: %s",
			no_fd              ? "no descriptor"
				: not_uffd ? "not a userfaultfd"
					   : text);
		close(pair[1]);
	}
	for (int i = 0; i < 2000; i++) {
		pager_get_stats(p, &s);
		if (s.machines == 0)
			break;
		poll(NULL, 0, 5);
	}
	is_int(s.machines, 0, "no machine with a bad handshake stays attached");
	close(uffd);
	close(null);
}

/* A monitor that was taken over makes the descriptor, which is its own too, a blocking one. */
static void test_blocking(struct image *img)
{
	struct uffd_msg msgs[4];
	struct err err;
	int uffd = uffd_create(NULL, &err);

	if (uffd < 0 || fcntl(uffd, F_SETFL, 0) < 0)
		child_die("no userfaultfd");
	is_int(uffd_read(uffd, msgs, 4), 0, "a descriptor made to block does not block a read");
	atomic_store(&uffd_no_nowait, true);
	is_int(uffd_read(uffd, msgs, 4), 0, "a read does not block where the kernel is older");
	is_int(uffd_read(uffd, msgs, 4), 0,
		"the next read does not block where the kernel is older");
	close(uffd);
	test_chaos(img, PAGE, 3, "40000", 100000);
}

int main(int argc, char **argv)
{
	struct image *img;
	const char *how = NULL;
	int fd;
	struct err err;

	if (argc > 1 && strcmp(argv[1], "machine") == 0)
		return child_main(argc, argv);
	if (argc > 1 && strcmp(argv[1], "engine") == 0)
		return engine_main();
	fd = image_file(PAGES, 32768);
	img = image_of(fd);
	test_private(img);
	if (pager_probe(&how, &err) < 0) {
		has_str(err.text, "userfaultfd", "the probe says what is missing");
		tap_skip("userfaultfd may not be used here");
		return tap_done();
	}
	ok(how && how[0], "userfaultfd works, by %s", how);
	setenv("PARBAKE_NO_UFFD", "1", 1);
	is_int(pager_probe(&how, &err), -EOPNOTSUPP, "PARBAKE_NO_UFFD is obeyed");
	unsetenv("PARBAKE_NO_UFFD");
	test_handshakes(img);
	test_wset(img);
	test_chaos(img, PAGE, 3, "40000", 100000);
	test_chaos(img, 0, 4, "4000", 1000);
	test_damage(fd);
	test_killed(fd, "10");
	test_blocking(img);
	image_free(img);
	close(fd);
	return tap_done();
}
