/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading: what a machine's state is made of, and the order in which it is put back:
 * what a processor is (CPUID), its segments and the base of its interrupt controller before that
 * controller, the controller before the deadline of its timer, which is therefore the last of the
 * registers.
 *
 * The list of registers is the host's own. One that a host lacks is no loss where it was zero; else
 * the record is refused, by the register's number. The same holds for the parts of XSAVE.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "vmm/kvm/program/record.h"
#include "vmm/kvm/program/vm.h"

#define MSR_TSC_DEADLINE 0x6e0
#define XSTATE_BV 512 /* where an XSAVE area says which parts it has */
#define TSC_APART 1000 /* one in so many: what a guest's clock bears */

static uint8_t buffer[RECORD_MAX] __attribute__((aligned(8)));

/* Not part of a sandbox: nested virtualisation's and Hyper-V's registers, performance counters. */
static bool is_left_out(uint32_t msr)
{
	return (msr >= 0x480 && msr <= 0x493) || (msr >= 0x40000000 && msr <= 0x400001ff) ||
		(msr >= 0xc1 && msr <= 0xc8) || (msr >= 0x186 && msr <= 0x18d) ||
		(msr >= 0x309 && msr <= 0x30b) || (msr >= 0x38d && msr <= 0x390) ||
		(msr >= 0x4c1 && msr <= 0x4c8) || (msr >= 0xc0010000 && msr <= 0xc0010007) ||
		(msr >= 0xc0010200 && msr <= 0xc001020b) ||
		(msr >= 0xc0000300 && msr <= 0xc0000303);
}

struct msrs {
	struct kvm_msrs head;
	struct kvm_msr_entry entries[VM_MSRS_MAX];
};

/* ---- save ------------------------------------------------------------------------------- */

static int failed(const struct vcpu *c, const char *what, struct err *err)
{
	return err_sys(err, errno, "KVM: processor %u: %s", c->n, what);
}

/* All that can be read, the deadline last. */
static uint32_t read_msrs(const struct vcpu *c, struct kvm_msr_entry *out)
{
	static struct msrs m;
	uint32_t n = 0, done = 0, kept = 0;
	int r;

	for (uint32_t i = 0; i < c->vm->n_msrs; i++) {
		if (!is_left_out(c->vm->msrs[i]) && c->vm->msrs[i] != MSR_TSC_DEADLINE)
			out[n++] = (struct kvm_msr_entry){.index = c->vm->msrs[i]};
	}
	out[n++] = (struct kvm_msr_entry){.index = MSR_TSC_DEADLINE};
	while (done < n) {
		m.head.nmsrs = n - done;
		memcpy(m.entries, out + done, (n - done) * sizeof(out[0]));
		r = ioctl(c->fd, KVM_GET_MSRS, &m);
		if (r < 0)
			return 0;
		memmove(out + kept, m.entries, (uint32_t)r * sizeof(out[0]));
		kept += (uint32_t)r;
		done += (uint32_t)r + 1; /* the one behind them cannot be read */
	}
	return kept;
}

static int save_vcpu(const struct vcpu *c, struct record *r, struct err *err)
{
	bool large = c->vm->xsave_bytes > sizeof(struct kvm_xsave);
	uint32_t n;

	if (ioctl(c->fd, KVM_GET_MP_STATE,
		    record_add(r, RECORD_MP_STATE, c->n, sizeof(struct kvm_mp_state))) < 0)
		return failed(c, "whether it runs", err);
	if (ioctl(c->fd, KVM_GET_REGS, record_add(r, RECORD_REGS, c->n, sizeof(struct kvm_regs))) <
			0 ||
		ioctl(c->fd, KVM_GET_SREGS,
			record_add(r, RECORD_SREGS, c->n, sizeof(struct kvm_sregs))) < 0 ||
		ioctl(c->fd, KVM_GET_DEBUGREGS,
			record_add(r, RECORD_DEBUGREGS, c->n, sizeof(struct kvm_debugregs))) < 0)
		return failed(c, "read its registers", err);
	if (ioctl(c->fd, large ? KVM_GET_XSAVE2 : KVM_GET_XSAVE,
		    record_add(r, RECORD_XSAVE, c->n, c->vm->xsave_bytes)) < 0 ||
		ioctl(c->fd, KVM_GET_XCRS,
			record_add(r, RECORD_XCRS, c->n, sizeof(struct kvm_xcrs))) < 0)
		return failed(c, "read its extended state", err);
	if (ioctl(c->fd, KVM_GET_LAPIC,
		    record_add(r, RECORD_LAPIC, c->n, sizeof(struct kvm_lapic_state))) < 0)
		return failed(c, "read its interrupt controller", err);
	if (ioctl(c->fd, KVM_GET_VCPU_EVENTS,
		    record_add(r, RECORD_EVENTS, c->n, sizeof(struct kvm_vcpu_events))) < 0)
		return failed(c, "read its pending events", err);
	n = read_msrs(c,
		record_add(r, RECORD_MSRS, c->n, (VM_MSRS_MAX + 1) * sizeof(struct kvm_msr_entry)));
	if (n == 0)
		return failed(c, "read its model-specific registers", err);
	record_cut(r, n * sizeof(struct kvm_msr_entry));
	return 0;
}

