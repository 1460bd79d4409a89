/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The QMP client reads whatever a monitor says after its greeting, with three commands outstanding.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/sock.h"
#include "vmm/qemu/qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_event(void *user, const char *name, const json_t *data)
{
	(void)data;
	*(size_t *)user += name[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char greeting[] = "{\"QMP\":{}}\n";
	cleanup_qmp struct qmp *q = NULL;
	size_t sum = 0;
	uint64_t id = 0;
	struct err err;
	int pair[2];

	if (sock_pair(pair, NULL) < 0 || qmp_new(pair[0], -1, on_event, &sum, &q, NULL) < 0)
		abort();
	for (int i = 0; i < 3; i++)
		qmp_send(q, "stop", NULL, -1, &id, NULL);
	if (size > 64 * 1024)
		size = 64 * 1024;
	if (write(pair[1], greeting, sizeof(greeting) - 1) < 0 ||
		(size && write(pair[1], data, size) < 0))
		abort();
	shutdown(pair[1], SHUT_WR);
	if (qmp_wait(q, id, clock_deadline(0), NULL, &err) == -ETIMEDOUT)
		abort(); /* the end of the stream is always seen */
	close(pair[1]);
	return 0;
}
