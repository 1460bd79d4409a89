/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of parbake-vmm, driven as a guest drives them, well and badly; no KVM is needed. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "tests/unit/tap.h"
#include "tests/unit/virtio_driver.h"
#include "vmm/kvm/program/disk.h"
#include "vmm/kvm/program/mptable.h"
#include "vmm/kvm/program/record.h"
#include "vmm/kvm/program/serial.h"
#include "vmm/monitor.h"

#define DISK (1024 * MIB)
#define CLUSTER DISK_CLUSTER

/* ---- memory ----------------------------------------------------------------------------- */

static void test_memory(void)
{
	/* addresses alone: nothing is there */
	uint8_t *base =
		mmap(NULL, 4 * GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const struct memory m = {.base = base, .bytes = 4 * GIB};
	const struct memory small = {.base = base, .bytes = 64 * MIB};

	ok(memory_at(&small, 64 * MIB - 8, 8) == base + 64 * MIB - 8, "memory reaches to its end");
	ok(!memory_at(&small, 64 * MIB - 8, 9), "memory ends at its last byte");
	ok(!memory_at(&small, 64 * MIB, 0), "not by nothing either");
	ok(!memory_at(&small, UINT64_MAX - 3, 8),
		"an address around the end of all numbers is refused");
	ok(!memory_at(&small, 8, UINT64_MAX - 3),
		"a length around the end of all numbers is refused");
	ok(!memory_at(&m, MEMORY_LOW_END - 8, 16), "no range spans the devices");
	ok(memory_at(&m, MEMORY_HIGH, 8) == base + MEMORY_LOW_END, "behind them it goes on");
	ok(memory_at(&m, MEMORY_HIGH + GIB - 8, 8) != NULL,
		"the upper piece has all that is left of the memory");
	ok(!memory_at(&m, MEMORY_HIGH + GIB - 8, 9), "the upper piece ends with the memory");
	ok(!memory_at(&m, MEMORY_LOW_END + 4096, 8), "between them is none");
	munmap(base, 4 * GIB);
}

/* ---- the disk --------------------------------------------------------------------------- */

static struct disk disk;

struct files {
	int base, overlay;
};

/* A base of which each 512 bytes hold their number, over and over. */
static struct files new_files(void)
{
	struct files f = {memfd_create("base", MFD_CLOEXEC), memfd_create("overlay", MFD_CLOEXEC)};
	struct err err;

	for (uint32_t i = 0; i < 4 * CLUSTER / 512; i++) {
		uint32_t words[128];

		for (unsigned k = 0; k < 128; k++)
			words[k] = i;
		file_pwrite_full(f.base, words, sizeof(words), (off_t)i * 512);
	}
	if (ftruncate(f.base, DISK) < 0 || machine_overlay_init(f.overlay, DISK, &err) < 0)
		abort();
	return f;
}

static void reopen(const struct files *f)
{
	struct err err = {""};

	memset(&disk, 0, sizeof(disk));
	is_int(disk_open(&disk, f->base, f->overlay, false, &err), 0, "the disk opens %s",
		err.text);
}

static int put(uint64_t at, const void *bytes, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, len};

	return disk_write(&disk, at, &iov, 1);
}

static uint32_t word_at(uint64_t at)
{
	uint32_t word = ~0u;
	struct iovec iov = {&word, sizeof(word)};

	return disk_read(&disk, at, &iov, 1) < 0 ? ~0u : word;
}

static int count_runs(void *user, uint64_t at, uint64_t len, bool zero, uint64_t from)
{
	uint64_t *bytes = user;

	(void)at;
	(void)from;
	bytes[zero] += len;
	return 0;
}

static void walks(const struct files *f, uint64_t data, uint64_t zeros, const char *what)
{
	uint64_t bytes[2] = {0, 0};
	struct err err = {""};
	char command[64];

	is_int(machine_overlay_walk(f->overlay, DISK, count_runs, bytes, &err), 0,
		"%s: the overlay is a good one %s", what, err.text);
	is_int((int64_t)bytes[0], (int64_t)data, "the overlay has that much data");
	is_int((int64_t)bytes[1], (int64_t)zeros, "the overlay has that many zeros");
	snprintf(command, sizeof(command), "qemu-img check -q /proc/%d/fd/%d", (int)getpid(),
		f->overlay);
	is_int(system(command), 0, "qemu-img finds no fault in it");
}

