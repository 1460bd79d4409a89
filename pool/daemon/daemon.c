/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's process: it puts the parts together, answers signals, and takes the parts down
 * again.
 *
 * The order matters at both ends. The pool comes before the sockets: its lock on the state
 * directory decides which of two daemons this is, before anything of the other daemon's is touched.
 * At the end connections are cut first, while the pool is still there, so that what ran for them in
 * a guest is ended. The pool is freed next: what it still had to answer is dropped. Then the server
 * is freed, and then the loop and what else they all use.
 *
 * The sandboxes are left alone. Their keepers see the connection close, and go on.
 */
#include "pool/daemon/daemon.h"

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "pool/api/api.h"
#include "pool/http/http.h"
#include "common/loop.h"
#include "common/metrics.h"
#include "pool/daemon/notify.h"
#include "pool/pool.h"

#define DRAIN_LOOK_MS 10
#define LAST_ROUNDS 3
#define LARGE ((int)(128 * KIB)) /* of an allocation */

struct daemon {
	const char *path; /* of the configuration; NULL: none */
	struct config *config;
	struct loop *loop;
	struct notify *notify;
	struct metrics *metrics;
	struct pool *pool;
	struct api *api;
	struct http_server *http;
	int signals;
	struct loop_watch *watch;
	struct loop_timer *drain;
	int64_t drain_end;
	bool draining, bound; /* bound: the unix socket is ours */
};

/* ---- signals -------------------------------------------------------------------------------- */

static void reload(struct daemon *d)
{
	struct config *new = NULL;
	struct err err = {0};
	int r;

	if (!d->path) {
		log_info("there is no configuration file to read anew");
		return;
	}
	notify_send(
		d->notify, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_now_ns() / 1000));
	r = config_read(d->path, &new, &err);
	if (!r)
		r = config_may_replace(d->config, new, &err);
	if (r < 0) {
		log_error("the configuration stays as it was: %s", err.text);
		config_free(new);
	} else {
		pool_configure(d->pool, new);
		api_configure(d->api, new);
		config_free(d->config);
		d->config = new;
		log_info("%s was read anew", d->path);
	}
	notify_send(d->notify, "READY=1");
}

static void look_drained(void *user)
{
	struct daemon *d = user;
	unsigned n = http_server_awaited(d->http);

	d->drain = NULL;
	if (n && clock_now_ns() < d->drain_end) {
		d->drain = loop_timer(d->loop, clock_deadline(DRAIN_LOOK_MS), look_drained, d);
		return;
	}
	if (n)
		log_warn("%u requests were not answered in time; they are cut", n);
	loop_stop(d->loop);
}

static void end(struct daemon *d, const char *signal_name)
{
	if (d->draining) {
		log_info("%s again: what is open is cut", signal_name);
		loop_stop(d->loop);
		return;
	}
	d->draining = true;
	log_info("%s: %u requests are open; sandboxes go on without the daemon", signal_name,
		http_server_awaited(d->http));
	notify_send(d->notify, "STOPPING=1\nSTATUS=answering open requests");
	api_drain(d->api);
	http_server_quiesce(d->http);
	pool_drain(d->pool);
	d->drain_end = clock_deadline(LIMIT_DRAIN_MS);
	look_drained(d);
}

static void signal_came(void *user, short revents)
{
	struct daemon *d = user;
	struct signalfd_siginfo info;

	(void)revents;
	while (read(d->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			reload(d);
		else
			end(d, info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
	}
}

static int watch_signals(struct daemon *d, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(err, errno, "block signals");
	d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signals < 0)
		return err_sys(err, errno, "watch for signals");
	d->watch = loop_add(d->loop, d->signals, POLLIN, signal_came, d, err);
	return d->watch ? 0 : -EIO;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* Thousands of keepers and clients are descriptors each. */
static void raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &files) < 0)
			log_warn("raise the limit of open files: %s", strerrordesc_np(errno));
	}
}

static int listen_all(struct daemon *d, struct err *err)
{
	cleanup_fd int fd = daemon_listen_unix(d->config->socket, err), tcp = -1;
	int r;

	if (fd < 0)
		return fd;
	d->bound = true;
	r = http_server_listen(d->http, fd, false, err);
	if (r < 0)
		return r;
	steal_fd(&fd);
	if (!d->config->listen)
		return 0;
	tcp = daemon_listen_tcp(d->config->listen, err);
	if (tcp < 0)
		return tcp;
	r = http_server_listen(d->http, tcp, true, err);
	if (!r)
		steal_fd(&tcp);
	return r;
}

static int begin(struct daemon *d, struct err *err)
{
	int r = config_read(d->path, &d->config, err);

	if (!r)
		r = loop_new(&d->loop, err);
	if (!r)
		r = watch_signals(d, err);
	if (r < 0)
		return r;
	d->notify = notify_new(d->loop);
	d->metrics = metrics_new();
	raise_files();
	r = pool_new(d->loop, d->config, &d->pool, err);
	if (!r)
		r = api_new(d->loop, d->pool, d->config, d->metrics, &d->api, err);
	if (!r)
		r = http_server_new(d->loop, api_handle, d->api, &d->http, err);
	return r ? r : listen_all(d, err);
}

static void last_rounds(struct daemon *d)
{
	for (int i = 0; d->loop && i < LAST_ROUNDS; i++)
		loop_once(d->loop, 0, NULL);
}

static void finish(struct daemon *d)
{
	loop_timer_cancel(d->drain);
	loop_remove(d->watch);
	if (d->http)
		http_server_stop(d->http);
	last_rounds(d); /* what was said to guests about that goes out */
	pool_free(d->pool);
	if (d->api)
		api_pool_gone(d->api);
	last_rounds(d); /* guests' ends are heard */
	http_server_free(d->http);
	if (d->bound)
		daemon_unlink(d->config->socket);
	api_free(d->api);
	metrics_free(d->metrics);
	notify_free(d->notify);
	close_fd(&d->signals);
	loop_free(d->loop);
	config_free(d->config);
}

int daemon_run(const char *config_path, struct err *err)
{
	struct daemon d = {.path = config_path, .signals = -1};
	int r;

	/* what one big answer took goes back to the host when it is gone */
	mallopt(M_MMAP_THRESHOLD, LARGE);
	mallopt(M_TRIM_THRESHOLD, LARGE);
	if (!d.path && access(DAEMON_CONFIG, F_OK) == 0)
		d.path = DAEMON_CONFIG;
	r = begin(&d, err);
	if (!r) {
		log_info("the pool answers at %s%s%s", d.config->socket,
			d.config->listen ? " and " : "", d.config->listen ? d.config->listen : "");
		notify_send(d.notify, "READY=1\nSTATUS=answering at %s", d.config->socket);
		r = loop_run(d.loop, err);
	}
	finish(&d);
	return r;
}
