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

/* What execvp(3) takes is not const, though it changes nothing. */
#define WORD(name, text) static char name[] = text

WORD(python, "python3");
WORD(isolated, "-I");
WORD(unbuffered, "-u");
WORD(at5, "/proc/self/fd/5");
WORD(node, "node");
WORD(evaluate, "-e");
WORD(load5, "eval(require('fs').readFileSync('/proc/self/fd/5', 'utf8'))");
WORD(javascript, "javascript");
WORD(typescript, "typescript");
WORD(bash, "bash");
WORD(r, "r");
WORD(java, "java");

static char *const python_argv[] = {python, isolated, unbuffered, at5, NULL};
static char *const javascript_argv[] = {node, evaluate, load5, javascript, NULL};
static char *const typescript_argv[] = {node, evaluate, load5, typescript, NULL};
static char *const bash_argv[] = {python, isolated, at5, bash, NULL};
static char *const r_argv[] = {python, isolated, at5, r, NULL};
static char *const java_argv[] = {python, isolated, at5, java, NULL};

static const struct language languages[] = {
	{.name = "python",
		.packages = "python3 ipython3",
		.argv = python_argv,
		.files = {EMBED_FILE(python_driver), EMBED_FILE(python_results),
			EMBED_FILE(python_loop), EMBED_FILE(python_rich),
			EMBED_FILE(python_chart)}},
	{.name = "javascript",
		.packages = "nodejs",
		.argv = javascript_argv,
		.files = {EMBED_FILE(javascript_driver)}},
	{.name = "typescript",
		.packages = "nodejs node-typescript",
		.argv = typescript_argv,
		.files = {EMBED_FILE(javascript_driver)}},
	{.name = "bash",
		.packages = "bash python3",
		.argv = bash_argv,
		.files = {EMBED_FILE(bridge_driver), EMBED_FILE(bridge_bash)}},
	{.name = "r",
		.packages = "r-base-core python3",
		.argv = r_argv,
		.files = {EMBED_FILE(bridge_driver), EMBED_FILE(bridge_r)}},
	{.name = "java",
		.packages = "openjdk-17-jdk-headless python3",
		.argv = java_argv,
		.files = {EMBED_FILE(bridge_driver), EMBED_FILE(bridge_java)}},
};

static const struct {
	const char *alias, *name;
} aliases[] = {
	{"", "python"},
	{"python3", "python"},
	{"py", "python"},
	{"js", "javascript"},
	{"node", "javascript"},
	{"ts", "typescript"},
	{"sh", "bash"},
	{"shell", "bash"},
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
