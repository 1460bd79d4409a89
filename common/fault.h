/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_FAULT_H
#define PARBAKE_COMMON_FAULT_H

/*
 * Named fault points: places where tests let a step fail or the process die, to prove each
 * cleanup path. They are always built in; without PARBAKE_FAULT in the environment one costs a
 * load and a branch.
 *
 *     PARBAKE_FAULT=NAME            the process ends at once there, as by kill -9 (status 137)
 *     PARBAKE_FAULT=NAME:3          the third time it is reached (counted from 1)
 *     PARBAKE_FAULT=NAME=ENOSPC     it returns that error (ENOSPC, EIO, ENOMEM, EINTR, EMFILE,
 *                                   EOPNOTSUPP)
 *     PARBAKE_FAULT=NAME:3=EIO      both
 *     PARBAKE_FAULT=NAME=20ms       it takes so much longer, each time (from the third on with :3)
 *     PARBAKE_FAULT='?'             names of points are written to standard error as they are
 *                                   reached, one a line ("fault NAME"): how a test finds them all
 *
 * NAME is area.verb.place ("store.publish.before-index"). The variable is read once a process
 * and ignored in set-id programs; a value that cannot be understood, or a name that is none of the table in
 * fault.c, ends the process with 2.
 */

/* Returns 0 (go on) or -errno (fail as if the next step had). Any thread. */
int fault_point(const char *name);

#endif
