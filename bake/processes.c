/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's /proc is read through the agent, so that nothing has to be installed in a guest. All of it is hostile
 * text: it is bounded, and what is not understood is passed over.
 */
#include "bake/processes.h"

#include <ctype.h>
#include <string.h>

#include "bake/limits.h"
#include "common/str.h"

/* ---- one process ------------------------------------------------------------------------- */

struct mapped {
	char *path;
	size_t len;
	uint64_t bytes; /* of it in memory */
};

struct maps {
	struct mapped *files;
	size_t n;
	uint64_t resident, anonymous; /* bytes */
};

static struct mapped *add_file(struct maps *m, const char *path, size_t len)
{
	m->files = reallocarray(m->files, m->n + 1, sizeof(*m->files));
	if (!m->files)
		abort();
	m->files[m->n] = (struct mapped){strndup(path, len), len, 0};
	if (!m->files[m->n].path)
		abort();
	return &m->files[m->n++];
}

/* "7f00-7f10 r-xp 00000000 fe:00 5      /usr/lib/a file": where its path begins; NULL: it is no mapping's first line. */
static const char *head_end(const char *line, size_t len)
{
	size_t n = strspn(line, "0123456789abcdef");
	const char *p = line, *end = line + len;

	if (!n || line[n] != '-')
		return NULL;
	for (int word = 0; word < 5; word++) {
		while (p < end && *p != ' ')
			p++;
		while (p < end && *p == ' ')
			p++;
	}
	return p;
}

static void read_maps(const char *smaps, struct maps *m)
{
	struct mapped *file = NULL;

	for (const char *line = smaps, *next; *line; line = next) {
		size_t len = strcspn(line, "\n");
		const char *path = head_end(line, len);
		unsigned long long kib;

		next = line + len + (line[len] == '\n');
		if (path) {
			file = *path == '/' ? add_file(m, path, (size_t)(line + len - path)) : NULL;
		} else if (sscanf(line, "Rss: %llu kB", &kib) == 1 && kib < LIMIT_PROCESS_KIB) {
			m->resident += kib * KIB;
			if (file)
				file->bytes += kib * KIB;
		} else if (sscanf(line, "Anonymous: %llu kB", &kib) == 1 &&
			kib < LIMIT_PROCESS_KIB) {
			m->anonymous += kib * KIB;
		}
	}
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct mapped *)a)->path, ((const struct mapped *)b)->path);
}

/* A file's mappings are one entry. */
static json_t *files_json(struct maps *m)
{
	json_t *list = json_array();

	if (m->n)
		qsort(m->files, m->n, sizeof(*m->files), by_path);
	for (size_t i = 0, next; i < m->n; i = next) {
		uint64_t bytes = 0;

		for (next = i; next < m->n && !by_path(&m->files[i], &m->files[next]); next++)
			bytes += m->files[next].bytes;
		json_array_append_new(list,
			json_pack("{s:o, s:I}", "path",
				json_lossy(m->files[i].path, m->files[i].len), "resident_bytes",
				(json_int_t)bytes));
	}
	return list;
}

/* The words with blanks between, cut after LIMIT_PROCESS_COMMAND bytes. */
static json_t *command_json(const char *command, size_t len, const struct lent *lent)
{
	cleanup_free char *text = malloc(len + 1);

	if (!text)
		abort();
	memcpy(text, command, len);
	while (len && !text[len - 1])
		len--;
	for (size_t i = 0; i < len; i++)
		text[i] = text[i] ? text[i] : ' ';
	if (lent)
		lent_mask(lent, text, len);
	return json_lossy(text, len > LIMIT_PROCESS_COMMAND ? LIMIT_PROCESS_COMMAND : len);
}

json_t *processes_one(const char *command, size_t len, const char *smaps, const struct lent *lent)
{
	struct maps m = {0};
	json_t *one = NULL;

	read_maps(smaps, &m);
	if (m.resident) {
		one = json_pack("{s:o, s:I, s:I, s:o}", "command", command_json(command, len, lent),
			"resident_bytes", (json_int_t)m.resident, "anonymous_bytes",
			(json_int_t)m.anonymous, "files", files_json(&m));
		if (!one)
			abort();
	}
	for (size_t i = 0; i < m.n; i++)
		free(m.files[i].path);
	free(m.files);
	return one;
}

/* ---- the kernel -------------------------------------------------------------------------- */