static void test_disk(void)
{
	static uint8_t big[3 * CLUSTER], back[3 * CLUSTER];
	struct files f = new_files();
	uint32_t one = 0x11111111;
	struct iovec iov[2] = {{back, CLUSTER + 100}, {back + CLUSTER + 100, 2 * CLUSTER - 100}};

	reopen(&f);
	is_int(word_at(512 * 5), 5, "what nobody wrote is the base's");
	is_int(word_at(DISK - 4), 0, "to its end");
	is_int(put(512 * 5, &one, sizeof(one)), 0, "a sector is written");
	is_int(word_at(512 * 5), one, "a written sector is read");
	is_int(word_at(512 * 5 + 4), 5, "the bytes behind it are the base's");
	is_int(word_at(512 * 4), 4, "the bytes before a written sector are the base's");
	walks(&f, CLUSTER, 0, "a cluster");
	memset(big, 7, sizeof(big));
	is_int(put(CLUSTER / 2, big, sizeof(big)), 0, "much is written across clusters");
	is_int(disk_read(&disk, CLUSTER / 2, iov, 2), 0,
		"what was written across clusters is read in pieces");
	ok(!memcmp(big, back, sizeof(big)), "the same");
	is_int(word_at(512 * 5), one, "what was there stays");
	walks(&f, 4 * CLUSTER, 0, "four clusters");
	is_int(put(DISK - 512, big, 512), 0, "the last sector is written: another table");
	is_int(put(DISK - 512, big, 513), -EINVAL, "nothing is written behind the last sector");
	is_int(disk_zero(&disk, CLUSTER, 2 * CLUSTER, false), 0, "two clusters become zeros");
	is_int(word_at(CLUSTER + 512), 0, "zeroed clusters are read as zeros");
	is_int(disk_zero(&disk, 8, 64, true), 0, "a hint about part of one is let be");
	is_int(word_at(8), 0, "a cluster that was partly hinted away is as it was");
	is_int(disk_zero(&disk, 512 * 5, 4, false), 0, "an order is not");
	is_int(word_at(512 * 5), 0,
		"a part of a cluster that was ordered to be zeros reads as zeros");
	walks(&f, 3 * CLUSTER, 2 * CLUSTER, "zeros");
	is_int(put(CLUSTER + 512, &one, sizeof(one)), 0, "zeros are written over");
	is_int(word_at(CLUSTER + 512), one, "what was written over zeros is read");
	is_int(word_at(CLUSTER), 0, "the rest of them stays zeros");
	reopen(&f);
	is_int(word_at(CLUSTER + 512), one,
		"an overlay has all that was written when it is opened again");
	is_int(word_at(CLUSTER), 0, "zeros too");
	is_int(word_at(3 * CLUSTER), 0x07070707,
		"an overlay has what was written across clusters when it is opened again");
	walks(&f, 4 * CLUSTER, CLUSTER, "at the end");
	close(f.base);
	close(f.overlay);
}

static void test_disk_zeros(void)
{
	static uint8_t zeros[2 * CLUSTER];
	struct files f = new_files();

	reopen(&f);
	disk.detect_zeros = true;
	is_int(put(0, zeros, sizeof(zeros)), 0, "zeros are written while a template boots");
	is_int(word_at(512), 0, "zeros that were written while a template boots are read");
	walks(&f, 0, 2 * CLUSTER, "zeros written while a template boots stay out of the file");
	close(f.base);
	close(f.overlay);
}

static void test_disk_bad(void)
{
	struct files f = new_files();
	const uint8_t outside[8] = {0x80, 0, 0, 0xff, 0, 0, 0, 0};
	struct err err = {""};
	uint8_t byte = 1;

	file_pwrite_full(f.overlay, outside, sizeof(outside), 3 * CLUSTER);
	reopen(&f);
	is_int(put(0, &byte, 1), -EIO, "a table outside of the file is an I/O error");
	is_int((int64_t)word_at(0), ~0u, "a reader of a bad table gets an I/O error");
	file_pwrite_full(f.overlay, &byte, 1, 3);
	is_int(disk_open(&disk, f.base, f.overlay, false, &err), -EBADMSG, "no overlay: %s",
		err.text);
	close(f.base);
	close(f.overlay);
}

