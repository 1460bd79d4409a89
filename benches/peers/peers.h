/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_PEERS_H
#define PARBAKE_BENCHES_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "benches/series.h"
#include "restore/sandbox.h"
#include "store/store.h"

/* What parbake is compared with on the same template: the peers, and what they prepare once and share. */
struct peers {
	struct store *store;
	const struct store_manifest *manifest;
	struct template *template;
	int memory_fd; /* the memory image, expanded into a file */
	int eager_fd; /* QEMU's own snapshot, memory inside */
	uint64_t eager_bytes;
	char *bundle; /* of the container: a directory with config.json and rootfs */
	unsigned containers; /* made so far: their names differ */
};

struct peer {
	const char *name, *short_name;
	bool answers; /* it has an agent */
	unsigned every; /* takes part in each so manieth round */
	/* once; may be NULL. -errno: it cannot take part, and why */
	int (*prepare)(struct peers *p, struct err *err);
	/*
	 * ns from the request to the agent's answer (left alone without an agent) and to the
	 * first output
	 */
	int (*once)(struct peers *p, int64_t *ret_answer, int64_t *ret_output, struct err *err);
};

extern const struct peer peer_parbake, peer_file, peer_eager, peer_boot, peer_crun;

void peers_clear(struct peers *p);
/* crun.c: remove the bundle. */
void peer_crun_clear(struct peers *p);

#endif
