/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_PAGER_PRIVATE_H
#define PARBAKE_RESTORE_PAGER_PAGER_PRIVATE_H

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/json.h"
#include "common/limits.h"
#include "restore/pager/pager.h"
#include "restore/pager/uffd.h"

/* The engine's inside, shared by pager*.c alone. restore/pager/pager.c says how it works. */

#define PAGER_SHARDS 64
#define PAGER_WORKERS_MAX 16
#define PAGER_APART_MAX 16 /* attaches that have a thread of their own, at once */
#define PAGER_MSGS 32 /* read from a userfaultfd at once */
#define PAGER_QUEUE 128 /* faults read and not served yet, of one machine */
#define PAGER_HANDSHAKE 8192 /* bytes of a handshake */

enum pager_frame { FRAME_EMPTY, FRAME_FILLING, FRAME_FILLED, FRAME_DAMAGED };

struct pager_shard {
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

/* A run of the working set as it is mapped: sorted by offset, all data or all holes. */
struct pager_run {
	uint64_t start, end;
	bool hole;
};

struct pager_region {
	uint64_t base, start, end; /* address in the machine; offsets in the memory */
};

/*
 * One attached machine. Found in pager.slots by number, never by a pointer from epoll, so that an
 * event that comes late finds nothing. The last reference closes it. All but refs and the numbers
 * belongs to the holder of `turn`.
 */
struct pager_machine {
	uint32_t slot, generation;
	unsigned refs; /* under pager.lock */
	int sock, uffd;
	pthread_mutex_t turn;
	bool serving; /* the handshake is done */
	bool ended; /* doomed or gone: nothing is answered any more */
	struct pager_region regions[LIMIT_REGIONS];
	unsigned n_regions;
	/* by page of the memory: `mapped` is a hint (the host may reclaim a page), `removed` is law
	 */
	uint64_t *mapped, *removed;
	bool any_removed;
	struct uffd_msg queue[PAGER_QUEUE];
	unsigned n_queue;
	unsigned refusals; /* answers refused with EAGAIN, in this turn */
	int64_t turn_ends; /* when others have theirs */
	/* pages that it has for itself: own.c */
	struct memory_delta *own; /* NULL: none, or all are given */
	uint64_t *own_pages; /* NULL: none */
	uint8_t *own_frame; /* of a fault in one */
	STAILQ_ENTRY(pager_machine) apart;
	int own_in; /* a byte goes there when all are given; -1: said, or nobody asks */
};

/* What a page of a machine's memory holds. */
enum pager_kind { PAGE_DATA, PAGE_HOLE, PAGE_REMOVED, PAGE_OWN };

/* A worker thread, or whoever fills frames. */
struct pager_worker {
	struct pager *pager;
	pthread_t thread;
	uint8_t *frame; /* image_frame_bytes() of room */
};

struct pager {
	struct image *img;
	enum pager_way way;
	struct pager_options opt;
	uint64_t bytes;
	uint32_t window;
	int memfd;
	uint8_t *map; /* shared, writable, made before the seals */
	int epoll, stop_fd, idle_fd;
	struct pager_worker *workers;
	unsigned n_workers;

	/*
	 * Lock order: pager_machine.turn, then pager.lock or record_lock or a shard's lock; no two
	 * of the latter three at once. No ioctl, read or decompression under any but `turn`.
	 */
	pthread_mutex_t lock;
	struct pager_machine **slots;
	uint32_t n_slots, generation;
	unsigned n_machines;
	unsigned
		n_apart; /* threads that attach one machine each, and then the next that waits for it */
	STAILQ_HEAD(, pager_machine) apart; /* those that wait, with a reference each */
	bool stopping; /* they wait for nothing */
	pthread_cond_t apart_done;
	struct err last_error;

	/* by the number of a frame's first page; changes under its shard's lock */
	atomic_uchar *frames;
	struct pager_shard shards[PAGER_SHARDS];

	struct pager_run *plan;
	size_t n_plan;
	uint64_t *prefetch; /* starts of the frames the working set needs, in its order */
	size_t n_prefetch;
	atomic_size_t next_prefetch;

	pthread_mutex_t record_lock;
	uint64_t *recorded; /* bitmap */
	uint64_t *order; /* page numbers */
	size_t n_order, max_order;
	struct pager_trace traced; /* under record_lock */
	size_t max_traced;

