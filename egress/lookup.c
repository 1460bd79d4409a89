/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking names up by the host's resolver.
 *
 * Each lookup is a thread, because getaddrinfo(3) blocks and nothing else asks everything that the
 * host is set up to ask. The thread and the connection that waits for it share the lookup;
 * whichever lets go last frees it, so that nobody has to wait for a slow name server. The number of
 * threads is bounded for the whole process, for each sandbox and for each key, abandoned ones
 * included. So a sandbox that looks up names that nobody answers for does not keep others from
 * looking up theirs.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "egress/limits.h"
#include "common/share.h"
#include "egress/head.h"

/* Who has lookups running. */
struct asker {
	LIST_ENTRY(asker) link;
	unsigned running;
	char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* under it */
static LIST_HEAD(, asker) askers = LIST_HEAD_INITIALIZER(askers);
static unsigned running;

struct proxy_lookup {
	atomic_int refs;
	int event;
	char host[256], port[8];
	struct addrinfo *found;
	int rc; /* of getaddrinfo(3) */
	struct asker *sandbox, *key;
};

/* ---- shares ------------------------------------------------------------------------------- */

static struct asker *asker_get(const char *kind, const char *name)
{
	size_t n = strlen(kind);
	struct asker *a;

	LIST_FOREACH(a, &askers, link) {
		if (strncmp(a->name, kind, n) == 0 && strcmp(a->name + n, name) == 0)
			return a;
	}
	a = calloc(1, sizeof(*a) + n + strlen(name) + 1);
	if (!a)
		abort();
	stpcpy(stpcpy(a->name, kind), name);
	LIST_INSERT_HEAD(&askers, a, link);
	return a;
}

static void asker_put(struct asker *asker)
{
	if (asker->running)
		return;
	LIST_REMOVE(asker, link);
	free(asker);
}

static bool share_take(struct proxy_lookup *l, const struct proxy_asker *who)
{
	bool may;

	pthread_mutex_lock(&lock);
	l->sandbox = asker_get("sandbox ", who->sandbox ? who->sandbox : "");
	l->key = asker_get("key ", who->key ? who->key : "");
	may = l->sandbox->running < LIMIT_PROXY_LOOKUPS_EACH &&
		share_may_take(
			l->key->running, running, LIMIT_PROXY_LOOKUPS, LIMIT_PROXY_LOOKUPS_EACH);
	l->sandbox->running += may;
	l->key->running += may;
	running += may;
	if (!may) {
		asker_put(l->sandbox);
		asker_put(l->key);
	}
	pthread_mutex_unlock(&lock);
	return may;
}

static void share_give(struct proxy_lookup *l)
{
	pthread_mutex_lock(&lock);
	running--;
	l->sandbox->running--;
	l->key->running--;
	asker_put(l->sandbox);
	asker_put(l->key);
	pthread_mutex_unlock(&lock);
}

/* ---- threads ------------------------------------------------------------------------------ */

static void lookup_run(struct proxy_lookup *l, int flags)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | flags};

	l->rc = getaddrinfo(l->host, l->port, &hints, &l->found);
	if (l->rc)
		l->found = NULL;
}

static void lookup_unref(struct proxy_lookup *l)
{
	if (atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	if (l->found)
		freeaddrinfo(l->found);
	close(l->event);
	free(l);
}

static void *lookup_thread(void *arg)
{
	struct proxy_lookup *l = arg;

	lookup_run(l, 0);
	/* whoever learns that this lookup is done may start the next */
	share_give(l);
	eventfd_write(l->event, 1);
	lookup_unref(l);
	return NULL;
}

/* A detached thread that takes no signals. */
static int lookup_spawn(struct proxy_lookup *l)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, lookup_thread, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

int proxy_lookup_start(
	const char *host, uint16_t port, const struct proxy_asker *who, struct proxy_lookup **ret)
{
	struct proxy_lookup *l = calloc(1, sizeof(*l));
	char name[256];
	bool literal = false;

	if (!l)
		abort();
	atomic_init(&l->refs, 1);
	l->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->event < 0) {
		free(l);
		return -EMFILE;
	}
	snprintf(l->host, sizeof(l->host), "%s", host);
	snprintf(l->port, sizeof(l->port), "%u", port);
	proxy_host_parse(host, strlen(host), name, &literal);
	if (literal) {
		lookup_run(l, AI_NUMERICHOST);
		eventfd_write(l->event, 1);
		*ret = l;
		return 0;
	}
	if (!share_take(l, who)) {
		lookup_unref(l);
		return -EAGAIN;
	}
	atomic_fetch_add(&l->refs, 1);
	if (lookup_spawn(l) != 0) {
		share_give(l);
		atomic_fetch_sub(&l->refs, 1);
		lookup_unref(l);
		return -EAGAIN;
	}
	*ret = l;
	return 0;
}

int proxy_lookup_fd(const struct proxy_lookup *l)
{
	return l->event;
}

int proxy_lookup_result(
	const struct proxy_lookup *l, const struct addrinfo **ret, const char **ret_why)
{
	eventfd_t count;

	/* pairs with the thread's write: what it found is visible after this */
	if (eventfd_read(l->event, &count) < 0) {
		*ret_why = "not done";
		return -1;
	}
	if (l->rc) {
		*ret_why = gai_strerror(l->rc);
		return -1;
	}
	*ret = l->found;
	return 0;
}

void proxy_lookup_free(struct proxy_lookup *l)
{
	if (l)
		lookup_unref(l);
}
