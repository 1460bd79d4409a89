/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: what comes is told, what was removed is not, timers come in order. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/loop.h"
#include "tests/unit/tap.h"

static struct loop *l;
static struct err err;
static char order[64];

static void note(void *user)
{
	strcat(order, user);
}

static void stop(void *user)
{
	(void)user;
	loop_stop(l);
}

/* ---- timers -------------------------------------------------------------------------------- */

static struct loop_timer *victim;

static void cancel_victim(void *user)
{
	note(user);
	loop_timer_cancel(victim);
	victim = NULL;
}

static void make_another(void *user)
{
	note(user);
	loop_defer(l, note, "n");
	loop_timer(l, -5, note, "m");
}

static void test_timers(void)
{
	int64_t now = clock_now_ns();
	struct loop_timer *gone;

	order[0] = '\0';
	loop_timer(l, now + 3000000, note, "c");
	loop_timer(l, now + 1000000, note, "a");
	gone = loop_timer(l, now + 2000000, note, "x");
	loop_timer(l, now + 2000000, note, "b");
	loop_timer(l, now + 4000000, stop, NULL);
	loop_timer_cancel(gone);
	loop_timer_cancel(NULL);
	is_int(loop_run(l, &err), 0, "a loop runs until it is stopped");
	ok(clock_now_ns() >= now + 4000000, "no timer comes early");
	is_str(order, "abc", "timers come in their order, the cancelled one does not");

	order[0] = '\0';
	loop_timer(l, 1, cancel_victim, "1");
	victim = loop_timer(l, 2, note, "x");
	loop_timer(l, 2, note, "2");
	loop_once(l, 0, &err);
	is_str(order, "12", "a timer that was due is cancelled by another");

	order[0] = '\0';
	loop_defer(l, make_another, "d");
	loop_once(l, CLOCK_NEVER, &err);
	is_str(order, "d",
		"what a callback defers waits for the next round, its past does not help");
	loop_once(l, CLOCK_NEVER, &err);
	is_str(order, "dnm", "a deferred call comes in the next round");

	order[0] = '\0';
	for (int i = 0; i < 5; i++)
		loop_defer(l, note, &"a\0b\0c\0d\0e"[i * 2]);
	loop_once(l, 0, &err);
	is_str(order, "abcde", "those of one time come as they were made");
	loop_timer(l, CLOCK_NEVER, note, "never"); /* freed by loop_free() */
}

/* Many, in any order, some of them cancelled: the heap's order holds. */
static int64_t last_at;
static unsigned came, unordered;

static void in_order(void *user)
{
	int64_t at = *(int64_t *)user;

	unordered += at < last_at;
	last_at = at;
	came++;
}

static void test_heap(void)
{
	static int64_t at[2000];
	static struct loop_timer *t[2000];
	unsigned kept = 0;

	srand(7);
	for (unsigned i = 0; i < 2000; i++) {
		at[i] = 1 + rand() % 500;
		t[i] = loop_timer(l, at[i], in_order, &at[i]);
	}
	for (unsigned i = 0; i < 2000; i++) {
		if (rand() % 3)
			kept++;
		else
			loop_timer_cancel(t[i]);
	}
	loop_once(l, 0, &err);
	is_int(came, kept, "of 2000 timers those that were not cancelled came");
	is_int(unordered, 0, "in their order");
}

/* ---- descriptors --------------------------------------------------------------------------- */

struct end {
	int fd;
	struct loop_watch *watch;
	struct end *removes; /* is removed when this one is called */
	unsigned calls;
	short seen;
};

static void on_end(void *user, short revents)
{
	struct end *e = user;

	e->calls++;
	e->seen = revents;
	if (!e->removes)
		return;
	loop_remove(e->removes->watch);
	close(e->removes->fd);
	e->removes->watch = NULL;
	if (e->removes != e) /* which of two goes first is epoll's choice */
		e->removes = NULL;
}

static void watch(struct end *e, int fd, short events)
{
	*e = (struct end){.fd = fd};
	e->watch = loop_add(l, fd, events, on_end, e, &err);
}

/* Is there a timerfd of this clock (timerfd_create(2), proc(5)) in this process, and set? */
static bool has_timerfd(int clock)
{
	char path[64], line[128];
	int id = -1, found = 0;
	long long s, ns;

	for (int fd = 3; fd < 64; fd++) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f)) {
			sscanf(line, "clockid: %d", &id);
			if (sscanf(line, "it_value: (%lld, %lld)", &s, &ns) == 2 && id == clock)
				found |= s > 0 || ns > 0;
		}
		if (f)
			fclose(f);
		id = -1;
	}
	return found;
}

