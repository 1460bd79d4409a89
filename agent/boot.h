/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_BOOT_H
#define PARBAKE_AGENT_BOOT_H

/*
 * From the kernel's first process to a machine that is up: file systems, the root,
 * cgroups, loopback, the port. Returns the port's descriptor or -errno (logged). Without
 * parbake.root= on the kernel's command line, or where the root cannot be mounted, it stays in
 * the initramfs and agent.rooted is false.
 */
int boot_machine(void);

#endif
