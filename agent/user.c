/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /etc/passwd and /etc/group, read by hand: a static C library must not load
 * name service modules of a root it does not know.
 */
#include "agent/user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/root.h"

/* Cut @line into at most @max fields at ':'; how many. */
static unsigned split(char *line, char **fields, unsigned max)
{
	unsigned n = 0;

	while (line && n < max)
		fields[n++] = strsep(&line, ":");
	return n;
}

static int number(const char *s, uint32_t *ret)
{
	unsigned long long v = 0;

	if (!*s || strlen(s) > 10)
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -1;
		v = v * 10 + (unsigned)(*s - '0');
	}
	if (v >= UINT32_MAX) /* (uid_t)-1 means "no change" to the kernel */
		return -1;
	*ret = (uint32_t)v;
	return 0;
}

/* The entry of @name, or (NULL) of u->uid. */
static bool passwd_find(char *text, const char *name, struct user *u)
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *f[7];
		uint32_t uid, gid;

		if (split(line, f, 7) < 6 || number(f[2], &uid) < 0 || number(f[3], &gid) < 0)
			continue;
		if (name ? strcmp(f[0], name) != 0 : uid != u->uid)
			continue;
		u->uid = uid;
		u->gid = gid;
		snprintf(u->name, sizeof(u->name), "%s", f[0]);
		snprintf(u->home, sizeof(u->home), "%s", f[5][0] == '/' ? f[5] : "/");
		return true;
	}
	return false;
}

static bool listed(char *members, const char *name)
{
	char *save = NULL;

	for (char *m = strtok_r(members, ",", &save); m; m = strtok_r(NULL, ",", &save))
		if (!strcmp(m, name))
			return true;
	return false;
}

static void group_add(char *text, struct user *u)
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *f[4];
		uint32_t gid;

		if (split(line, f, 4) < 4 || number(f[2], &gid) < 0 || gid == u->gid)
			continue;
		if (u->ngroups < AGENT_GROUPS_MAX && listed(f[3], u->name))
			u->groups[u->ngroups++] = gid;
	}
}

int user_find(const char *spec, struct user *ret, struct fail *f)
{
	char *text, *colon = NULL, id[256];
	uint32_t uid = 0, gid = 0;
	bool numeric, found = false;
	int err = 0;

	*ret = (struct user){.name = "root", .home = "/root"};
	ret->groups[ret->ngroups++] = 0;
	if (!spec || !*spec)
		return 0;
	snprintf(id, sizeof(id), "%s", spec);
	colon = strchr(id, ':');
	if (colon)
		*colon++ = '\0';
	numeric = number(id, &uid) == 0;
	if (colon && (!numeric || number(colon, &gid) < 0))
		return fail_set(f, EINVAL, "user '%s': not a name and not uid[:gid]", spec);
	*ret = (struct user){.uid = uid, .gid = uid, .home = "/"};
	snprintf(ret->name, sizeof(ret->name), "%s", id);
	text = root_read("/etc/passwd", AGENT_ETC_MAX, &err);
	if (text)
		found = passwd_find(text, numeric ? NULL : id, ret);
	free(text);
	if (!found && !numeric)
		return fail_set(
			f, ESRCH, "user '%s': no such user in the guest's /etc/passwd", spec);
	if (colon)
		ret->gid = gid;
	ret->groups[ret->ngroups++] = ret->gid;
	if (found && (text = root_read("/etc/group", AGENT_ETC_MAX, &err)) != NULL) {
		group_add(text, ret);
		free(text);
	}
	return 0;
}

/* "NAME:x:ID:…" of @id in @text. */
static bool id_find(const char *text, uint32_t id, char *ret, size_t size)
{
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t name = strcspn(line, ":\n");
		const char *at = line + name;
		char digits[16];
		uint32_t n;

		at += *at == ':';
		at += strcspn(at, ":\n");
		at += *at == ':';
		snprintf(digits, sizeof(digits), "%.*s", (int)strcspn(at, ":\n"), at);
		if (!name || name >= size || number(digits, &n) < 0 || n != id)
			continue;
		memcpy(ret, line, name);
		ret[name] = '\0';
		return true;
	}
	return false;
}

void user_id_name(bool group, uint32_t id, char *ret, size_t size)
{
	static char *texts[2];
	static bool tried[2];
	int err = 0;

	if (!tried[group])
		texts[group] = root_read(group ? "/etc/group" : "/etc/passwd", AGENT_ETC_MAX, &err);
	tried[group] = true;
	memset(ret, 0, size);
	if (!texts[group] || !id_find(texts[group], id, ret, size))
		snprintf(ret, size, "%u", id);
}
