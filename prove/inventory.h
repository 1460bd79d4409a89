/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_INVENTORY_H
#define PARBAKE_PROVE_INVENTORY_H

#include <stddef.h>

#include "bake/ext4/read.h"
#include "common/digest.h"
#include "common/err.h"

/*
 * The packages on a disk, as their managers have written them down: dpkg's status, Python's
 * dist-info directories, npm's package.json below node_modules. What dpkg has installed for Python or
 * Node is a Debian package alone.
 */
enum package_kind { PACKAGE_DEBIAN, PACKAGE_NPM, PACKAGE_PYTHON, PACKAGE_KINDS };

/* The words of locks and reports: "debian", "npm", "wheel"; and of package URLs: "deb", "npm", "pypi". */
const char *package_kind_name(enum package_kind kind);
const char *package_kind_purl(enum package_kind kind);

struct package {
	enum package_kind kind;
	char *name, *version;
	char *arch; /* debian; else "" */
	/*
	 * Of the list of files that the manager keeps of it (debian: its md5sums; wheel: RECORD; npm:
	 * package.json); "": it keeps none.
	 */
	char digest[DIGEST_TEXT_SIZE];
};

/* Sorted by kind, name, version. */
struct inventory {
	struct package *items;
	size_t n;
};

/* Caller calls inventory_clear(). An image without any package manager has no packages. */
int inventory_read(struct ext4_image *img, struct inventory *ret, struct err *err);
void inventory_clear(struct inventory *inv);
#define cleanup_inventory cleanup_with(inventory_clear)

#endif
