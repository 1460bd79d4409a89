/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_SANDBOX_H
#define PARBAKE_RESTORE_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "restore/pager/pager.h"
#include "store/store.h"
#include "vmm/guest/guest.h"
#include "vmm/monitor.h"

/*
 * A template opened for restoring, and sandboxes made from it. template_open() does all that is the
 * same for every sandbox (checks the config against this host, expands the disk into the cache
 * once, connects the pager), so that a create is: start a monitor, load device state, resume,
 * identity.
 */
struct template;

struct template_options {
	bool own_pager; /* a pager of our own (pager_client_spec.own) */
	bool no_uffd; /* force PAGER_PRIVATE */
	struct pager_options pager;
	bool count_cpu; /* sandbox_cpu() is wanted */
	bool untrained; /* do not use the translations that sandbox_train() kept */
	struct progress *progress; /* for the first expansion of the disk; may be NULL */
};

/* @m is borrowed until template_free(). -ENOEXEC, with what to do, where this host or its
 * monitor does not fit. */
int template_open(struct store *s, const struct store_manifest *m,
	const struct template_options *opt, struct template **ret, struct err *err);
void template_free(struct template *t);
DEFINE_CLEANUP(struct template *, template_free)
#define cleanup_template cleanup_with(template_free_p_)
/*
 * Would sandbox_train() keep translations for this template; and were some kept, when it was
 * opened?
 */
bool template_trainable(const struct template *t);
bool template_trained(const struct template *t);
/* Look for them again where there were none; then the template's next sandboxes have them. Returns
 * template_trained(). Not while another thread makes a sandbox of it. */
bool template_look_for_translations(struct template *t);
/* The file of translations; -1: there is none. Borrowed as long as the template. */
int template_translations_fd(const struct template *t);
/* The monitor that the template's machines run in. */
const struct monitor_facts *template_monitor(const struct template *t);
const struct snapshot_config *template_config(const struct template *t);
/* The expanded disk, read-only: to boot from instead of restoring. Borrowed as long as the
 * template. */
int template_disk_fd(const struct template *t);
/*
 * Many processes from one template. Its owner, which has one thread all the time, calls
 * template_before_fork(): that finds out what each process would otherwise find out for itself, and
 * replaces a pager that is gone. The fork then calls template_after_fork(): that closes the pager's
 * connection that it inherited. The fork gets a connection of its own as soon as it makes a
 * sandbox.
 */
int template_before_fork(struct template *t, struct err *err);
void template_after_fork(struct template *t);
/*
 * The template's pager. Borrowed until the next sandbox is made, since a pager that is gone is
 * replaced then.
 */
struct pager_client *template_pager(struct template *t);

/*
 * Moments of a create, CLOCK_MONOTONIC ns, in the order they come; 0: did not happen. What the
 * pager does beside them is in its own trace (pager_client_traced()).
 */
struct sandbox_trace {
	int64_t begin;
	int64_t overlay_made;
	int64_t memory_got; /* the pager gave the memory and a socket to attach by */
	int64_t monitor_started; /* the monitor's program runs: fork and exec are done */
	int64_t monitor_ready; /* its control socket has answered */
	int64_t state_loaded;
	int64_t asked; /* SYNC, IDENTITY and, but for a spare, THAW lie in the channel */
	int64_t resumed;
	int64_t hello, identity, thaw; /* their answers were read here */
	int64_t answered; /* all of them */
	int64_t first_result;
};

struct sandbox;

/*
 * At the same moments: the processor time, in ns, that the thread which makes the sandbox and the sandbox's monitor had
 * used by then. hello, identity and thaw lie within the wait for answered and are 0; so is all of it unless
 * template_options.count_cpu asks for it. Borrowed as long as the sandbox.
 */
const struct sandbox_trace *sandbox_cpu(const struct sandbox *sb);

/* Start a monitor for the template, with nothing restored in it (STANDBY). */
int sandbox_standby(struct template *t, struct sandbox **ret, struct err *err);
/* STANDBY → ACTIVE: load the device state, resume, give the identity. When this returns 0, the
 * agent has answered under its new identity, from memory proven restored (the boot nonce of the
 * config). @hostname may be NULL. */
int sandbox_restore(struct sandbox *sb, const char *hostname, int64_t deadline, struct err *err);
/*
 * The same in two steps. sandbox_prepare() makes a spare: restored, answered once under an identity
 * that no other sandbox has, and paused. sandbox_activate() resumes it, and tells it the time and
 * @hostname; it has had its entropy and its machine id from the start.
 */
int sandbox_prepare(struct sandbox *sb, int64_t deadline, struct err *err);
int sandbox_activate(struct sandbox *sb, const char *hostname, int64_t deadline, struct err *err);
/*
 * A sandbox made from a checkpoint answers before all of the checkpoint's memory is its own. Wait until it is: then
 * the checkpoint is not needed any more. 0 at once for all others. -ETIMEDOUT: not yet; -ECONNABORTED: it never will
 * be, and the machine is ended for it.
 */
int sandbox_wait_memory(struct sandbox *sb, int64_t deadline, struct err *err);
/* sandbox_standby() and sandbox_restore(). */
int sandbox_create(struct template *t, const char *hostname, int64_t deadline, struct sandbox **ret,
	struct err *err);
/*
 * Keep what the sandbox's monitor has translated of the guest's code so far for the template's
 * future sandboxes on this host (restore/translations.h). Templates that are open already do not
 * see it. The sandbox, ACTIVE or SPARE, is only fit to be freed afterwards. -ENOTSUP where there is
 * nothing to keep.
 */
int sandbox_train(struct sandbox *sb, int64_t deadline, struct err *err);
/*
 * Kill the sandbox; returns when its machine is gone. (The machine also dies with the thread that
 * made it: machine_start().)
 */
void sandbox_free(struct sandbox *sb);
DEFINE_CLEANUP(struct sandbox *, sandbox_free)
#define cleanup_sandbox cleanup_with(sandbox_free_p_)

/* The client of the sandbox's agent; NULL when its channel was given away. */
struct guest *sandbox_guest(struct sandbox *sb);
/*
 * ACTIVE: end the sandbox's own struct guest and return its channel (caller closes), which somebody
 * else then reads and writes: by guest_new(), which begins with a SYNC. -errno.
 */
int sandbox_release_channel(struct sandbox *sb, struct err *err);
struct machine *sandbox_machine(struct sandbox *sb);
const struct sandbox_trace *sandbox_trace(const struct sandbox *sb);
/* The first result of a command came: trace.first_result is now, the first time. */
void sandbox_mark_result(struct sandbox *sb);
/*
 * Add to the error of a failed call the newest lines of the console and, where the pager died, that
 * it did.
 */
void sandbox_explain(struct sandbox *sb, struct err *err);
/* The disk's overlay, for checkpoints and tests. Borrowed. */
int sandbox_overlay_fd(const struct sandbox *sb);

#endif
