/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_RELAY_RELAY_PRIVATE_H
#define PARBAKE_POOL_RELAY_RELAY_PRIVATE_H

/*
 * The relay: what its parts share. relay.c carries a request, head.c reads and writes heads,
 * answer.c reads the server's body.
 */

#include <stdint.h>
#include <sys/queue.h>

#include "common/buffer.h"
#include "pool/relay/limits.h"
#include "pool/relay/relay.h"

struct relay;
struct relays {
	struct loop *loop;
	const struct relay_ops *ops;
	void *user;
	LIST_HEAD(, relay) open;
};

/* ---- heads (head.c) -------------------------------------------------------------------------- */

/* The head of @rq as the server gets it, appended to @out. @upgrade: it asks for another protocol. */
void relay_head_write(const struct relays *all, const struct http_request *rq,
	const struct relay_target *to, bool upgrade, struct buffer *out);
/* Does it ask for another protocol than HTTP? */
bool relay_upgrades(const struct http_request *rq);

enum relay_framing { RELAY_NO_BODY, RELAY_LENGTH, RELAY_CHUNKED, RELAY_UNTIL_EOF };

/* A server's head, read. */
struct relay_head {
	unsigned status;
	enum relay_framing framing;
	uint64_t
		length; /* RELAY_LENGTH; of an answer to HEAD: what it says, UINT64_MAX where it says nothing */
	size_t n_headers;
	struct {
		const char *name,
			*value; /* into the text that was parsed; headers that concern one connection alone are left out */
	} headers[LIMIT_RELAY_HEADERS];
};
/*
 * Parse @text of @len bytes, a head with its empty line; it is cut up in place, and *@ret borrows from it. @head: the
 * request was HEAD. NULL, or what is wrong with it.
 */
const char *relay_head_parse(char *text, size_t len, bool head, struct relay_head *ret);
/* The length of the head that @text begins with, its empty line included; 0: it is not whole yet. */
size_t relay_head_length(const char *text, size_t len);

/* ---- chunks (answer.c) ------------------------------------------------------------------------ */

/* A body in chunks, as far as it has been read. */
struct relay_chunks {
	enum {
		CHUNK_SIZE,
		CHUNK_REST_OF_LINE,
		CHUNK_DATA,
		CHUNK_END,
		CHUNK_TRAILER,
		CHUNKS_OVER
	} state;
	uint64_t left;
	unsigned digits, line; /* of the size; bytes of the line at hand */
};
/*
 * Read of @text what belongs to one piece: *@ret_data of *@ret_len bytes is content (0: none was at
 * hand). Returns how many bytes of @text are done with; the content is among them. -EPROTO: the
 * text is not in chunks.
 */
ssize_t relay_chunks_read(struct relay_chunks *c, const char *text, size_t len,
	const char **ret_data, size_t *ret_len);

#endif
