/* SPDX-License-Identifier: Apache-2.0 */
/* What machines print is drained by a thread, which ends where it is told to and comes again. */
#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "tests/unit/tap.h"
#include "vmm/console.h"

static struct err err;

static unsigned threads(void)
{
	cleanup_dir DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	return n;
}

/* One that was joined is listed a moment longer. */
static bool alone(void)
{
	int64_t deadline = clock_deadline(20000);

	while (threads() != 1 && clock_left_ms(deadline))
		poll(NULL, 0, 1);
	return threads() == 1;
}

static struct console *console(int *ret_fd)
{
	struct console *c = NULL;

	if (console_new(64, &c, ret_fd, &err) < 0)
		printf("# %s\n", err.text);
	return c;
}

/* More than a pipe holds goes through: somebody drains it. */
static bool drained(int fd)
{
	static char block[4096];

	memset(block, 'x', sizeof(block));
	for (int i = 0; i < 64; i++) {
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return false;
	}
	return write(fd, "the end", 7) == 7;
}

static void test_drain(void)
{
	int fd = -1;
	struct console *c = console(&fd);
	char *text;

	ok(c && drained(fd), "what is printed is drained");
	is_int(threads(), 2, "by one thread");
	ok(!console_stop(), "which stays where there is a console");
	is_int((int64_t)console_total(c), 64 * 4096 + 7, "nothing is lost");
	text = console_text(c);
	is_int(text ? (int64_t)strlen(text) : -1, 64, "the newest is kept");
	has_str(text, "xxxthe end", "to the last byte");
	free(text);
	console_free(c);
	close(fd);
}

static void test_stop(void)
{
	int fd = -1, status = -1;
	struct console *c;
	pid_t pid;

	ok(console_stop() && alone(), "without a console the thread can be ended");
	ok(console_stop(), "twice, too");
	c = console(&fd);
	ok(c && drained(fd), "the next console has another");
	console_free(c);
	close(fd);
	ok(console_stop() && alone(), "which ends likewise");
	pid = fork();
	if (pid == 0) {
		alarm(20);
		c = console(&fd);
		_exit(c && drained(fd) ? 0 : 1);
	}
	ok(waitpid(pid, &status, 0) == pid && status == 0, "a fork has its own");
	is_int(threads(), 1, "a fork's own console has no thread that others know of");
}

int main(void)
{
	test_drain();
	test_stop();
	return tap_done();
}
