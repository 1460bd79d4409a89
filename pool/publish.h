/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PUBLISH_H
#define PARBAKE_POOL_PUBLISH_H

/*
 * The process that publishes checkpoints: `parbake pool-publish DIR NAME[:TAG] [STORE [new]]`
 * (internal) puts a checkpoint into the store as a template; "new": only where there is no
 * template of that name. The pool starts it; DIR is in the pool's state directory. Returns an
 * exit status.
 */
#define POOL_PUBLISH_EXISTS 3 /* exit status: a template of that name is there already, and stays */

int pool_publish_main(int argc, char **argv);

#endif
