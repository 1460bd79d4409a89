/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each line does what such programs do most, on a few small files in a directory of its own, which
 * lies in memory: nothing of it gets onto the disk of a snapshot. What it prints is read and thrown
 * away, as writing into a pipe is part of what a sandbox does.
 */
#include "restore/programs.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#define DIRECTORY "/dev/shm/parbake-programs"
#define ABSENT 127 /* a shell's status for a command that is not there */
#define GRACE_MS 5000

static const struct programs_one known[] = {
	{"sh", NULL,
		":; true; /bin/true; echo a | cat; (exit 3); x=$(echo b); test \"$x\" = b && [ -d "
		"/ ] && "
		"for i in 1 2; do printf '%s\\n' $i; done; echo c >&2"},
	{"bash", "bash",
		"bash -lc true; bash -c 'a=(1 2); for i in ${a[@]}; do echo $((i * 2)); done; [[ x "
		"== "
		"x* ]] && echo a b | while read -r p q; do echo $q; done'"},
	{"coreutils", "ls",
		"echo hello >a; cp a b; mv b c; mkdir -p d/e; touch d/f; chmod 644 a; ln -s a g; "
		"ls "
		"-la; ls d; cat a c; head -n 1 a; tail -n 1 a; wc -l a; sort a c | uniq -c; cut "
		"-c1-2 "
		"a; tr a-z A-Z <a; seq 3 | tee h; basename /x/y; dirname /x/y; readlink g; stat a; "
		"du "
		"-s .; df .; md5sum a; sha256sum a; date; env; id; whoami; uname -a; hostname; "
		"pwd; "
		"sleep 0; expr 1 + 1; rm -rf c d g h"},
	{"text", "sed",
		"printf 'a 1\\nb 2\\n' >a; grep -r b .; grep -c a a; sed s/a/b/ a; awk '{ s += $2 "
		"} END "
		"{ print s }' a; find . -name 'a*' -type f; echo a | xargs cat; diff a a; tar cf "
		"b.tar "
		"a; tar tf b.tar; gzip b.tar; gunzip b.tar.gz; ps ax; which sh"},
	{"git", "git",
		"git init -q r && cd r && echo a >f && git add f && git -c user.name=a -c "
		"user.email=a@example.org commit -qm a && git status && git log && git diff && git "
		"clone -q . ../s"},
	{"curl", "curl", "echo a >a; curl -sS file://$PWD/a; curl -sS http://127.0.0.1:9/"},
	{"python3", "python3",
		"python3 -c pass; python3 -c 'import json, os, re, sys, subprocess; "
		"print(json.dumps({\"a\": re.findall(\"b\", \"abc\")})); "
		"subprocess.run([\"true\"])'; "
		"echo 'import sys; print(sys.argv)' >a.py; python3 a.py b"},
	{"pip", "pip", "pip --version"},
	{"node", "node", "node -e 'console.log(1)'"},
};

size_t programs_list(
	const struct strings *named, bool emulated, struct programs_one ret[static PROGRAMS_MAX])
{
	size_t n = 0;

	_Static_assert(sizeof(known) / sizeof(*known) + LIMIT_PROGRAMS <= PROGRAMS_MAX, "raise it");
	for (size_t i = 0; emulated && i < sizeof(known) / sizeof(*known); i++)
		ret[n++] = known[i];
	for (size_t i = 0; i < named->n && i < LIMIT_PROGRAMS; i++)
		ret[n++] = (struct programs_one){.name = named->items[i], .line = named->items[i]};
	return n;
}

void programs_to_extra(const struct strings *named, json_t *extra)
{
	json_t *list;

	if (!named->n)
		return;
	list = json_array();
	for (size_t i = 0; i < named->n; i++)
		json_array_append_new(list, json_string(named->items[i]));
	if (json_object_set_new(extra, "programs", list) < 0)
		abort();
}

void programs_from_extra(const json_t *extra, struct strings *ret)
{
	const json_t *list = json_object_get(extra, "programs");

	for (size_t i = 0; i < json_array_size(list) && i < LIMIT_PROGRAMS; i++) {
		const char *line = json_string_value(json_array_get(list, i));

		if (line)
			strings_add(ret, line);
	}
}

static int drop(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	(void)user;
	(void)channel;
	(void)bytes;
	(void)len;
	return 0;
}

int programs_run(struct guest *g, int alive_fd, const char *const *env,
	const struct programs_one *p, int64_t budget_ms, struct err *err)
{
	cleanup_free char *line = str_printf("command -v %s >/dev/null || exit %d\n"
					     "rm -rf " DIRECTORY "; mkdir " DIRECTORY
					     " && cd " DIRECTORY " || exit 1\n%s\n"
					     "cd /; rm -rf " DIRECTORY,
		p->needs ?: ":", ABSENT, p->line);
	struct guest_exec_spec spec = {.shell = line,
		.env = env,
		.timeout_ms = (uint64_t)budget_ms,
		.stdin_fd = -1,
		.output = drop};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_exec(g, &spec, clock_deadline(budget_ms + GRACE_MS), alive_fd, &res, err);

	if (r == -ENOENT) /* a root without a shell */
		return 0;
	return r < 0 ? r : res.exit_code != ABSENT;
}
