/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PUBLISH_H
#define PARBAKE_POOL_PUBLISH_H

#define POOL_PUBLISH_EXISTS 3 /* exit status: there is one of that name, and it stays */

/* `parbake pool-publish DIR NAME[:TAG] [STORE [new]]` (internal): put a checkpoint into the store as a template;
 * "new": only where there is none of that name. Started by the pool, in whose state directory DIR is. An exit status. */
int pool_publish_main(int argc, char **argv);

#endif
