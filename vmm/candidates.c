/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which monitors a host has, in order of preference, and which of them is to run a machine. The table of drivers is
 * here; a driver may find more than one program. Each is probed once.
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/confine.h"
#include "common/log.h"
#include "common/str.h"
#include "vmm/machine.h"

static const struct monitor_ops *const drivers[] = {
	&monitor_kvm,
	&monitor_qemu,
};

#define N_DRIVERS (sizeof(drivers) / sizeof(drivers[0]))
#define CANDIDATES_MAX 4

static struct {
	pthread_mutex_t lock;
	struct {
		bool done;
		struct monitor_facts facts;
	} at[CANDIDATES_MAX];
} probed = {.lock = PTHREAD_MUTEX_INITIALIZER};

const struct monitor_ops *monitor_ops_of(const struct monitor_facts *facts)
{
	for (size_t i = 0; i < N_DRIVERS; i++) {
		if (!strcmp(drivers[i]->name, facts->name))
			return drivers[i];
	}
	assert(!"facts of a driver that is not in the table");
	abort();
}

const char *monitor_cpu_model(const struct monitor_facts *facts, enum machine_accel accel)
{
	return monitor_ops_of(facts)->cpu_model(accel);
}

void monitor_forget(void)
{
	for (size_t i = 0; i < N_DRIVERS; i++)
		drivers[i]->forget();
}

/* PARBAKE_MONITOR allows one driver alone; PARBAKE_QEMU names a program, which is QEMU's. */
static int allowed(const struct monitor_ops *ops, struct err *err)
{
	const char *asked = getenv("PARBAKE_MONITOR"), *qemu = getenv("PARBAKE_QEMU");

	if (asked && *asked) {
		if (strcmp(asked, drivers[0]->name) != 0 && strcmp(asked, drivers[1]->name) != 0)
			return err_set(err, EINVAL,
				"PARBAKE_MONITOR=%s: not a monitor; use %s or %s", asked,
				drivers[0]->name, drivers[1]->name);
		if (strcmp(asked, ops->name) != 0)
			return err_set(err, ENOENT, "PARBAKE_MONITOR allows no %s", ops->name);
	} else if (qemu && *qemu && ops != &monitor_qemu) {
		return err_set(err, ENOENT, "PARBAKE_QEMU allows no other");
	}
	return 0;
}

/* The driver of the @i-th candidate, which is its @i-th then. NULL: there are no more. */
static const struct monitor_ops *driver_at(unsigned *i)
{
	for (size_t d = 0; d < N_DRIVERS; d++) {
		if (*i < drivers[d]->candidates)
			return drivers[d];
		*i -= drivers[d]->candidates;
	}
	return NULL;
}

static int probe(unsigned i, struct monitor_facts *ret, struct err *err)
{
	const struct monitor_ops *ops = driver_at(&i);
	int r;

	if (!ops)
		return err_set(err, ERANGE, "there are no more monitors");
	r = allowed(ops, err);
	return r < 0 ? r : ops->probe(i, ret, err);
}

int monitor_candidate(unsigned i, const struct monitor_facts **ret, struct err *err)
{
	int r = 0;

	if (i >= CANDIDATES_MAX)
		return err_set(err, ERANGE, "there are no more monitors");
	pthread_mutex_lock(&probed.lock);
	if (!probed.at[i].done) {
		struct monitor_facts facts = {0};

		r = probe(i, &facts, err);
		if (r == 0) {
			probed.at[i].facts = facts;
			probed.at[i].done = true;
		}
	}
	pthread_mutex_unlock(&probed.lock);
	if (r == 0)
		*ret = &probed.at[i].facts;
	return r;
}

static bool can(const struct monitor_facts *facts, enum machine_accel accel)
{
	return accel == MACHINE_KVM ? facts->has_kvm : facts->emulates;
}

