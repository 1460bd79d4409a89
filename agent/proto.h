/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_PROTO_H
#define PARBAKE_AGENT_PROTO_H

/*
 * The protocol between the host and the agent, whole. It runs over one byte
 * stream (a virtio-serial port in a machine, a socketpair in tests), which
 * carries frames: a header of 16 bytes, then `length` bytes of body. Numbers are
 * little-endian. Both ends treat the other as hostile: a frame that breaks a
 * rule ends the connection (host) or resynchronises it (agent).
 *
 * Synchronising. The stream may begin in the middle of a frame (a snapshot was
 * taken, the host restarted). The agent starts unsynchronised: it drops bytes
 * until it finds a SYNC frame (header with magic, type SYNC and length
 * PROTO_SYNC_LEN). Whenever a header is not valid it goes back to that. The host
 * sends SYNC with a fresh nonce and drops bytes until the HELLO frame that
 * repeats the nonce. At a SYNC the agent cancels every stream and forgets
 * credit: nothing of the former connection goes on.
 *
 * Streams. Requests open a stream by number: odd from the host, even (not 0)
 * from the agent (proxy connections). A stream ends with exactly one REPLY by
 * its server (the agent for odd ones, the host for even ones), after which
 * neither side sends on it; late frames on a closed stream are ignored. The
 * client may send CANCEL: the server kills the work and still REPLYs. A number may
 * be used again only after its REPLY. At most PROTO_STREAMS_MAX at once.
 *
 * Data. DATA's flags name a channel. Each channel of each direction of a stream has
 * its own credit: it starts at PROTO_WINDOW bytes, DATA spends it, CREDIT (body: u32
 * channel, u32 bytes) gives it back as the receiver consumes. Sending past it is a
 * breach. EOF (flags: channel) ends a channel in one direction. Frames are sent
 * whole; senders take turns among streams, so one stream cannot starve another.
 *
 * Bodies of requests and replies are lists of fields: u16 tag, u16 zero, u32
 * length, bytes. Unknown tags are ignored, so fields can be added; a known field of
 * the wrong length or a field past the end is a breach. Strings have no NUL and
 * hold none.
 */
#include <stdint.h>
#include <string.h>

#include "agent/proto_fields.h"

#define PROTO_VERSION 3u
#define PROTO_PORT_NAME "parbake.agent" /* of the virtio-serial port */

#define PROTO_MAGIC 0x314b4250u /* "PBK1" */
#define PROTO_HEADER_LEN 16u
#define PROTO_DATA_MAX (64u << 10) /* body of one DATA frame, for fairness */
#define PROTO_WINDOW (256u << 10)
#define PROTO_STREAMS_MAX 128u
#define PROTO_PATH_MAX 4096u
#define PROTO_ERROR_MAX 4096u
#define PROTO_NONCE_LEN 16u
#define PROTO_TAG_MAX 255u /* bytes of T_TAG */
#define PROTO_WORDS_MAX 2048u /* bytes of a kept command's words that PROCESSES tells */
#define PROTO_KEPT_MAX 256u /* kept commands at once */

struct proto_header {
	uint32_t magic;
	uint16_t type; /* enum proto_type */
	uint16_t flags; /* the channel of DATA and EOF, else 0 */
	uint32_t stream;
	uint32_t length;
};

/* two tables */
/* clang-format off */
enum proto_type {
	/* the connection: stream 0 */
	PROTO_SYNC = 1,  /* host: 16 nonce, u32 lowest, u32 highest version */
	PROTO_HELLO = 2, /* agent: struct proto_hello, answers SYNC */
	PROTO_PING = 3,  /* host: ≤ 64 bytes */
	PROTO_PONG = 4,  /* agent: the same bytes */
	PROTO_FAULT = 5, /* agent: UTF-8 text: why it is about to resynchronise or die */

	/* any stream */
	PROTO_DATA = 16,
	PROTO_EOF = 17,
	PROTO_CREDIT = 18,
	PROTO_CANCEL = 19, /* no body */
	PROTO_REPLY = 20,  /* fields; T_ERROR present: the request failed */
	PROTO_SIGNAL = 21, /* host, EXEC: u32 signal, to the whole tree */
	PROTO_RESIZE = 22, /* host, EXEC with a PTY: u16 rows, u16 columns */