static int save_vm(struct vm *vm, struct record *r, struct err *err)
{
	struct serial_state *serial;
	uint64_t *clock;

	memcpy(record_add(r, RECORD_CPUID, 0, sizeof(vm->cpuid)), &vm->cpuid, sizeof(vm->cpuid));
	record_cut(r,
		offsetof(struct vm_cpuid, entries) + vm->cpuid.n * sizeof(struct kvm_cpuid_entry2));
	clock = record_add(r, RECORD_CLOCK, 0, sizeof(*clock));
	*clock = vm->clock.clock;
	for (uint32_t i = 0; i < 3; i++) {
		struct kvm_irqchip *chip = record_add(r, RECORD_IRQCHIP, i, sizeof(*chip));

		chip->chip_id = i;
		if (ioctl(vm->fd, KVM_GET_IRQCHIP, chip) < 0)
			return err_sys(err, errno, "KVM: read interrupt controller %u", i);
	}
	serial = record_add(r, RECORD_SERIAL, 0, sizeof(*serial));
	*serial = vm->serial.s;
	for (uint32_t i = 0; i < VM_DEVICES; i++) {
		struct virtio *v = vm->devices[i];
		struct virtio_state *s =
			record_add(r, RECORD_DEVICE, i, sizeof(*s) + v->ops->extra_bytes);

		virtio_save(v, s, (uint8_t *)(s + 1));
	}
	return 0;
}

static uint32_t tsc_khz(const struct vm *vm)
{
	int khz = ioctl(vm->vcpus[0].fd, KVM_GET_TSC_KHZ, 0);

	return khz > 0 ? (uint32_t)khz : 0;
}