json_t *processes_kernel(const char *meminfo)
{
	static const struct {
		const char *line, *name;
	} uses[] = {
		{"AnonPages", "anonymous"},
		{"Cached", "cached"},
		{"Buffers", "buffers"},
		{"Shmem", "shared"},
		{"SReclaimable", "slab_reclaimable"},
		{"SUnreclaim", "slab"},
		{"PageTables", "page_tables"},
		{"KernelStack", "kernel_stacks"},
		{"Percpu", "per_processor"},
	};
	json_t *all = json_object();

	for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++) {
		size_t n = strlen(uses[i].line);
		unsigned long long kib;

		for (const char *p = meminfo; *p; p += strcspn(p, "\n"), p += *p == '\n')
			if (!strncmp(p, uses[i].line, n) && p[n] == ':' &&
				sscanf(p + n + 1, " %llu kB", &kib) == 1 && kib < LIMIT_PROCESS_KIB)
				json_object_set_new(
					all, uses[i].name, json_integer((json_int_t)(kib * KIB)));
	}
	return all;
}

/* ---- asking ------------------------------------------------------------------------------ */

struct asking {
	struct guest *g;
	const struct lent *lent;
	int64_t deadline;
	int also_fd;
	struct err *err;
};

static int get(struct asking *a, unsigned pid, const char *name, char **ret, size_t *ret_len)
{
	cleanup_free char *path = str_printf("/proc/%u/%s", pid, name);

	return guest_read(a->g, PROTO_FILE_GET, path, LIMIT_PROCESS_TEXT, a->deadline, a->also_fd,
		ret, ret_len, a->err);
}

static int add_process(struct asking *a, unsigned pid, json_t *list)
{
	cleanup_free char *command = NULL, *smaps = NULL;
	size_t len, smaps_len;
	json_t *one;
	int rc = get(a, pid, "cmdline", &command, &len);

	/* a thread of the kernel has no command */
	if (!rc && len)
		rc = get(a, pid, "smaps", &smaps, &smaps_len);
	if (rc == -ENOENT || rc == -ESRCH)
		return 0; /* it has ended */
	if (rc || !len)
		return rc;
	one = processes_one(command, len, smaps, a->lent);
	if (one && json_array_size(list) == LIMIT_PROCESSES) {
		json_decref(one);
		return err_set(a->err, E2BIG, "more than %d processes", LIMIT_PROCESSES);
	}
	if (one)
		json_array_append_new(list, one);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return (x > y) - (x < y);
}

/* The process numbers in a listing of /proc, ascending. Caller frees. */
static int numbers(const char *listing, size_t len, unsigned **ret, size_t *ret_n, struct err *err)
{
	cleanup_free unsigned *pids = calloc(len / PROTO_DIRENT_HEAD + 1, sizeof(*pids));
	size_t n = 0;

	if (!pids)
		abort();
	while (len) {
		uint16_t lens[2]; /* of name and link */
		const char *name = listing + PROTO_DIRENT_HEAD;
		char digits[11] = "";

		if (len < PROTO_DIRENT_HEAD)
			return err_set(err, EPROTO, "the agent's listing of /proc is broken");
		memcpy(lens, listing + PROTO_STAT_LEN, sizeof(lens));
		if (len < PROTO_DIRENT_HEAD + lens[0] + lens[1])
			return err_set(err, EPROTO, "the agent's listing of /proc is broken");
		if (lens[0] < sizeof(digits)) {
			memcpy(digits, name, lens[0]);
			if (isdigit((unsigned char)*digits))
				pids[n++] = (unsigned)strtoul(digits, NULL, 10);
		}
		listing += PROTO_DIRENT_HEAD + lens[0] + lens[1];
		len -= PROTO_DIRENT_HEAD + lens[0] + lens[1];
	}
	qsort(pids, n, sizeof(*pids), by_number);
	*ret = steal_ptr(&pids);
	*ret_n = n;
	return 0;
}

int processes_read(struct guest *g, const struct lent *lent, int64_t deadline, int also_fd,
	json_t **ret, struct err *err)
{
	struct asking a = {g, lent, deadline, also_fd, err};
	cleanup_free char *listing = NULL, *meminfo = NULL;
	cleanup_free unsigned *pids = NULL;
	cleanup_json json_t *list = json_array();
	size_t len, n = 0;
	int rc = guest_read(g, PROTO_FILE_LIST, "/proc", LIMIT_PROCESS_TEXT, deadline, also_fd,
		&listing, &len, err);

	if (!rc)
		rc = numbers(listing, len, &pids, &n, err);
	for (size_t i = 0; !rc && i < n; i++)
		rc = add_process(&a, pids[i], list);
	if (!rc)
		rc = guest_read(g, PROTO_FILE_GET, "/proc/meminfo", LIMIT_PROCESS_TEXT, deadline,
			also_fd, &meminfo, &len, err);
	if (rc) {
		err_prefix(err, "the guest's processes");
		return rc;
	}
	*ret = json_pack("{s:i, s:o, s:O}", "version", 1, "kernel", processes_kernel(meminfo),
		"processes", list);
	if (!*ret)
		abort();
	return 0;
}