static void test_disk_full(void)
{
	struct files f = new_files();
	int sealed;
	uint8_t byte = 1;

	reopen(&f);
	is_int(put(0, &byte, 1), 0, "a byte");
	/* a file that cannot grow: as a host without room */
	fcntl(f.overlay, F_ADD_SEALS, F_SEAL_GROW);
	sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	file_copy_sparse(f.overlay, sealed, (uint64_t)lseek(f.overlay, 0, SEEK_END), NULL, NULL);
	fcntl(sealed, F_ADD_SEALS, F_SEAL_GROW);
	close(f.overlay);
	f.overlay = sealed;
	reopen(&f);
	ok(put(CLUSTER, &byte, 1) < 0, "where there is no room a write fails");
	is_int(word_at(CLUSTER), 128, "what was there is there still");
	is_int(put(1, &byte, 1), 0, "a cluster that has its place is written");
	close(f.base);
	close(f.overlay);
}

/* ---- blk -------------------------------------------------------------------------------- */

static int last_failure;

static void failed(int error)
{
	last_failure = error;
}

/* A request at descriptors 0, 1, 2; returns its status. */
static uint8_t request(
	struct driver *d, uint32_t type, uint64_t sector, uint64_t data, uint32_t len, bool in)
{
	struct {
		uint32_t type, unused;
		uint64_t sector;
	} head = {.type = type, .sector = sector};
	uint8_t *status = driver_at(d, 0x30100);

	memcpy(driver_at(d, 0x30000), &head, sizeof(head));
	*status = 0xee;
	driver_put_desc(d, 0, 0, 0x30000, sizeof(head), 1, 1);
	driver_put_desc(d, 0, 1, data, len, (uint16_t)(1 | (in ? 2 : 0)), 2);
	driver_put_desc(d, 0, 2, 0x30100, 1, 2, 0);
	driver_offer(d, 0, 0);
	if (!driver_take(d, 0, NULL))
		return 0xdd;
	return *status;
}

static void test_blk(void)
{
	struct files f = new_files();
	struct blk b = {.disk = &disk, .failed = failed};
	struct driver d;
	uint64_t *range;

	reopen(&f);
	driver_begin(&d, &b.v, &blk_ops);
	is_int(driver_get(&d, 0x000), 0x74726976, "the disk is a virtio device");
	is_int(driver_get(&d, 0x008), 2, "a disk");
	is_int(driver_get(&d, 0x100), DISK / 512, "the disk says its size");
	driver_start(&d, 0);
	is_int(driver_get(&d, 0x070), 15, "the disk accepts its driver");
	is_int(request(&d, 0, 5, DRIVER_DATA, 1024, true), 0, "the disk reads");
	is_int(*(uint32_t *)driver_at(&d, DRIVER_DATA + 512), 6, "what is there");
	ok(d.interrupts == 1, "the disk ends a request with an interrupt");
	memset(driver_at(&d, DRIVER_DATA), 9, 512);
	is_int(request(&d, 1, 5, DRIVER_DATA, 512, false), 0, "the disk writes");
	is_int(word_at(5 * 512), 0x09090909, "the disk reads what it wrote");
	is_int(request(&d, 1, DISK / 512, DRIVER_DATA, 512, false), 1, "not past the end");
	is_int(request(&d, 1, UINT64_MAX / 512, DRIVER_DATA, 512, false), 1,
		"no request reaches around the end of the disk");
	is_int(request(&d, 0, 5, DRIVER_DATA, 500, true), 1, "no request is of a part of a sector");
	is_int(request(&d, 99, 5, DRIVER_DATA, 512, true), 2, "what it does not know it says");
	is_int(request(&d, 4, 0, DRIVER_DATA, 512, false), 0, "a flush is fine");
	range = driver_at(&d, DRIVER_DATA);
	range[0] = 0;
	range[1] = 128;
	is_int(request(&d, 13, 0, DRIVER_DATA, 16, false), 0, "zeros are written by their number");
	is_int(word_at(5 * 512), 0, "zeros that were asked for by number are there");
	range[1] = 0xffffffff;
	is_int(request(&d, 13, 0, DRIVER_DATA, 16, false), 1, "not too many");
	is_int(last_failure, 0, "no hostile request was the host's fault");
	d.v->queues[0].s.next_avail++;
	driver_set(&d, 0x050, 0);
	ok(driver_get(&d, 0x070) & 64, "an index that is too far ahead asks for a reset");
	driver_start(&d, VIRTIO_F_EVENT_IDX);
	is_int(request(&d, 0, 5, DRIVER_DATA, 1024, true), 0, "after which it works again");
	driver_end(&d);
	close(f.base);
	close(f.overlay);
}

