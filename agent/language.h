/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_LANGUAGE_H
#define PARBAKE_AGENT_LANGUAGE_H

/* The languages of contexts: which program interprets each, and the driver that it runs. */

#define LANGUAGE_FILES_MAX 5u
#define LANGUAGE_NAMES "python, javascript, typescript, bash, r and java"

struct language {
	const char *name;
	const char *packages; /* Debian's, that have its interpreter */
	char *const *argv; /* of the interpreter; it finds its driver at descriptor 5 */
	/* the driver's texts, for descriptors from 5 on, the first is the one it begins with */
	struct {
		const char *name, *begin, *end;
	} files[LANGUAGE_FILES_MAX];
};

/* Find one by its name or an alias, in any case of letters; NULL or "": Python. NULL: there is none. */
const struct language *language_find(const char *name);

/* The driver of @l as sealed memfds, made once and kept: @ret_fds has room for LANGUAGE_FILES_MAX.
 * Returns how many, or -errno. The descriptors stay this module's. */
int language_driver(const struct language *l, int *ret_fds);

#endif
