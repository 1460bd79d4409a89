/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine that is checkpointed as soon as it runs again, while a slow pager still gives it the pages of its own.
 * The guest is a process that steps one byte a page, so that every page says how often it was stepped; each checkpoint
 * is compared byte for byte with an oracle that counted along. Over chains of resume, step, checkpoint at once, and
 * forks of forks, PARBAKE_STEPS times (200).
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/proc.h"
#include "restore/checkpoint_private.h"
#include "tests/unit/pager_image.h"
#include "tests/unit/tap.h"
#include "vmm/machine.h"

#define PAGES 512ul
#define STEPPED 128 /* of these */
#define FRAME 32768
#define CHAIN 6 /* checkpoints, one of the other; then it begins anew */
#define DEADLINE_MS 40000

static struct err err;
static struct image *img;

/* A checkpoint's memory, and how often each of its pages was stepped. */
struct checkpoint_of {
	int image; /* -1: no page differs */
	struct snapshot_ranges ranges;
	uint8_t steps[PAGES];
};

static void must(int r)
{
	if (r < 0) {
		fprintf(stderr, "# %s\n", err.text);
		exit(1);
	}
}

static bool is_stepped(uint64_t seed, uint64_t page)
{
	return page % (PAGES / STEPPED) == 0 && mix(seed * PAGES + page) % 4 == 0;
}

static size_t stepped_byte(uint64_t page)
{
	return mix(page) % PAGE;
}

/* ---- the guest ------------------------------------------------------------------------------ */

/* `machine SEED`: it steps as soon as it can, and says so. */
static _Noreturn void guest(const char *seed)
{
	static struct child c = {.sock = 4, .news = 5, .uffd = -1, .early = true, .pages = PAGES};

	alarm(120);
	c.map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, 3, 0);
	if (c.map == MAP_FAILED)
		child_die("memory");
	child_attach(&c);
	for (uint64_t page = 0; page < PAGES; page++) {
		if (is_stepped(strtoull(seed, NULL, 10), page))
			c.map[page * PAGE + stepped_byte(page)]++;
	}
	if (write(c.news, "s", 1) != 1)
		child_die("news");
	for (;;)
		pause();
}

/* ---- its life ------------------------------------------------------------------------------- */

struct running {
	struct machine machine;
	struct sandbox sb;
};

static int start(
	struct running *m, struct pager *p, const struct checkpoint_of *from, uint64_t seed)
{
	char text[24];
	const char *argv[] = {"/proc/self/exe", "machine", text, NULL};
	struct proc_spec spec = {.argv = argv, .keep_stderr = true, .die_with_parent = true};
	struct memory_delta *own = NULL;
	int pair[2], news[2], in[2] = {-1, -1};

	snprintf(text, sizeof(text), "%" PRIu64, seed);
	*m = (struct running){.machine.proc = PROC_INIT, .sb.own_in = -1};
	must(sock_pair(pair, &err));
	must(sock_pair(news, &err));
	if (from->ranges.n) {
		must(memory_delta_open(from->image, &from->ranges, PAGES * PAGE, &own, &err));
		must(snapshot_ranges_copy(&from->ranges, &m->sb.own, &err));
		must(sock_pair(in, &err));
	}
	m->sb.own_in = in[0];
	must(pager_attach(p, pair[0], own, in[1], &err));
	must(fstat(pager_memory_fd(p), &m->sb.memory));
	proc_map_fd(&spec, pager_memory_fd(p), 3);
	proc_map_fd(&spec, pair[1], 4);
	proc_map_fd(&spec, news[1], 5);
	must(proc_start(&spec, &m->machine.proc, &err));
	close(pair[1]);
	close(news[1]);
	return news[0];
}

/* False: it did not live to step. */
static bool resume(
	struct running *m, struct pager *p, const struct checkpoint_of *from, uint64_t seed)
{
	struct pollfd pfd = {.fd = start(m, p, from, seed), .events = POLLIN};
	bool stepped;
	char byte;