	struct {
		atomic_uint_fast64_t faults, minor, missing, hole, removed, frames, bytes,
			continued, zeroed, premapped, own, machines;
	} n;
};

#define STAT_ADD(p, field, by) atomic_fetch_add_explicit(&(p)->n.field, (by), memory_order_relaxed)

static inline bool bit_get(const uint64_t *map, uint64_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static inline void bit_set(uint64_t *map, uint64_t i)
{
	map[i / 64] |= 1ULL << (i % 64);
}

static inline void bit_clear(uint64_t *map, uint64_t i)
{
	map[i / 64] &= ~(1ULL << (i % 64));
}

/* fill.c */
int pager_memory_make(struct pager *p, struct err *err);
int pager_memory_seal(struct pager *p, struct err *err);
/* Is the frame that holds the data page at @offset filled? */
bool pager_filled(struct pager *p, uint64_t offset);
/* Fill the frame that holds the data page at @offset, or wait for the thread that does.
 * -EBADMSG: damaged, for ever. */
int pager_fill(struct pager *p, struct pager_worker *w, uint64_t offset, struct err *err);
/* Fill every frame that has data, with @threads threads. */
int pager_fill_all(struct pager *p, unsigned threads, struct err *err);
int pager_worker_init(struct pager_worker *w, struct pager *p, struct err *err);

/* working_set.c */
int pager_plan(struct pager *p, const struct snapshot_ranges *wset, struct err *err);
/* Fill the next frame of the working set; false: none is left. */
bool pager_prefetch_one(struct pager *p, struct pager_worker *w);
void pager_record(struct pager *p, uint64_t page);

/* trace.c */
/* 0 where nothing is traced, so that a moment costs nothing then. */
int64_t pager_trace_now(const struct pager *p);
/* Keep the entry @e, which ends now. Only with opt.trace. */
void pager_trace_add(struct pager *p, struct pager_trace_entry e);
json_t *pager_trace_to_json(const struct pager_trace *t);
int pager_trace_from_json(const json_t *obj, struct pager_trace *ret, struct err *err);

/* machine.c: called with no lock held, by one thread at a time for each of the two
 * descriptors */
struct pager_machine *pager_machine_new(int sock);
void pager_machine_free(struct pager_machine *m);
/* The socket is readable. True: wait for it again; false: the machine is gone. */
bool pager_machine_socket(struct pager *p, struct pager_worker *w, struct pager_machine *m);
/* The userfaultfd is readable. True: wait for it again. */
bool pager_machine_faults(struct pager *p, struct pager_worker *w, struct pager_machine *m);
/* Read the messages that wait: removals are applied at once, faults are queued. Returns how many
 * messages came, or -errno. The caller holds the machine's turn, as for the next function. */
ssize_t pager_machine_read(struct pager_machine *m);
/*
 * Read the messages that wait and answer them, between two steps of an attach. False: the machine
 * has ended.
 */
bool pager_machine_between(struct pager *p, struct pager_worker *w, struct pager_machine *m);
/* A handshake's JSON; checked against @memory_bytes. */
int pager_regions_parse(const void *text, size_t len, uint64_t memory_bytes,
	struct pager_region ret[static LIMIT_REGIONS], unsigned *ret_n, struct err *err);

/* own.c */
/* Set the memory delta of @m before it attaches. @d is taken, also on failure. */
int pager_own_set(
	struct pager *p, struct pager_machine *m, struct memory_delta *d, struct err *err);
void pager_own_clear(struct pager_machine *m);
/*
 * Give the machine all of its own pages. -ECONNRESET: it is gone; any other error: it must not run.
 */
int pager_own_install(
	struct pager *p, struct pager_worker *w, struct pager_machine *m, struct err *err);
/* Answer a fault in one of the machine's own pages. -EBADMSG: the delta is damaged. */
int pager_own_answer(struct pager *p, struct pager_machine *m, uint64_t addr, uint64_t offset,
	enum uffd_result *ret, struct err *err);

/* pager.c */
/* Start to wait for the machine's userfaultfd. */
int pager_machine_serve(struct pager *p, struct pager_machine *m, struct err *err);
void pager_set_error(struct pager *p, const struct err *err);
/* Readable (eventfd) once a machine has left. Borrowed. */
int pager_event_fd(const struct pager *p);

#endif