/* ---- hostile queues --------------------------------------------------------------------- */

static bool breaks(struct driver *d, const char *what)
{
	bool asks = driver_get(d, 0x070) & 64;

	ok(asks && !driver_take(d, 0, NULL), "%s: the device asks for a reset", what);
	driver_start(d, 0);
	return asks;
}

static void test_hostile(void)
{
	struct virtio v;
	struct driver d;
	struct driver_desc *inner;

	driver_begin(&d, &v, &entropy_ops);
	driver_start(&d, 0);
	driver_put_desc(&d, 0, 0, DRIVER_DATA, 16, 3, 0);
	driver_offer(&d, 0, 0);
	breaks(&d, "a chain that bites its tail");
	driver_offer(&d, 0, DRIVER_QUEUE);
	breaks(&d, "a head that is no descriptor");
	driver_put_desc(&d, 0, 0, DRIVER_DATA, 16, 3, 60000);
	driver_offer(&d, 0, 0);
	breaks(&d, "a next that is none");
	driver_offer_one(&d, 0, 0, DRIVER_MEMORY - 8, 16, 1);
	breaks(&d, "a buffer past the end of memory");
	driver_offer_one(&d, 0, 0, UINT64_MAX - 8, 16, 1);
	breaks(&d, "one around the end of all numbers");
	driver_put_desc(&d, 0, 0, DRIVER_DATA, 16, 3, 1);
	driver_put_desc(&d, 0, 1, DRIVER_DATA, 16, 0, 0);
	driver_offer(&d, 0, 0);
	breaks(&d, "one to read behind one to write");
	inner = driver_at(&d, DRIVER_DATA);
	inner[0] = (struct driver_desc){DRIVER_DATA, 16, 4, 0};
	driver_put_desc(&d, 0, 0, DRIVER_DATA, 16, 4, 0);
	driver_offer(&d, 0, 0);
	breaks(&d, "a table in a table");
	driver_put_desc(&d, 0, 0, DRIVER_DATA, 17, 4, 0);
	driver_offer(&d, 0, 0);
	breaks(&d, "half a descriptor in one");
	driver_set(&d, 0x044, 0);
	driver_set(&d, 0x038, DRIVER_QUEUE);
	driver_set(&d, 0x080, DRIVER_MEMORY - 16);
	driver_set(&d, 0x090, 0x1400);
	driver_set(&d, 0x0a0, 0x1800);
	driver_set(&d, 0x044, 1);
	driver_set(&d, 0x050, 0);
	breaks(&d, "rings outside of memory");
	inner[0] = (struct driver_desc){DRIVER_DATA + 64, 8, 3, 1};
	inner[1] = (struct driver_desc){DRIVER_DATA + 96, 8, 2, 0};
	driver_put_desc(&d, 0, 0, DRIVER_DATA, 32, 4, 0);
	driver_offer(&d, 0, 0);
	ok(driver_take(&d, 0, NULL), "a table that is good is served");
	driver_set(&d, 0x030, 200);
	driver_set(&d, 0x038, 128);
	is_int(driver_get(&d, 0x034), 0, "a queue that is none has no size");
	driver_set(&d, 0x050, 200);
	ok(!(driver_get(&d, 0x070) & 64), "a queue that is none cannot be rung");
	driver_end(&d);
}

/* ---- entropy, balloon ------------------------------------------------------------------- */