	if (poll(&pfd, 1, DEADLINE_MS) != 1)
		child_die("the guest does not step");
	stepped = read(pfd.fd, &byte, 1) == 1;
	close(pfd.fd);
	return stepped;
}

static void end(struct running *m)
{
	proc_kill(&m->machine.proc);
	close_fd(&m->sb.own_in);
	snapshot_ranges_clear(&m->sb.own);
}

static void clear(struct checkpoint_of *c)
{
	close_fd(&c->image);
	snapshot_ranges_clear(&c->ranges);
}

/*
 * Checkpoint it as a sandbox is checkpointed. Either way alone has to be enough: that all of its pages are waited for,
 * or (@at_once) that those it was made with count as its own whether they are there yet or not.
 */
static int checkpoint(struct running *m, struct pager *p, bool at_once, struct checkpoint_of *ret)
{
	const struct snapshot_ranges none = {0};
	struct checkpoint_memory take = {.machine = &m->machine,
		.file = &m->sb.memory,
		.bytes = PAGES * PAGE,
		.image = img,
		.template_fd = pager_memory_fd(p),
		.own = at_once ? &m->sb.own : &none,
		.max_ranges = LIMIT_CAPTURE_RANGES,
		.deadline = clock_deadline(DEADLINE_MS)};
	struct image_options opt = {.frame_bytes = FRAME, .level = 1, .no_raw_digest = true};
	struct image_stats stats;
	int raw = memfd_create("raw", MFD_CLOEXEC), r = 0;

	ret->image = memfd_create("checkpoint", MFD_CLOEXEC);
	ret->ranges = (struct snapshot_ranges){0};
	if (!at_once)
		r = sandbox_wait_memory(&m->sb, clock_deadline(DEADLINE_MS), &err);
	if (r == 0)
		kill(m->machine.proc.pid, SIGSTOP);
	if (r == 0)
		r = checkpoint_memory_take(&take, raw, &ret->ranges, &err);
	if (r == 0)
		r = image_write(raw, (uint64_t)lseek(raw, 0, SEEK_END), &opt, ret->image, NULL,
			&stats, &err);
	close(raw);
	return r;
}

/* Pages of @c that are not as the oracle has them. */
static unsigned wrong_pages(const struct checkpoint_of *c)
{
	struct memory_delta *d;
	int memory = memfd_create("memory", MFD_CLOEXEC);
	uint8_t want[PAGE], *got;
	unsigned wrong = 0;

	if (ftruncate(memory, PAGES * PAGE) < 0)
		child_die("memfd");
	got = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	for (uint64_t page = 0; page < PAGES; page++)
		oracle_page(page, got + page * PAGE);
	must(memory_delta_open(c->image, &c->ranges, PAGES * PAGE, &d, &err));
	must(memory_delta_apply(d, memory, &err));
	memory_delta_free(d);
	for (uint64_t page = 0; page < PAGES; page++) {
		oracle_page(page, want);
		want[stepped_byte(page)] += c->steps[page];
		wrong += memcmp(got + page * PAGE, want, PAGE) != 0;
	}
	munmap(got, PAGES * PAGE);
	close(memory);
	return wrong;
}

static void count_steps(const struct checkpoint_of *from, uint64_t seed, struct checkpoint_of *ret)
{
	for (uint64_t page = 0; page < PAGES; page++)
		ret->steps[page] = from->steps[page] + is_stepped(seed, page);
}

/* One link of a chain: @from is resumed twice (it and a fork), each checkpointed at once. The fork's is the next. */
static unsigned link_of(struct pager *p, struct checkpoint_of *from, uint64_t seed)
{
	struct checkpoint_of next[2];
	struct running m[2];
	unsigned wrong = 0;

	for (unsigned i = 0; i < 2; i++) {
		if (!resume(&m[i], p, from, seed + i))
			child_die("the guest ended");
	}
	for (unsigned i = 0; i < 2; i++) {
		must(checkpoint(&m[i], p, (seed / 2 + i) % 2, &next[i]));
		count_steps(from, seed + i, &next[i]);
		wrong += wrong_pages(&next[i]);
		end(&m[i]);
	}
	clear(from);
	clear(&next[0]);
	*from = next[1];
	return wrong;
}

