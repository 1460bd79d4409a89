/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_RECIPE_RECIPE_H
#define PARBAKE_BAKE_RECIPE_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "egress/proxy.h"
#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/str.h"

/*
 * A recipe: an INI file, read by inih, with `from =` resolved: the result holds the whole
 * chain, oldest first. Errors name file, line, section and key; an unknown section or key is an
 * error with the nearest known one. docs/parbake-recipe.5 lists every key.
 *
 *     [template] name, from, description, aliases
 *     [machine]  memory, vcpus, disk, randomize_addresses = yes | no
 *     [root]     source = debian | tar; suite, packages (words, may be continued);
 *                url | path, sha256
 *     [files]    /path/in/guest = path/next/to/recipe [mode]
 *     [env]      KEY = value
 *     [network]  allow = host[:port] [private] … (at bake time)
 *     [secrets]  NAME = env:VARIABLE | file:path (lent to install steps as variables)
 *     [install]  N = shell line …; pip = requirement …
 *     [start]    command = …; ready = shell line | python: code; user = account of SDKs
 *     [warm]     N = shell line | python: code; caches = drop | keep;
 *                programs = shell lines, one a line, that sandboxes will run
 *     [limits]   timeout, output, memory, pids  (defaults of every exec in a sandbox)
 *
 * Sizes: 512M, 2G (powers of 1024). Times: 500ms, 30s, 5m.
 */
enum recipe_source { RECIPE_DEBIAN, RECIPE_TAR };

/* Do programs in the guest lie at addresses drawn by lot? Not said: with KVM yes, emulated no. */
enum recipe_addresses {
	RECIPE_ADDRESSES_UNSAID,
	RECIPE_ADDRESSES_RANDOM,
	RECIPE_ADDRESSES_SETTLED
};

struct recipe_rules {
	struct proxy_rule *items;
	size_t n;
};

struct recipe_file {
	char *guest; /* absolute, no `..` */
	char *host; /* resolved against the recipe's directory */
	unsigned mode;
};

struct recipe_step {
	unsigned number;
	char *text; /* a shell line, or python code without the prefix */
	bool python;
	const char *file; /* which recipe it came from: borrowed from the recipe */
	unsigned line;
};

struct recipe_steps {
	struct recipe_step *items;
	size_t n; /* parents' steps first, then by number */
};

struct recipe {
	char *name, *description;
	struct strings aliases; /* other names that lead to it, where no template has them */
	char **files_read; /* the chain's files, oldest first; the last is this one */
	size_t n_files_read;
	uint64_t memory_bytes, disk_bytes;
	unsigned vcpus;
	enum recipe_addresses addresses;
	enum recipe_source source;
	bool has_source; /* the chain names one */
	char *suite; /* debian */
	struct strings packages; /* of the whole chain, sorted, without duplicates */
	char *url, *path, sha256[DIGEST_HEX_SIZE]; /* tar */
	struct recipe_file *files;
	size_t n_files;
	struct strings env; /* "K=V", a later one wins */
	struct recipe_rules allow; /* sorted, without duplicates */
	/* "NAME=env:VARIABLE" or "NAME=file:PATH", the path resolved; a later one wins */
	struct strings secrets;
	struct recipe_steps install;
	struct strings pip;
	char *start_command, *ready;
	char *user; /* [start] user; NULL: not said */
	bool ready_python;
	struct recipe_steps warm;
	struct strings programs; /* shell lines that sandboxes will run, of the whole chain */
	bool keep_caches; /* [warm] caches = keep: the page cache stays in the snapshot */
	uint64_t exec_timeout_ms, output_bytes, exec_memory_bytes, exec_pids;
};

/*
 * Read the recipe at @path, or, where @path is a plain name without '/', NAME.ini found in @dirs
 * (NULL-terminated; `from` is looked up next to the recipe first, then there).
 */
int recipe_read(const char *path, const char *const *dirs, struct recipe **ret, struct err *err);
void recipe_free(struct recipe *r);
DEFINE_CLEANUP(struct recipe *, recipe_free)
#define cleanup_recipe cleanup_with(recipe_free_p_)
/*
 * The same of text in memory; @path is what errors name and where [files] and `from` are looked
 * up.
 */
int recipe_parse(const char *path, const char *text, size_t len, const char *const *dirs,
	struct recipe **ret, struct err *err);
/* The home directory of its user, who must be said: /root, else /home/USER. Caller frees. */
char *recipe_home(const struct recipe *r);
/* Does anything in it run in the warm interpreter? */
bool recipe_uses_python(const struct recipe *r);
/* Do programs in a machine baked from it lie at the same addresses every time? */
bool recipe_settles_addresses(const struct recipe *r, bool emulated);
/*
 * The canonical text of the merged recipe (same meaning, same bytes): what cache keys are made
 * of, and what a snapshot keeps of it: a URL is without password and query. Caller frees.
 */
char *recipe_text(const struct recipe *r);

#endif
