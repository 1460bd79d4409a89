/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_ENTRY_H
#define PARBAKE_AGENT_ENTRY_H

#include <sys/stat.h>

#include "agent/proto.h"

/* What is told of a file, directory or link: for STAT, LIST and watched directories. Runs in workers. */
struct entry {
	struct proto_stat stat;
	uint16_t link_len; /* 0: of no link, or it leads nowhere */
	char link[PROTO_PATH_MAX + 1];
	char metadata[PROTO_METADATA_MAX]; /* "K=V", each with its NUL: stat.metadata_len bytes */
};

/* Fill @ret for @path (absolute, beneath the root), whose lstat(2) is @st; @self is another name of it, through
 * /proc/self/fd, that no link leads away from. */
void entry_fill(struct entry *ret, const char *path, const char *self, const struct stat *st);
/* Give the file @fd the @n attributes @pairs, "K=V". 0 or -errno. */
int entry_mark(int fd, char *const *pairs, unsigned n);

#endif
