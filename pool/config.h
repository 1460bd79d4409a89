/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_CONFIG_H
#define PARBAKE_POOL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/limits.h"
#include "pool/limits.h"

/*
 * The daemon's configuration, an INI file (docs/parbake-pool.5): [pool], [template NAME], [key
 * NAME]. As with recipes, errors name file, line, section and key, and an unknown key the nearest
 * known one. All values are checked here; `parbake pool check` is this and nothing else.
 */
#define CONFIG_AUTO UINT32_MAX /* "auto" of standbys and spares */

struct config_template {
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	uint32_t standbys, spares; /* CONFIG_AUTO: follows the arrival rate */
	uint32_t max_standbys, max_spares; /* bounds of auto */
};

struct config_key {
	char name[LIMIT_NAME_SIZE]; /* for logs and metrics */
	char digest[DIGEST_TEXT_SIZE]; /* of the key, "sha256:…": the key itself is nowhere */
	uint32_t max_sandboxes; /* at once; 0: no limit */
	uint32_t
		max_snapshots; /* that it keeps, templates that it published included; default 64 */
	double creates_per_s; /* a token bucket of at least one; 0: no limit */
	uint64_t max_memory; /* of all its sandboxes' guests, bytes; 0: no limit */
	uint64_t max_disk; /* of the host's disk, see pool/disk_private.h, bytes; 0: no limit */
};

struct config {
	/* [pool] */
	char *socket; /* of the API; default PATHS_RUN/pool.sock */
	char *listen; /* "127.0.0.1:3000", "[::1]:3000"; NULL: no TCP. Needs a [key] */
	char *state; /* the directory of paused sandboxes and checkpoints; default PATHS_STORE/pool */
	char *store; /* NULL: the default store */
	char *require_signature; /* a file of public keys; NULL: versions need no signature */
	char *domain; /* sandboxes answer as PORT-ID.DOMAIN; default "parbake.localhost" */
	uint64_t timeout_ms; /* the lease of a sandbox whose create names none; default 300 s */
	uint64_t max_timeout_ms; /* default 24 h */
	uint32_t max_sandboxes; /* running at once; default 4096 */
	uint32_t max_templates; /* with a zygote at once; default LIMIT_POOL_TEMPLATES, the most */
	/* bytes of host memory for spares and sandboxes; 0: 3/4 of the host's */
	uint64_t memory_budget;
	uint64_t
		memory_reserve; /* bytes of the host's that stay free; 0: a sixteenth, 128 MiB at least */
	bool memory_reserved; /* guests count with all they may use, not with what they use */
	uint32_t refill_per_s; /* standbys and spares made a second at most; default 20 */
	/* below which each machine gets a cgroup; NULL: the daemon's own, where delegated */
	char *cgroup;
	uint32_t machine_pids; /* of a machine's cgroup; default 64 */
	struct config_template *templates;
	size_t n_templates;
	struct config_key *keys; /* none: who may connect to the unix socket may do all */
	size_t n_keys;
};

/* @path NULL: the defaults alone. */
int config_read(const char *path, struct config **ret, struct err *err);
/* The same of text in memory; @path is what errors name. */
int config_parse(
	const char *path, const char *text, size_t len, struct config **ret, struct err *err);
void config_free(struct config *c);
DEFINE_CLEANUP(struct config *, config_free)
#define cleanup_config cleanup_with(config_free_p_)
/*
 * What may not change while the daemon runs is socket, listen, state, store and require_signature:
 * -EINVAL names it.
 */
int config_may_replace(const struct config *old, const struct config *new, struct err *err);
/* config.listen as it is to be bound (a struct sockaddr_in or _in6 into @ret); -EINVAL. */
int config_listen_addr(const char *listen, struct sockaddr_storage *ret, socklen_t *ret_len);
/* A fresh key: 160 random bits, in the form that the ecosystem's SDKs insist on ("e2b_" and 40
 * digits). */
#define CONFIG_KEY_SIZE (4 + 40 + 1)
int config_make_key(char ret[static CONFIG_KEY_SIZE], struct err *err);
/* Do @a and @b hold the same @len bytes? Takes the same time wherever they differ. */
bool config_same_secret(const char *a, const char *b, size_t len);
/* Which key is @text? Takes the same time whichever, and whether there is one. NULL: none. */
const struct config_key *config_find_key(const struct config *c, const char *text);

#endif
