/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_MAIN_H
#define PARBAKE_AGENT_MAIN_H

#include "agent/wire.h"

/* The one connection to the host. */
extern struct wire *agent_wire;

#endif