static void test_entropy(void)
{
	static const uint8_t zeros[64];
	struct virtio v;
	struct driver d;
	uint32_t len = 0;

	driver_begin(&d, &v, &entropy_ops);
	driver_start(&d, 0);
	driver_offer_one(&d, 0, 0, DRIVER_DATA, 64, 1);
	ok(driver_take(&d, 0, &len) && len == 64, "64 bytes of entropy");
	ok(memcmp(driver_at(&d, DRIVER_DATA), zeros, 64) != 0, "entropy is not zeros");
	driver_end(&d);
}

static void test_balloon(void)
{
	struct virtio v;
	struct driver d;
	uint8_t *page;

	driver_begin(&d, &v, &balloon_ops);
	free(d.memory.base);
	d.memory.base = mmap(
		NULL, DRIVER_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	driver_start(&d, 0);
	page = driver_at(&d, 0x50000);
	memset(page, 1, 3 * 4096);
	driver_offer_one(&d, 2, 0, 0x50800, 2 * 4096, 1);
	ok(driver_take(&d, 2, NULL), "free pages are reported");
	is_int(page[4096], 0, "a whole one of them is given back");
	is_int(page[0x7ff], 1, "what is before it is not");
	is_int(page[0x800], 1, "a part of a page is not put into the balloon");
	is_int(page[2 * 4096], 1, "at either end");
	*(uint32_t *)driver_at(&d, DRIVER_DATA) = 0x52;
	*(uint32_t *)driver_at(&d, DRIVER_DATA + 4) = 0xffffffff;
	driver_offer_one(&d, 0, 0, DRIVER_DATA, 8, 0);
	ok(driver_take(&d, 0, NULL), "pages are put into the balloon, one of them nowhere");
	is_int(page[2 * 4096], 0, "pages that are nowhere are given back");
	munmap(d.memory.base, DRIVER_MEMORY);
}

/* ---- the channel ------------------------------------------------------------------------ */

struct line {
	struct console c;
	struct driver d;
	int far; /* the host's end */
	uint32_t watched;
};

static void watched(void *user, uint32_t events)
{
	((struct line *)user)->watched = events;
}

static void line_begin(struct line *l)
{
	int pair[2];
	const int small = 4096;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	*l = (struct line){.far = pair[1]};
	driver_begin(&l->d, &l->c.v, &console_ops);
	l->c.fd = pair[0];
	l->c.watch = watched;
	l->c.watch_user = l;
	driver_start(&l->d, 0);
}

static void line_end(struct line *l)
{
	driver_end(&l->d);
	close(l->far);
	if (l->c.fd >= 0)
		close(l->c.fd);
}

static void tell(struct line *l, uint16_t event, uint16_t value)
{
	const uint16_t message[4] = {0, 0, event, value};

	memcpy(driver_at(&l->d, 0x30000), message, sizeof(message));
	driver_offer_one(&l->d, 3, 0, 0x30000, sizeof(message), 0);
	driver_take(&l->d, 3, NULL);
}

/* What the device says next at its control queue: the event. */
static int told(struct line *l)
{
	uint32_t len = 0;
	const uint16_t *message = driver_at(&l->d, 0x31000);

	driver_offer_one(&l->d, 2, 0, 0x31000, 64, 1);
	return driver_take(&l->d, 2, &len) && len >= 8 ? message[2] : -1;
}

static void open_port(struct line *l)
{
	tell(l, 0, 1); /* the device is ready */
	is_int(told(l), 1, "a port is added");
	tell(l, 3, 1); /* and so is the port */
	is_int(told(l), 7, "the console's port has a name");
	is_str((char *)driver_at(&l->d, 0x31008), "parbake.agent",
		"the port's name is the agent's");
	is_int(told(l), 6, "the other end of the port is open");
	tell(l, 6, 1);
}

static void test_console(void)
{
	struct line l;
	char text[16] = {0};

	line_begin(&l);
	is_int(driver_get(&l.d, 0x104), 1, "the console has one port");
	if (write(l.far, "early", 5) != 5)
		abort();
	open_port(&l);
	driver_offer_one(&l.d, 0, 0, DRIVER_DATA, 64, 1);
	ok(!memcmp(driver_at(&l.d, DRIVER_DATA), "early", 5),
		"what came before somebody listened is there");
	driver_take(&l.d, 0, NULL);
	is_int(l.watched, 0, "no guest without a buffer is waited for");
	if (write(l.far, "more", 4) != 4)
		abort();
	console_event(&l.c, EPOLLIN);
	ok(!driver_take(&l.d, 0, NULL), "nothing is taken from the host without a guest's buffer");
	driver_offer_one(&l.d, 0, 0, DRIVER_DATA, 2, 1);
	ok(!memcmp(driver_at(&l.d, DRIVER_DATA), "mo", 2), "a short buffer gets a part");
	driver_offer_one(&l.d, 0, 1, DRIVER_DATA, 64, 1);
	ok(!memcmp(driver_at(&l.d, DRIVER_DATA), "re", 2), "the next one the rest");
	driver_offer_one(&l.d, 0, 2, DRIVER_DATA, 64, 1);
	is_int(l.watched, EPOLLIN, "the host is waited for when there is a buffer");
	memcpy(driver_at(&l.d, DRIVER_DATA + 64), "answer", 6);
	driver_offer_one(&l.d, 1, 0, DRIVER_DATA + 64, 6, 0);
	ok(read(l.far, text, sizeof(text)) == 6 && !memcmp(text, "answer", 6), "the guest answers");
	line_end(&l);
}

/* Read all that is there. */
static size_t drain(int fd, uint8_t *buf, size_t max)
{
	size_t done = 0;
	ssize_t n;

	while (done < max && (n = recv(fd, buf + done, max - done, MSG_DONTWAIT)) > 0)
		done += (size_t)n;
	return done;
}

static void test_console_flow(void)
{
	static uint8_t got[1 << 18];
	const uint32_t size = 200000;
	struct virtio_state state;
	uint8_t extra[VIRTIO_EXTRA_MAX];
	struct line l, other;
	size_t part, rest;

	line_begin(&l);
	open_port(&l);
	for (uint32_t i = 0; i < size; i++)
		*(uint8_t *)driver_at(&l.d, DRIVER_DATA + i) = (uint8_t)(i * 7 >> 3);
	driver_offer_one(&l.d, 1, 0, DRIVER_DATA, size, 0);
	ok(!driver_take(&l.d, 1, NULL), "what the socket does not take stays the guest's");
	ok(l.watched & EPOLLOUT, "the host is waited for while its socket is full");
	part = drain(l.far, got, sizeof(got));
	ok(part > 0 && part < size, "a part of it came: %zu bytes", part);
	/* half-way, it is captured and restored with another socket */
	virtio_save(&l.c.v, &state, extra);
	line_begin(&other);
	memcpy(other.d.memory.base, l.d.memory.base, DRIVER_MEMORY);
	is_int(virtio_load(&other.c.v, &state, extra), 0, "a console's state is loaded elsewhere");
	virtio_wake(&other.c.v);
	for (rest = part; rest < size;) {
		size_t n = drain(other.far, got + rest, sizeof(got) - rest);

		rest += n;
		if (!n && !(other.watched & EPOLLOUT))
			break;
		console_event(&other.c, EPOLLOUT);
	}
	is_int((int64_t)rest, size, "the rest comes there");
	for (rest = 0; rest < size && got[rest] == (uint8_t)(rest * 7 >> 3);)
		rest++;
	is_int((int64_t)rest, size, "a console's bytes are what was sent");
	state.queues[0].size = 3;
	is_int(virtio_load(&other.c.v, &state, extra), -EBADMSG, "a queue of three is refused");
	line_end(&other);
	close(l.far);
	l.far = -1;
	console_event(&l.c, EPOLLHUP | EPOLLOUT);
	ok(driver_take(&l.d, 1, NULL), "where nobody is left, what is sent is gone");
	is_int(l.watched, 0, "nobody is waited for when the host has gone");
	line_end(&l);
}

/* ---- the serial port -------------------------------------------------------------------- */

static void test_serial(void)
{
	struct driver d = {.interrupts = 0};
	struct serial s;
	char text[4] = {0};
	int pair[2];

	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
		abort();
	serial_init(&s, pair[1], driver_raised, &d);
	serial_write(&s, 1, 0xff);
	is_int(serial_read(&s, 1), 0x0f, "a register keeps what is written to it");
	serial_write(&s, 1, 0);
	serial_write(&s, 4, 0x1a);
	is_int(serial_read(&s, 6) & 0xf0, 0x90, "the serial port loops back");
	serial_write(&s, 0, 'x');
	serial_write(&s, 4, 0);
	d.interrupts = 0;
	serial_write(&s, 0, 'a');
	is_int(d.interrupts, 0, "who asks for no interrupt gets none");
	serial_write(&s, 1, 2);
	is_int(d.interrupts, 1, "who does is told that it may write");
	is_int(serial_read(&s, 2) & 0xf, 2, "the serial port tells why it interrupts");
	is_int(serial_read(&s, 2) & 0xf, 1, "the serial port tells only once");
	ok(read(pair[0], text, sizeof(text)) == 1 && text[0] == 'a', "what it wrote came out");
	for (int i = 0; i < 1 << 17; i++)
		serial_write(&s, 0, 'b');
	is_int(serial_read(&s, 5), 0x60, "a full pipe makes nobody wait");
	close(pair[0]);
	close(pair[1]);
}

/* ---- records, tables -------------------------------------------------------------------- */

static void test_record(void)
{
	static uint8_t buf[RECORD_MAX] __attribute__((aligned(8)));
	struct record r;
	struct err err = {""};
	uint64_t *number;
	size_t bytes = 0, len;

	record_begin(&r, buf);
	number = record_add(&r, RECORD_CLOCK, 0, sizeof(*number));
	*number = 42;
	memset(record_add(&r, RECORD_MSRS, 1, 100), 7, 100);
	record_cut(&r, 33);
	is_int(record_end(&r, MIB, 2, 1000, &err), 0, "a record is written");
	len = r.len;
	is_int(record_open(&r, buf, len, &err), 0, "a record that was written is read");
	number = (uint64_t *)(uintptr_t)record_find(&r, RECORD_CLOCK, 0, sizeof(*number), NULL);
	ok(number && *number == 42, "a record has what was written into it");
	ok(record_find(&r, RECORD_MSRS, 1, 0, &bytes) && bytes == 33, "each part in its length");
	ok(!record_find(&r, RECORD_MSRS, 0, 0, NULL), "no other processor's");
	ok(!record_find(&r, RECORD_CLOCK, 0, 4, NULL), "a record of another length is refused");
	for (size_t cut = 0; cut < len; cut += 8)
		if (record_open(&r, buf, cut, &err) == 0)
			ok(false, "cut at %zu it is none", cut);
	for (size_t bit = 0; bit < len * 8; bit += 3) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (record_open(&r, buf, len, &err) == 0)
			ok(false, "a record with bit %zu changed is refused", bit);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	is_int(record_open(&r, buf, len, &err), 0, "the whole is one, and nothing less");
	record_begin(&r, buf);
	for (int i = 0; i < 3; i++)
		memset(record_add(&r, RECORD_MSRS, 0, RECORD_MAX / 2), 0, RECORD_MAX / 2);
	is_int(record_end(&r, MIB, 1, 0, &err), -EFBIG, "more than there is room for is none");
}

static void test_mptable(void)
{
	static uint8_t table[MPTABLE_BYTES];
	uint8_t sum = 0;
	uint16_t len;

	mptable_write(table, 0x9fc00, 8);
	for (int i = 0; i < 16; i++)
		sum = (uint8_t)(sum + table[i]);
	ok(!memcmp(table, "_MP_", 4) && sum == 0, "the MP table's pointer adds up");
	memcpy(&len, table + 20, sizeof(len));
	for (int i = 0; i < len; i++)
		sum = (uint8_t)(sum + table[16 + i]);
	ok(!memcmp(table + 16, "PCMP", 4) && sum == 0, "the MP table adds up");
	is_int(len, 44 + 8 * 20 + 2 * 8 + 18 * 8,
		"the MP table is as long as eight processors make it");
}

int main(void)
{
	test_memory();
	test_disk();
	test_disk_zeros();
	test_disk_bad();
	test_disk_full();
	test_blk();
	test_hostile();
	test_entropy();
	test_balloon();
	test_console();
	test_console_flow();
	test_serial();
	test_record();
	test_mptable();
	return tap_done();
}
