/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PUBLISH_H
#define PARBAKE_POOL_PUBLISH_H

/* `parbake pool-publish DIR NAME[:TAG] [STORE]` (internal): put a capture into the store as a template.
 * Started by the pool, in whose state directory DIR is. An exit status. */
int pool_publish_main(int argc, char **argv);

#endif
