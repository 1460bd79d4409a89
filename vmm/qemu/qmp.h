/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_QEMU_QMP_H
#define PARBAKE_VMM_QEMU_QMP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/json.h"

/*
 * A client of the QEMU Machine Protocol (QEMU: docs/interop/qmp-spec.txt) over a connected
 * socket. Commands are sent without waiting for the answers of those before, so a sequence
 * costs one round trip. The other end is a monitor that its guest may have taken over: what
 * it says is bounded and checked, and a breach ends the connection. One thread at a time.
 */
struct qmp;

/* An event. @name and @data (an object or NULL) are borrowed until it returns. */
typedef void qmp_event_fn(void *user, const char *name, const json_t *data);

/*
 * Take over @fd (on success). @pidfd (borrowed until qmp_free(), or -1) is the monitor's: when the
 * monitor ends, a call that waits returns at once. Nothing is waited for; commands may be sent
 * before the greeting.
 */
int qmp_new(int fd, int pidfd, qmp_event_fn *fn, void *user, struct qmp **ret, struct err *err);
void qmp_free(struct qmp *q);
DEFINE_CLEANUP(struct qmp *, qmp_free)
#define cleanup_qmp cleanup_with(qmp_free_p_)

/*
 * Send a command. @args (NULL: none) is taken, also on failure. @fd (or -1) is passed along, for
 * getfd; a descriptor that was passed before must have been answered by then. *@ret_id (may be
 * NULL) is for qmp_wait().
 */
int qmp_send(struct qmp *q, const char *command, json_t *args, int fd, uint64_t *ret_id,
	struct err *err);
/*
 * Wait for the answer to @id and so to all before it. -EREMOTEIO: it, or one sent before it and not
 * waited for, was refused; the error names the command and quotes the reason. -ECONNABORTED: the
 * monitor is gone. -EPROTO: it broke the protocol. -ETIMEDOUT: @deadline (clock.h). *@ret (may be
 * NULL) is a new reference to the answer's value, or NULL where a later answer has come already.
 */
int qmp_wait(struct qmp *q, uint64_t id, int64_t deadline, json_t **ret, struct err *err);
/* qmp_send() and qmp_wait(). */
int qmp_call(struct qmp *q, const char *command, json_t *args, int64_t deadline, json_t **ret,
	struct err *err);
/* Wait until an event has made *@flag true; errors as of qmp_wait(). */
int qmp_wait_flag(struct qmp *q, const bool *flag, int64_t deadline, struct err *err);
/* Take in what has arrived, without waiting. -ECONNABORTED, -EPROTO. */
int qmp_poll(struct qmp *q, struct err *err);
/* Its socket, to poll(2) for input. */
int qmp_fd(const struct qmp *q);

#endif