int monitor_probe_for(enum machine_accel accel, const struct monitor_facts **ret, struct err *err)
{
	const struct monitor_facts *facts = NULL;
	struct err one = {0}, why = {0};
	int r, bad = 0;

	for (unsigned i = 0; (r = monitor_candidate(i, &facts, &one)) != -ERANGE; i++) {
		if (r == 0 && can(facts, accel)) {
			if (bad && bad != -ENOENT && bad != -ENODEV)
				log_warn("%s", why.text);
			*ret = facts;
			return 0;
		}
		if (r == 0)
			r = err_set(&one, ENODEV, "%s",
				accel == MACHINE_KVM ? facts->why_not_kvm : "KVM is needed for it");
		/* one that does not work is a better story than one that is not here */
		if (!bad || bad == -ENOENT) {
			bad = r;
			why = one;
		}
	}
	return err_set(err, bad ? -bad : ENOENT, "%s", bad ? why.text : one.text);
}

/* Some monitor of this host has KVM. */
static bool any_has_kvm(void)
{
	const struct monitor_facts *facts = NULL;
	int r;

	for (unsigned i = 0; (r = monitor_candidate(i, &facts, NULL)) != -ERANGE; i++) {
		if (r == 0 && facts->has_kvm)
			return true;
	}
	return false;
}

int monitor_default_accel(enum machine_accel *ret, struct err *err)
{
	const struct monitor_facts *facts;
	const char *asked = getenv("PARBAKE_ACCEL");
	struct err why = {0};

	if (!asked || !*asked) {
		*ret = any_has_kvm() ? MACHINE_KVM : MACHINE_TCG;
		return 0;
	}
	if (machine_accel_parse(asked, ret) < 0)
		return err_set(
			err, EINVAL, "PARBAKE_ACCEL=%s: not an accelerator; use tcg or kvm", asked);
	if (*ret == MACHINE_KVM && monitor_probe_for(*ret, &facts, &why) < 0)
		return err_set(
			err, ENODEV, "PARBAKE_ACCEL=kvm, but KVM does not work here: %s", why.text);
	return 0;
}

int monitor_probe(const struct monitor_facts **ret, struct err *err)
{
	enum machine_accel accel;
	int r = monitor_default_accel(&accel, err);

	return r < 0 ? r : monitor_probe_for(accel, ret, err);
}

int monitor_find(
	const char *name, const char *version, const struct monitor_facts **ret, struct err *err)
{
	const struct monitor_facts *facts = NULL;
	struct err there = {0};
	int r;

	for (unsigned i = 0; (r = monitor_candidate(i, &facts, NULL)) != -ERANGE; i++) {
		if (r < 0)
			continue;
		assert(facts);
		if (!strcmp(facts->name, name) && !strcmp(facts->version, version)) {
			*ret = facts;
			return 0;
		}
		err_append(&there, "%s%s is %s %s", there.text[0] ? ", " : "", facts->program,
			facts->name, facts->version);
	}
	return err_set(err, ENOENT, "%s", there.text[0] ? there.text : "there is no monitor here");
}

char *monitor_accel_reason(const struct monitor_facts *facts, enum machine_accel accel)
{
	if (accel == MACHINE_KVM)
		return str_dup("kvm works");
	if (facts->has_kvm)
		return str_dup("tcg: machines are emulated, as was asked for, though kvm works");
	return str_printf("tcg: machines are emulated, since %s", facts->why_not_kvm);
}

int monitor_prepare(const struct monitor_facts *facts, struct err *err)
{
	return monitor_ops_of(facts)->prepare(facts, err);
}

int monitor_confinement(char ret[static 256], struct err *err)
{
	const struct confine_host *h = confine_host();
	const struct monitor_facts *facts = NULL;
	int r;

	if (h->off) {
		snprintf(ret, 256, "PARBAKE_CONFINE=off: machines run as you, with all you may do");
		return 1;
	}
	r = monitor_probe(&facts, err);
	if (r < 0)
		return r;
	assert(facts);
	r = monitor_ops_of(facts)->confined(facts, err);
	if (r < 0) {
		err_prefix(err, "start a confined %s", facts->name);
		return r;
	}
	if (h->users)
		snprintf(ret, 256,
			"each machine runs as a user of its own (from %u on), without "
			"capabilities, with seccomp%s%s%s%s",
			h->first, h->files ? ", Landlock" : "", h->namespaces ? ", no network" : "",
			h->why[0] ? "; " : "", h->why);
	else
		snprintf(ret, 256, "machines run as you, with seccomp%s: %s",
			h->files ? " and Landlock" : "", h->why);
	return h->users && h->namespaces && h->files ? 0 : 1;
}
