/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_TRANSLATIONS_H
#define PARBAKE_RESTORE_TRANSLATIONS_H

#include "common/digest.h"
#include "common/file.h"
#include "common/json.h"
#include "vmm/monitor.h"

/*
 * Translations: translated code of a snapshot's guest (machine_save_translations()), kept in the
 * cache of this host under a name made of the memory's blob and the monitor's build. It is machine
 * code that monitors run: it never comes from elsewhere and is not part of a snapshot.
 */

/* The name for memory @key with @monitor, in the directory "translations" of the cache. */
void translations_name(
	const char *key, const char *monitor_version, char ret[static DIGEST_HEX_SIZE]);
/* Open the translations: a descriptor that the caller closes; -1: there are none. */
int translations_open(const char *key, const struct monitor_facts *monitor);
/*
 * Make sure that nobody else is making translations for memory @key, or others that share its lock:
 * @wait for them, or else -EWOULDBLOCK. A descriptor that holds the lock until it is closed.
 */
int translations_lock(const char *key, bool wait, struct err *err);
/*
 * Are there translations on this host of a template with this config and the memory @key? A look at
 * the cache's directory alone: a damaged file counts. Any thread.
 */
enum translations_state {
	TRANSLATIONS_UNNEEDED, /* nothing is emulated */
	TRANSLATIONS_MISSING,
	TRANSLATIONS_KEPT,
};
enum translations_state translations_look(const json_t *config, const char *key);
const char *translations_state_name(enum translations_state state);
/*
 * Begin a file to write translations to, and then give it its name; a file that had the name is
 * replaced.
 */
int translations_begin(struct publish *p, struct err *err);
int translations_commit(
	struct publish *p, const char *key, const struct monitor_facts *monitor, struct err *err);
/*
 * Read the translations that the cache has anew, and check them. 1: they are good, and *@ret_bytes
 * of data were read; 0: there are none; -EBADMSG: they are damaged, and the error says what to
 * remove.
 */
int translations_verify(
	const char *key, const char *monitor_version, uint64_t *ret_bytes, struct err *err);

#endif
