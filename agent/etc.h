/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_ETC_H
#define PARBAKE_AGENT_ETC_H

/*
 * Who this machine is: /etc/machine-id, /etc/hostname and (where the root has none)
 * /etc/hosts. They are files in /run, bound over the root's once at boot, so that a clone's
 * identity is written to memory alone, even while its root is frozen.
 */

/* Make and bind them, with a fresh machine id; once, in a machine. Failures are logged. */
void etc_init(void);
/* Write a new machine id (32 hexadecimal digits) / hostname (also the kernel's). 0 or -errno. */
int etc_machine_id(const char *id);
int etc_hostname(const char *name);

#endif
