/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of languages. Their drivers are texts inside the agent (embed.c) and reach an interpreter
 * as sealed memfds: a template needs nothing of ours on its disk.
 */
#include "agent/language.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/embed.h"

static char python[] = "python3", isolated[] = "-I", unbuffered[] = "-u", at5[] = "/proc/self/fd/5";
static char *const python_argv[] = {python, isolated, unbuffered, at5, NULL};

static const struct language languages[] = {
	{.name = "python",
		.argv = python_argv,
		.files = {EMBED_FILE(python_driver), EMBED_FILE(python_results),
			EMBED_FILE(python_loop), EMBED_FILE(python_rich),
			EMBED_FILE(python_chart)}},
};

static const struct {
	const char *alias, *name;
} aliases[] = {
	{"", "python"},
	{"python3", "python"},
	{"py", "python"},
};

static int drivers[sizeof(languages) / sizeof(*languages)]
		  [LANGUAGE_FILES_MAX]; /* 0: not made yet */

const struct language *language_find(const char *name)
{
	name = name ? name : "";
	for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++)
		if (!strcasecmp(aliases[i].alias, name))
			name = aliases[i].name;
	for (size_t i = 0; i < sizeof(languages) / sizeof(*languages); i++)
		if (!strcasecmp(languages[i].name, name))
			return &languages[i];
	return NULL;
}

static int sealed(const char *name, const char *begin, const char *end)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (write(fd, begin, (size_t)(end - begin)) != end - begin ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

int language_driver(const struct language *l, int *ret_fds)
{
	int *made = drivers[l - languages], n = 0;

	for (; n < (int)LANGUAGE_FILES_MAX && l->files[n].name; n++) {
		if (!made[n]) {
			int fd = sealed(l->files[n].name, l->files[n].begin, l->files[n].end);

			if (fd < 0)
				return fd;
			made[n] = fd;
		}
		ret_fds[n] = made[n];
	}
	return n;
}