/* Nobody can put the host to sleep here; that the kernel wakes us by the clock that goes on then can be seen. */
static void test_boot_timers(void)
{
	int64_t now = clock_boot_ns();
	struct loop_timer *gone, *far;

	order[0] = '\0';
	far = loop_timer_boot(l, now + 3600000000000, note, "f");
	is_int(loop_once(l, clock_deadline(0), &err), 0, "a round with a timer that is far");
	ok(has_timerfd(CLOCK_BOOTTIME), "the kernel has been asked to wake us, by CLOCK_BOOTTIME");
	loop_timer_boot(l, now + 3000000, note, "b");
	loop_timer_boot(l, now + 1000000, note, "a");
	gone = loop_timer_boot(l, now + 2000000, note, "x");
	loop_timer_boot(l, now + 4000000, stop, NULL);
	loop_timer_cancel(gone);
	is_int(loop_run(l, &err), 0, "timers by that clock run without another event");
	is_str(order, "ab", "in order, and not those that were cancelled");
	order[0] = '\0';
	loop_timer_boot(l, 0, note, "p");
	loop_timer(l, 0, note, "q");
	is_int(loop_once(l, clock_deadline(0), &err), 0, "timers of both clocks come");
	is_str(order, "qp", "what is due comes in one round");
	loop_timer_cancel(far);
	is_int(loop_once(l, clock_deadline(0), &err), 0, "a round with none");
	ok(!has_timerfd(CLOCK_BOOTTIME), "a loop without timers of the boot clock has no timerfd");
}

static void test_watch(void)
{
	struct end e;
	int pair[2];
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	watch(&e, pair[0], POLLIN);
	ok(e.watch, "a socket is watched");
	loop_once(l, 0, &err);
	is_int(e.calls, 0, "a quiet socket is not told");
	ok(write(pair[1], "x", 1) == 1, "a byte");
	loop_once(l, CLOCK_NEVER, &err);
	is_int(e.seen, POLLIN, "a byte on a watched socket is told");
	loop_once(l, CLOCK_NEVER, &err);
	is_int(e.calls, 2, "a byte that was not read is told again");
	loop_set(e.watch, 0);
	loop_once(l, 0, &err);
	is_int(e.calls, 2, "not where nobody wants to know");
	loop_set(e.watch, POLLIN | POLLOUT);
	loop_once(l, CLOCK_NEVER, &err);
	is_int(e.seen, POLLIN | POLLOUT, "reading and writing are both told");
	ok(read(pair[0], &byte, 1) == 1, "the byte is read");
	loop_set(e.watch, 0);
	close(pair[1]);
	loop_once(l, CLOCK_NEVER, &err);
	ok(e.seen & POLLHUP, "a hang-up is told to who wants nothing else");
	loop_remove(e.watch);
	loop_remove(NULL);
	close(pair[0]);
}

static void test_removal(void)
{
	struct end a, b;
	int pair[2], other[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other) < 0)
		abort();
	watch(&a, pair[0], POLLOUT);
	watch(&b, other[0], POLLOUT);
	a.removes = &b;
	b.removes = &a;
	loop_once(l, CLOCK_NEVER, &err);
	is_int(a.calls + b.calls, 1,
		"of two events one callback removes the other: it is not called");
	if (a.watch) {
		a.removes = &a;
		loop_once(l, CLOCK_NEVER, &err);
	} else {
		b.removes = &b;
		loop_once(l, CLOCK_NEVER, &err);
	}
	ok(!a.watch && !b.watch, "the one that is left removes itself");
	is_int(a.calls + b.calls, 2, "having been called");
	loop_once(l, 0, &err);
	is_int(a.calls + b.calls, 2, "a watch that was removed is not called any more");
	close(pair[1]);
	close(other[1]);
}

static void test_refused(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	ok(!loop_add(l, fd, POLLIN, on_end, NULL, &err), "a regular file cannot be watched");
	has_str(err.text, "watch descriptor", "the error says what was tried");
	close(fd);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void test_interrupted(void)
{
	struct itimerval soon = {.it_value.tv_usec = 1000};
	struct sigaction act = {.sa_handler = on_alarm};
	int64_t at = clock_now_ns() + 5000000;

	sigaction(SIGALRM, &act, NULL);
	order[0] = '\0';
	loop_timer(l, at, note, "t");
	setitimer(ITIMER_REAL, &soon, NULL);
	is_int(loop_once(l, CLOCK_NEVER, &err), 0, "a signal is no error");
	is_str(order, "t", "a signal does not end the round");
}

int main(void)
{
	struct end left;
	int pair[2];

	if (loop_new(&l, &err) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	test_timers();
	test_heap();
	test_boot_timers();
	test_watch();
	test_removal();
	test_refused();
	test_interrupted();
	loop_stop(l);
	is_int(loop_run(l, &err), 0, "stopped before it ran, it does not wait");
	watch(&left, pair[0], POLLIN);
	loop_free(l);
	ok(fcntl(pair[0], F_GETFD) >= 0, "what is left in the loop stays open");
	loop_free(NULL);
	return tap_done();
}