	/* requests, host → agent */
	PROTO_EXEC = 32,        /* ENOENT, EACCES: the program is not there, is none; of nothing else */
	PROTO_FILE_PUT = 33,    /* data: channel 0 host → agent, then EOF */
	PROTO_FILE_GET = 34,    /* data: channel 1 agent → host, then EOF; EIO: it was cut while it was read */
	PROTO_FILE_STAT = 35,
	PROTO_FILE_LIST = 36,   /* data: channel 1, a stream of struct proto_dirent */
	PROTO_FILE_MKDIR = 37,
	PROTO_FILE_REMOVE = 38,
	PROTO_FILE_RENAME = 39,
	PROTO_CODE = 40,        /* run code in a context; data: see below */
	PROTO_CONTEXT = 41,     /* start, restart or stop a context, list all … (T_ACTION). The REPLY to a start
				 * and to a list has for each context T_CONTEXT, then T_LANGUAGE, T_CWD,
				 * T_BUSY */
	PROTO_PORT = 42,        /* TCP to guest loopback: T_PORT; data both ways, channel 0 in, 1 out */
	PROTO_IDENTITY = 43,    /* clock, entropy, names: before anything else in a clone */
	PROTO_CLOCK = 44,       /* T_REALTIME_NS, T_OFFSET_NS or neither; the REPLY has T_REALTIME_NS, as IDENTITY's */
	PROTO_SYNCFS = 45,
	PROTO_FREEZE = 46,      /* freeze the root's file system; T_TIMEOUT_MS: thaws by itself after it */
	PROTO_THAW = 47,
	PROTO_ZERO_FREE = 48,   /* overwrite free memory with zeros */
	PROTO_DROP_CACHES = 49, /* clean page cache, dentries, inodes */
	PROTO_PROXY = 50,       /* T_PORT: listen there on loopback; T_PORT 0: stop */
	PROTO_INFO = 51,        /* memory, uptime, nonce, counter: fields below */
	PROTO_SHUTDOWN = 52,    /* kill everything, sync, power off; the machine ends instead of a REPLY */
	PROTO_QUIESCE = 53,     /* collect what can be: idle contexts (gc), reap, trim; before a capture.
				 * ECHILD: a detached EXEC has ended */
	PROTO_ATTACH = 54,      /* a kept EXEC, by T_PID or T_TAG, gets this stream: as its own had been. ESRCH: there
				 * is none; EBUSY: it has one. T_LIMIT_OUT, T_LIMIT_ERR: from here on */
	PROTO_PROCESSES = 55,   /* the kept EXECs that run: T_PID, then T_TAG, T_CWD, T_ARG … of it; and again */

	PROTO_WATCH = 56,       /* events in the directory T_PATH, T_RECURSIVE in those below, too; T_ENTRIES. Data: channel
				 * 1, a stream of struct proto_event, until CANCEL. With T_TAG it is kept: the REPLY
				 * comes as soon as it watches, and WATCHED tells what has happened */
	PROTO_WATCHED = 57,     /* of the kept one T_TAG: the REPLY has T_PATH, and T_EVENT … since the last; ENOENT: there is none;
				 * with T_ACTION "stop" it ends */

	/* request, agent → host (even streams) */
	PROTO_PROXY_OPEN = 64,  /* a client connected to the proxy: channel 0 host → guest, 1 guest → host */
};

/* Channels. EXEC, ATTACH: 0 stdin (host → agent), 1 stdout, 2 stderr (with a PTY all is 1). Of a kept one 3: a
 * struct proto_started and its tag, once, before all else: it runs.
 * CODE: 1 stdout, 2 stderr, 3 results: one JSON object a line,
 * {"type":"result"|"display","data":{mime: text, …}} (binary as base64). */
enum proto_channel { PROTO_IN = 0, PROTO_OUT = 1, PROTO_ERR = 2, PROTO_RESULT = 3, PROTO_CHANNELS = 4 };

