/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A terminal that is lent to a guest. It is put to raw mode, so that keys such as ^C are the guest's; so
 * whatever ends this process must put it back, signals included: their handler does so and then lets the
 * signal do what it does. A change of its size comes as SIGWINCH, by way of a descriptor in the guest's
 * own loop.
 */
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define ROWS 24
#define COLUMNS 80

static struct termios before;
static volatile sig_atomic_t raw;

void terminal_size(unsigned *ret_rows, unsigned *ret_cols)
{
	static const int fds[] = {STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO};

	*ret_rows = ROWS;
	*ret_cols = COLUMNS;
	for (unsigned i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		struct winsize ws = {0};

		if (ioctl(fds[i], TIOCGWINSZ, &ws) < 0 || !ws.ws_row || !ws.ws_col)
			continue;
		*ret_rows = ws.ws_row;
		*ret_cols = ws.ws_col;
		return;
	}
}

void terminal_restore(void)
{
	if (raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	raw = 0;
}

/* Only calls that a handler may make. SA_RESETHAND: the second one ends us. */
static void restore_and_die(int sig)
{
	if (raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &before);
	raw = 0;
	raise(sig);
}

void terminal_raw(void)
{
	static const int deadly[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
	struct sigaction action = {.sa_handler = restore_and_die, .sa_flags = SA_RESETHAND}, was;
	struct termios wanted;

	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
		return;
	sigemptyset(&action.sa_mask);
	for (unsigned i = 0; i < sizeof(deadly) / sizeof(*deadly); i++) {
		if (sigaction(deadly[i], NULL, &was) == 0 && was.sa_handler == SIG_DFL)
			sigaction(deadly[i], &action, NULL);
	}
	wanted = before;
	cfmakeraw(&wanted);
	raw = 1;
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &wanted) < 0)
		raw = 0;
}

void terminal_resized(void *fd, unsigned *ret_rows, unsigned *ret_cols)
{
	struct signalfd_siginfo info;

	while (read(*(int *)fd, &info, sizeof(info)) == sizeof(info))
		;
	terminal_size(ret_rows, ret_cols);
}

int terminal_resize_fd(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -1;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int terminal_pass(int fd, const void *bytes, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	const char *at = bytes;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EAGAIN)
			poll(&p, 1, -1);
		else if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
	}
	return 0;
}