int vm_save(struct vm *vm, int fd, struct err *err)
{
	struct record rec;
	int r;

	record_begin(&rec, buffer);
	r = save_vm(vm, &rec, err);
	for (unsigned i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = save_vcpu(&vm->vcpus[i], &rec, err);
	if (r == 0)
		r = record_end(&rec, vm->memory.bytes, vm->n_vcpus, tsc_khz(vm), err);
	if (r < 0)
		return r;
	if (ftruncate(fd, 0) < 0)
		return err_sys(err, errno, "empty the state record's file");
	r = file_pwrite_full(fd, rec.buf, rec.len, 0);
	return r < 0 ? err_sys(err, -r, "write the state record") : 0;
}

/* ---- load ------------------------------------------------------------------------------- */

static int missing(struct err *err)
{
	return err_set(err, EBADMSG, "the state record lacks a part, or has one of another size");
}

static int load_cpuid(struct vm *vm, const struct record *rec, struct err *err)
{
	static struct vm_cpuid saved;
	size_t bytes, head = offsetof(struct vm_cpuid, entries);
	const void *s = record_find(rec, RECORD_CPUID, 0, 0, &bytes);
	int r;

	if (!s || bytes < head || bytes > sizeof(saved))
		return missing(err);
	memcpy(&saved, s, bytes);
	if (saved.n > VM_CPUID_MAX || bytes != head + saved.n * sizeof(saved.entries[0]))
		return missing(err);
	if (saved.n == vm->cpuid.n && !memcmp(saved.entries, vm->cpuid.entries, bytes - head))
		return 0;
	r = vm_cpuid_fits(&vm->cpuid, &saved, err);
	if (r < 0)
		return r;
	memcpy(&vm->cpuid, &saved, sizeof(saved));
	for (unsigned i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = vm_cpuid_set(vm, i, err);
	return r;
}

static int load_rate(const struct vm *vm, uint32_t saved, struct err *err)
{
	uint32_t here = tsc_khz(vm), apart = here > saved ? here - saved : saved - here;

	if (!saved || !here || apart <= saved / TSC_APART)
		return 0;
	for (unsigned i = 0; i < vm->n_vcpus; i++) {
		if (ioctl(vm->vcpus[i].fd, KVM_SET_TSC_KHZ, (unsigned long)saved) < 0)
			return err_set(err, ENOTSUP,
				"the snapshot's time stamp counter ran at %u kHz, this host's "
				"runs at %u and cannot be told another rate",
				saved, here);
	}
	return 0;
}

/* The names of XSAVE's parts, by bit (Intel SDM 1, 13.1). */
static const char *part_name(int bit)
{
	static const char *const names[] = {"x87", "SSE", "AVX", "MPX", "MPX", "AVX-512", "AVX-512",
		"AVX-512", "PT", "PKRU", "PASID", "CET", "CET", "HDC", "UINTR", "LBR", "HWP", "AMX",
		"AMX"};

	return bit < (int)(sizeof(names) / sizeof(names[0])) ? names[bit] : "unknown";
}

static int load_xsave(const struct vcpu *c, const struct record *rec, struct err *err)
{
	static uint8_t area[64 * 1024] __attribute__((aligned(8)));
	const struct kvm_cpuid_entry2 *e = c->vm->cpuid.entries;
	uint64_t parts, have = 3;
	size_t bytes;
	const uint8_t *s = record_find(rec, RECORD_XSAVE, c->n, 0, &bytes);

	if (!s || bytes < sizeof(struct kvm_xsave) || bytes > sizeof(area))
		return missing(err);
	for (uint32_t i = 0; i < c->vm->cpuid.n; i++) {
		if (e[i].function == 0xd && e[i].index == 0)
			have |= (uint64_t)e[i].edx << 32 | e[i].eax;
	}
	memcpy(&parts, s + XSTATE_BV, sizeof(parts));
	if (parts & ~have)
		return err_set(err, ENOTSUP,
			"this host's processors lack a part of XSAVE that the snapshot has: %s "
			"(bit %d)",
			part_name(__builtin_ctzll(parts & ~have)), __builtin_ctzll(parts & ~have));
	if (bytes < c->vm->xsave_bytes && c->vm->xsave_bytes <= sizeof(area)) {
		memcpy(area, s, bytes);
		memset(area + bytes, 0, c->vm->xsave_bytes - bytes);
		s = area;
	}
	return ioctl(c->fd, KVM_SET_XSAVE, s) < 0 ? failed(c, "set its extended state", err) : 0;
}

static int load_msrs(const struct vcpu *c, const struct record *rec, struct err *err)
{
	static struct msrs m;
	size_t bytes;
	const struct kvm_msr_entry *e = record_find(rec, RECORD_MSRS, c->n, 0, &bytes);
	size_t n = bytes / sizeof(*e), done = 0;

	if (!e || bytes % sizeof(*e) || n > VM_MSRS_MAX)
		return missing(err);
	while (done < n) {
		int r;

		m.head.nmsrs = (uint32_t)(n - done);
		memcpy(m.entries, e + done, (n - done) * sizeof(*e));
		r = ioctl(c->fd, KVM_SET_MSRS, &m);
		if (r < 0)
			return failed(c, "set its model-specific registers", err);
		done += (size_t)r;
		if (done < n && e[done].data)
			return err_set(err, ENOTSUP,
				"this host's processors lack a register that the snapshot has: "
				"%#x (%#llx)",
				e[done].index, (unsigned long long)e[done].data);
		done++;
	}
	return 0;
}

static int load_part(const struct vcpu *c, const struct record *rec, enum record_type type,
	unsigned long call, size_t bytes, const char *what, struct err *err)
{
	const void *s = record_find(rec, type, c->n, bytes, NULL);

	if (!s)
		return missing(err);
	return ioctl(c->fd, call, s) < 0 ? failed(c, what, err) : 0;
}

static int load_vcpu(const struct vcpu *c, const struct record *rec, struct err *err)
{
	const struct {
		enum record_type type;
		unsigned long call;
		size_t bytes;
		const char *what;
	} parts[] = {
		{RECORD_SREGS, KVM_SET_SREGS, sizeof(struct kvm_sregs), "set its segments"},
		{RECORD_REGS, KVM_SET_REGS, sizeof(struct kvm_regs), "set its registers"},
		{RECORD_XCRS, KVM_SET_XCRS, sizeof(struct kvm_xcrs), "set its extended state"},
		{RECORD_DEBUGREGS, KVM_SET_DEBUGREGS, sizeof(struct kvm_debugregs),
			"set its debug registers"},
		{RECORD_LAPIC, KVM_SET_LAPIC, sizeof(struct kvm_lapic_state),
			"set its interrupt controller"},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
		r = load_part(
			c, rec, parts[i].type, parts[i].call, parts[i].bytes, parts[i].what, err);
	if (r == 0)
		r = load_xsave(c, rec, err);
	if (r == 0)
		r = load_msrs(c, rec, err);
	if (r == 0)
		r = load_part(c, rec, RECORD_EVENTS, KVM_SET_VCPU_EVENTS,
			sizeof(struct kvm_vcpu_events), "set its pending events", err);
	if (r == 0)
		r = load_part(c, rec, RECORD_MP_STATE, KVM_SET_MP_STATE,
			sizeof(struct kvm_mp_state), "set whether it runs", err);
	return r;
}

static int load_devices(struct vm *vm, const struct record *rec, struct err *err)
{
	const struct serial_state *serial =
		record_find(rec, RECORD_SERIAL, 0, sizeof(*serial), NULL);

	if (!serial)
		return missing(err);
	vm->serial.s = *serial;
	for (uint32_t i = 0; i < VM_DEVICES; i++) {
		struct virtio *v = vm->devices[i];
		const struct virtio_state *s =
			record_find(rec, RECORD_DEVICE, i, sizeof(*s) + v->ops->extra_bytes, NULL);

		if (!s)
			return missing(err);
		if (virtio_load(v, s, (const uint8_t *)(s + 1)) < 0)
			return err_set(err, EBADMSG,
				"the state record has a state that the device %s cannot be in",
				v->ops->name);
	}
	return 0;
}

static int load_vm(struct vm *vm, const struct record *rec, struct err *err)
{
	const uint64_t *clock = record_find(rec, RECORD_CLOCK, 0, sizeof(*clock), NULL);

	if (!clock)
		return missing(err);
	vm->clock.clock = *clock;
	for (uint32_t i = 0; i < 3; i++) {
		const struct kvm_irqchip *chip =
			record_find(rec, RECORD_IRQCHIP, i, sizeof(*chip), NULL);

		if (!chip || chip->chip_id != i)
			return missing(err);
		if (ioctl(vm->fd, KVM_SET_IRQCHIP, chip) < 0)
			return err_sys(err, errno, "KVM: set interrupt controller %u", i);
	}
	return load_devices(vm, rec, err);
}

static int read_record(struct vm *vm, int fd, struct record *rec, struct err *err)
{
	const struct record_head *h;
	ssize_t n = pread(fd, buffer, sizeof(buffer), 0);
	int r = n < 0 ? err_sys(err, errno, "read the state record")
		      : record_open(rec, buffer, (size_t)n, err);

	if (r < 0)
		return r;
	h = record_head(rec);
	if (h->memory_bytes != vm->memory.bytes || h->vcpus != vm->n_vcpus)
		return err_set(err, EBADMSG,
			"the state record is of a machine with %llu bytes of memory and %u "
			"processors, this one has %llu and %u",
			(unsigned long long)h->memory_bytes, h->vcpus,
			(unsigned long long)vm->memory.bytes, vm->n_vcpus);
	return 0;
}

int vm_load(struct vm *vm, int fd, uint32_t *steps, struct err *err)
{
	uint64_t t = vm_now_ns();
	struct record rec;
	int r = read_record(vm, fd, &rec, err);

	vm_step(steps, KVM_STEP_READ, &t);
	if (r == 0)
		r = load_cpuid(vm, &rec, err);
	if (r == 0)
		r = load_rate(vm, record_head(&rec)->tsc_khz, err);
	if (r == 0)
		r = load_vm(vm, &rec, err);
	for (unsigned i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = load_vcpu(&vm->vcpus[i], &rec, err);
	vm->wake_devices = r == 0;
	vm_step(steps, KVM_STEP_LOAD, &t);
	return r;
}