/* Fields: their type in brackets. u32/u64/i64 little-endian; bool is u8 0 or 1. */
enum proto_tag {
	/* requests */
	PROTO_T_ARG = 1,           /* [string] EXEC: argv, one a field, in order */
	PROTO_T_SHELL = 2,         /* [string] EXEC: a line for /bin/sh -c, instead of T_ARG */
	PROTO_T_ENV = 3,           /* [string] "K=V", repeated; on top of the agent's own */
	PROTO_T_CWD = 4,           /* [string] default: the user's home, else / */
	PROTO_T_USER = 5,          /* [string] name, or uid[:gid]; default root */
	PROTO_T_TIMEOUT_MS = 6,    /* [u64] 0 or absent: none; past it the whole tree is killed */
	PROTO_T_LIMIT_OUT = 7,     /* [u64] bytes of channel 1 passed on; more is read, counted, dropped */
	PROTO_T_LIMIT_ERR = 8,     /* [u64] the same of channel 2 */
	PROTO_T_STDIN = 9,         /* [bool] channel 0 will carry data; absent or 0: /dev/null */
	PROTO_T_PTY = 10,          /* [u16 rows, u16 columns] */
	PROTO_T_MEMORY_MAX = 11,   /* [u64] bytes, of the exec's cgroup */
	PROTO_T_PIDS_MAX = 12,     /* [u64] of the exec's cgroup */
	PROTO_T_PATH = 13,         /* [string] absolute, resolved beneath the root, ≤ PROTO_PATH_MAX */
	PROTO_T_PATH2 = 14,        /* [string] RENAME: the new one */
	PROTO_T_MODE = 15,         /* [u32] permission bits */
	PROTO_T_OFFSET = 16,       /* [u64] GET */
	PROTO_T_LENGTH = 17,       /* [u64] GET: at most this many bytes */
	PROTO_T_PARENTS = 18,      /* [bool] MKDIR, PUT: make parents too */
	PROTO_T_RECURSIVE = 19,    /* [bool] REMOVE */
	PROTO_T_CONTEXT = 20,      /* [string] CODE, CONTEXT: its name; default "default" */
	PROTO_T_CODE = 21,         /* [string] the code */
	PROTO_T_ACTION = 22,       /* [string] CONTEXT: "start", "restart", "stop", "list", "exercise", "prepare" */
	PROTO_T_PORT = 23,         /* [u32] */
	PROTO_T_REALTIME_NS = 24,  /* [i64] since 1970 */
	PROTO_T_ENTROPY = 25,      /* [bytes] 32 to 512, fresh from the host's kernel */
	PROTO_T_MACHINE_ID = 26,   /* [string] 32 lower-case hexadecimal digits */
	PROTO_T_HOSTNAME = 27,     /* [string] 1–63 of [a-z0-9-] */
	PROTO_T_OOM_GROUP = 28,    /* [bool] EXEC: an out-of-memory kill takes the whole cgroup */
	PROTO_T_DETACH = 29,       /* [bool] EXEC: REPLY as soon as it runs; it lives on by itself, through
				    * SYNCs and restores, without input, output or timeout (a service) */
	PROTO_T_SANDBOX_ENV = 30,  /* [string] CODE: "K=V", repeated: the sandbox's own. They are set in the
				    * interpreter, to stay, where they are others than those of the CODE
				    * before; T_ENV is on top of them and of this CODE alone */
	PROTO_T_EXISTING = 31,     /* [bool] CODE, CONTEXT: ENOENT where there is no such context */
	PROTO_T_LANGUAGE = 32,     /* [string] CODE, CONTEXT: of the interpreter, where one is started (default
				    * Python); in replies: its name. A CODE without T_CONTEXT is for the
				    * language's own: "default" is Python's, others have its name */
	PROTO_T_KEEP = 33,         /* [bool] EXEC: kept: where its stream is aborted (a SYNC) it goes on, what it writes
				    * is dropped, and ATTACH finds it. CANCEL kills it. What it leaves behind at its
				    * end lives on */
	PROTO_T_TAG = 34,          /* [string ≤ PROTO_TAG_MAX] EXEC that is kept, ATTACH: a name that no other has (EEXIST) */
	PROTO_T_PID = 35,          /* [u32] of a kept EXEC's main process */
	PROTO_T_OFFSET_NS = 36,    /* [i64] CLOCK: how far the guest's wall clock is behind (negative: ahead) */