static void test_steps(unsigned times)
{
	struct pager_options opt = {.threads = 2};
	struct checkpoint_of c = {.image = -1};
	struct pager_stats s;
	cleanup_pager struct pager *p = NULL;
	unsigned wrong = 0;

	must(pager_new(img, NULL, PAGER_UFFD, &opt, &p, &err));
	for (unsigned i = 0; i < times; i++) {
		if (i % CHAIN == 0) {
			clear(&c);
			c = (struct checkpoint_of){.image = -1};
		}
		wrong += link_of(p, &c, 2 * i);
	}
	clear(&c);
	pager_get_stats(p, &s);
	printf("# %u machines, %" PRIu64 " own pages given\n", 2 * times, s.pages_own);
	ok(s.pages_own > times, "machines were given pages of their own");
	is_int(wrong, 0, "checkpointed as soon as they ran, %u times, no page lost a step",
		2 * times);
}

/* The host has no memory for one of its pages, and does not get it: it is told, and the machine ends. */
static void test_refused(void)
{
	struct pager_options opt = {.threads = 2};
	struct checkpoint_of none = {.image = -1}, first, second;
	cleanup_pager struct pager *p = NULL;
	struct running m;
	int status = -1;

	must(pager_new(img, NULL, PAGER_UFFD, &opt, &p, &err));
	ok(resume(&m, p, &none, 1), "a machine steps");
	is_int(checkpoint(&m, p, false, &first), 0, "a machine that steps is checkpointed");
	end(&m);
	resume(&m, p, &first, 2);
	is_int(checkpoint(&m, p, false, &second), -ECONNABORTED,
		"one that does not get them all is not");
	ok(err.text[0], "with a reason");
	is_int(proc_wait(&m.machine.proc, clock_deadline(DEADLINE_MS), &status), 0,
		"a machine whose pages do not all come ends");
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "by the pager's word");
	end(&m);
	clear(&first);
	clear(&second);
}

#define CROWD 24 /* more than get a thread of their own */

/* Many are given their pages, none of which comes within the minute: a sibling that needs none is served. */
static void test_crowd(void)
{
	struct pager_options opt = {.threads = 2};
	struct checkpoint_of none = {.image = -1}, first;
	struct running m[CROWD], sibling;
	struct pager *p;

	must(pager_new(img, NULL, PAGER_UFFD, &opt, &p, &err));
	ok(resume(&m[0], p, &none, 1), "a machine steps");
	must(checkpoint(&m[0], p, false, &first));
	end(&m[0]);
	for (unsigned i = 0; i < CROWD; i++)
		close(start(&m[i], p, &first, i));
	ok(resume(&sibling, p, &none, 2), "beside many that are resumed a machine is served");
	end(&sibling);
	for (unsigned i = 0; i < CROWD; i++)
		end(&m[i]);
}

static void begin(const char *fault)
{
	setenv("PARBAKE_FAULT", fault, 1);
	must(image_open(image_file(PAGES, FRAME), &img, &err));
}

/* In a process of its own, as a fault is of a whole process. */
static void in_fork(const char *fault, void (*test)(void), const char *name)
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		begin(fault);
		test();
		_exit(tap_failed ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "%s", name);
}

int main(int argc, char **argv)
{
	const char *steps = getenv("PARBAKE_STEPS");

	if (argc > 2 && strcmp(argv[1], "machine") == 0)
		guest(argv[2]);
	if (pager_probe(NULL, &err) < 0) {
		tap_skip("userfaultfd may not be used here");
		return tap_done();
	}
	in_fork("restore.pager.own:3=ENOMEM", test_refused,
		"a machine whose pages cannot all be given is ended and not checkpointed");
	in_fork("restore.pager.own=60000ms", test_crowd,
		"many that are given their pages do not keep a sibling waiting");
	begin("restore.pager.own=1ms");
	test_steps(steps ? (unsigned)strtoul(steps, NULL, 10) / 2 : 100);
	image_free(img);
	return tap_done();
}