	PROTO_T_METADATA = 37,     /* [string] "K=V", repeated: PUT gives the file this metadata; STAT's REPLY tells it */
	PROTO_T_ENTRIES = 38,      /* [bool] WATCH: events tell what the file is */

	/* replies */
	PROTO_T_ERROR = 64,        /* [u32 errno, string ≤ PROTO_ERROR_MAX]: the request itself failed */
	PROTO_T_EXIT_CODE = 65,    /* [u32] EXEC ended by exit */
	PROTO_T_EXIT_SIGNAL = 66,  /* [u32] EXEC ended by a signal */
	PROTO_T_TIMED_OUT = 67,    /* [bool] the timeout killed it */
	PROTO_T_OOM = 68,          /* [bool] the kernel's out-of-memory killer struck in its cgroup */
	PROTO_T_TOTAL_OUT = 69,    /* [u64] bytes written by it, passed on or not */
	PROTO_T_TOTAL_ERR = 70,    /* [u64] */
	PROTO_T_CUT_OUT = 71,      /* [bool] more than the limit: cut */
	PROTO_T_CUT_ERR = 72,      /* [bool] */
	PROTO_T_DURATION_NS = 73,  /* [u64] */
	PROTO_T_STAT = 74,         /* [struct proto_stat] */
	PROTO_T_LINK = 75,         /* [string] STAT of a symbolic link: the path that it leads to, links in it resolved; its own
				    * where it leads nowhere */
	PROTO_T_BYTES = 76,        /* [u64] zeroed, transferred, … */
	PROTO_T_EXECUTION = 77,    /* [u32] CODE: the context's execution count */
	PROTO_T_ENAME = 78,        /* [string] CODE raised: the exception's class … */
	PROTO_T_EVALUE = 79,       /* [string] … its text … */
	PROTO_T_TRACEBACK = 80,    /* [string] … and the traceback, plain text */
	PROTO_T_NONCE = 81,        /* [16 bytes] INFO: made at boot, only in memory */
	PROTO_T_COUNTER = 82,      /* [u64] INFO: SYNCs answered since boot; goes on across restores */
	PROTO_T_UPTIME_NS = 83,    /* [u64] INFO: CLOCK_MONOTONIC */
	PROTO_T_MEM_TOTAL = 84,    /* [u64] INFO: bytes */
	PROTO_T_MEM_FREE = 85,     /* [u64] */
	PROTO_T_MEM_CACHED = 86,   /* [u64] */
	PROTO_T_CONTEXTS = 87,     /* [u32] INFO: contexts alive */
	PROTO_T_STREAMS = 88,      /* [u32] INFO: other streams open */
	PROTO_T_KERNEL = 89,       /* [string] INFO: uname -r */
	PROTO_T_CONTEXT_GONE = 90, /* [bool] CODE: the interpreter died while it ran */
	PROTO_T_BUSY = 91,         /* [bool] CONTEXT, list: a cell runs in it */
	PROTO_T_EVENT = 92,        /* [struct proto_event …] WATCHED: one event, repeated */
};
/* clang-format on */

struct proto_sync {
	uint8_t nonce[PROTO_NONCE_LEN];
	uint32_t version_min, version_max;
};
#define PROTO_SYNC_LEN 24u

struct proto_hello {
	uint8_t nonce[PROTO_NONCE_LEN]; /* of the SYNC */
	uint8_t boot[PROTO_NONCE_LEN]; /* the agent's own, made at boot, only in memory */
	uint64_t counter; /* SYNCs answered since boot, this one counted */
	int64_t realtime_ns;
	uint64_t uptime_ns;
	uint32_t version; /* chosen; 0: none in common, the agent stays unsynchronised */
	uint32_t flags; /* PROTO_HELLO_… */
};
#define PROTO_HELLO_LEN 64u
#define PROTO_HELLO_ROOT 1u /* the root is mounted: the machine is up */

_Static_assert(sizeof(struct proto_header) == PROTO_HEADER_LEN, "header as on the wire");
_Static_assert(sizeof(struct proto_sync) == PROTO_SYNC_LEN, "sync as on the wire");
_Static_assert(sizeof(struct proto_hello) == PROTO_HELLO_LEN, "hello as on the wire");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are little-endian on the wire");

#endif
