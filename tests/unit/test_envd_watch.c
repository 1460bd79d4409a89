/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that are watched over HTTP, and metadata of files, against the real agent. */
#include "common/buffer.h"
#include "tests/unit/envd_rig.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define FS "/filesystem.Filesystem/"
#define RAW "Content-Type: application/octet-stream\r\n"

static char work[] = "/tmp/parbake-watch-XXXXXX";

/* @format with what follows in it; good until eight later. */
__attribute__((format(printf, 1, 2))) static const char *at(const char *format, ...)
{
	static char texts[8][4096];
	static unsigned n;
	char *text = texts[n++ % 8];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(texts[0]), format, args);
	va_end(args);
	return text;
}

static void make(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		peer_die(path);
	close(fd);
}

/* Of the one watcher that is asked. */
static char id[64];

static int watch(const char *path, const char *more)
{
	struct answer a = post(FS "CreateWatcher", at("{\"path\":\"%s\"%s}", path, more));
	int status = a.status;

	if (status != 200)
		printf("# %.300s\n", a.body);
	else if (sscanf(a.body, "{\"watcherId\":\"%63[0-9a-f]\"}", id) != 1)
		status = -1;
	answer_free(&a);
	return status;
}

static struct answer events(void)
{
	return post(FS "GetWatcherEvents", at("{\"watcherId\":\"%s\"}", id));
}

static int stop(void)
{
	struct answer a = post(FS "RemoveWatcher", at("{\"watcherId\":\"%s\"}", id));
	int status = a.status;

	answer_free(&a);
	return status;
}

/* Ask the watcher until @text has been among what it told; what it told before that is in `heard`. */
static struct buffer heard;

static bool hear(const char *text)
{
	int64_t deadline = clock_deadline(PEER_DEADLINE_MS);

	buffer_free(&heard);
	while (clock_left_ms(deadline) > 0) {
		struct answer a = events();

		buffer_append(&heard, a.body, a.len);
		answer_free(&a);
		if (memmem(heard.bytes + heard.head, heard.len, text, strlen(text)))
			return true;
	}
	printf("# heard: %.*s\n", (int)heard.len, (char *)heard.bytes + heard.head);
	return false;
}

static bool was_heard(const char *text)
{
	return memmem(heard.bytes + heard.head, heard.len, text, strlen(text)) != NULL;
}

#define EVENT(name, type) "\"name\":\"" name "\",\"type\":\"EVENT_TYPE_" type "\""

static void test_watcher(void)
{
	struct answer a;

	is_int(watch(at("%s/none", work), ""), 404,
		"a directory that is not there cannot be watched");
	make(at("%s/file", work));
	is_int(watch(at("%s/file", work), ""), 400, "a file cannot be watched");
	is_int(watch("", ""), 400, "a watcher needs a path");
	mkdir(at("%s/d", work), 0755);
	mkdir(at("%s/d/below", work), 0755);
	is_int(watch(at("%s/d", work), ""), 200, "a directory is watched");
	a = events();
	is_str(a.body, "{\"events\":[]}", "a new watcher has heard nothing");
	answer_free(&a);
	make(at("%s/d/below/unheard", work));
	make(at("%s/d/new", work));
	ok(hear(EVENT("new", "CREATE")), "a file that is made is told");
	ok(!was_heard("unheard") && !was_heard("entry"), "what happens below is not told unasked");
	chmod(at("%s/d/new", work), 0600);
	ok(hear(EVENT("new", "CHMOD")), "new permissions are told");
	rename(at("%s/d/new", work), at("%s/d/other", work));
	ok(hear(EVENT("other", "CREATE")) && was_heard(EVENT("new", "RENAME")),
		"a rename is told under both names");
	unlink(at("%s/d/other", work));
	ok(hear(EVENT("other", "REMOVE")), "a removal is told");
	a = call("POST", at("/files?path=%s/d/up", work), RAW, "x");
	answer_free(&a);
	ok(hear(EVENT("up", "WRITE")) && was_heard(EVENT("up", "CREATE")),
		"an upload is told as a file made and written");
	ok(!was_heard(".parbake"), "the upload's own file is not told");
	a = call("POST", at("/files?path=%s/d/up", work), RAW, "y");
	answer_free(&a);
	ok(hear(EVENT("up", "WRITE")) && !was_heard("CREATE"),
		"an upload over a file is a write alone");
	rig_reconnect();
	make(at("%s/d/later", work));
	ok(hear(EVENT("later", "CREATE")), "a watcher outlives the channel");
	is_int(stop(), 200, "a watcher is removed");
	is_int(stop(), 404, "a watcher is removed once");
	a = events();
	is_int(a.status, 404, "a watcher that is removed has no events");
	answer_free(&a);
}

static void test_recursive(void)
{
	is_int(watch(at("%s/d", work), ",\"recursive\":true,\"includeEntry\":true"), 200,
		"a directory is watched with all below");
	make(at("%s/d/below/one", work));
	ok(hear(EVENT("below/one", "CREATE")), "a file below is told");
	ok(was_heard("\"entry\":{") && was_heard(at("\"path\":\"%s/d/below/one\"", work)),
		"an event tells what the file is");
	mkdir(at("%s/d/a", work), 0755);
	mkdir(at("%s/d/a/b", work), 0755);
	make(at("%s/d/a/b/two", work));
	ok(hear(EVENT("a/b/two", "CREATE")), "what is made in a new directory is told");
	rename(at("%s/d/a", work), at("%s/moved", work));
	ok(hear(EVENT("a", "RENAME")), "a directory that leaves is told");
	make(at("%s/moved/b/unheard", work));
	make(at("%s/d/three", work));
	ok(hear(EVENT("three", "CREATE")) && !was_heard("unheard"),
		"a directory that left is watched no more");
	is_int(stop(), 200, "the watcher of all below is removed");
}

/* More happens than is asked for: what is lost is told, and nothing else is harmed. */
static void test_flood(void)
{
	char name[200];
	struct answer a;
	bool lost = false;
	int64_t deadline = clock_deadline(PEER_DEADLINE_MS);

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	mkdir(at("%s/flood", work), 0755);
	is_int(watch(at("%s/flood", work), ""), 200, "a watcher begins that nobody asks");
	for (unsigned i = 0; i < 20000; i++) {
		const char *path = at("%s/flood/%s%u", work, name, i);

		make(path);
		unlink(path);
	}
	while (!lost && clock_left_ms(deadline) > 0) {
		a = events();
		lost = a.status == 500 && strstr(a.body, "events were lost");
		answer_free(&a);
	}
	ok(lost, "a watcher says that events were lost");
	make(at("%s/flood/after", work));
	ok(hear(EVENT("after", "CREATE")), "a watcher that lost events goes on");
	is_int(stop(), 200, "a watcher that lost events is removed");
}

static void test_many(void)
{
	static char ids[80][64];
	unsigned n = 0;
	int status = 200;

	for (; n < 80 && (status = watch(work, "")) == 200; n++)
		strcpy(ids[n], id);
	is_int(status, 429, "too many watchers are refused");
	is_int((int)n, 64, "there may be 64 watchers");
	while (n--) {
		strcpy(id, ids[n]);
		status = stop();
	}
	is_int(status, 200, "all watchers are removed");
}

static void test_stream(void)
{
	struct client c;
	struct answer a;

	c = ask_stream(FS "WatchDir", CONNECT, at("{\"path\":\"%s/none\"}", work));
	a = finish(&c);
	has_str(a.body + ENVD_ENVELOPE_HEAD, "not_found",
		"a stream of a directory that is not there ends with an error");
	answer_free(&a);
	c = ask_stream(FS "WatchDir", CONNECT, at("{\"path\":\"%s/d\"}", work));
	ok(until(&c, says(&c, "{\"start\":{}}")), "a stream of events begins");
	make(at("%s/d/streamed", work));
	ok(until(&c, says(&c, EVENT("streamed", "CREATE"))), "a stream tells an event");
	leave(&c);
	ok(until(NULL, http_open(rig.server) == 0), "a stream ends when its client leaves");
	c = ask_stream(FS "WatchDir", CONNECT "Connect-Timeout-Ms: 300\r\n",
		at("{\"path\":\"%s/d\"}", work));
	a = finish(&c);
	ok(memmem(a.body, a.len, "deadline_exceeded", 17), "a stream ends when its time is over");
	answer_free(&a);
}

/* A client that does not read, and a guest that does not end. */
static void test_slow(void)
{
	struct client c, slow;
	struct answer a;

	slow = ask_stream(FS "WatchDir", CONNECT, at("{\"path\":\"%s/flood\"}", work));
	ok(until(&slow, says(&slow, "{\"start\":{}}")), "a stream begins that is not read");
	a = post("/exec",
		at("{\"cmd\":\"cd %s/flood && i=0; while [ $i -lt 100000 ]; do : >f$((i%%2)); "
		   "i=$((i+1)); done\"}",
			work));
	is_int(a.status, 200, "a command makes events without end");
	answer_free(&a);
	c = ask_json(FS "Stat", at("{\"path\":\"%s\"}", work));
	a = finish(&c);
	is_int(a.status, 200, "events that nobody reads harm no other request");
	answer_free(&a);
	leave(&slow);
	ok(until(NULL, http_open(rig.server) == 0), "a stream that was not read is forgotten");
}

static void test_metadata(void)
{
	const char *path = at("%s/marked", work);
	char big[3200] = "";
	bool can;
	struct answer a;

	make(path);
	can = setxattr(path, "user.e2b.try", "", 0, 0) == 0;
	a = call("POST", at("/files?path=%s/m", work),
		RAW "X-Metadata-Team: a=b c\r\nx-metadata-n: 1\r\n", "x");
	is_int(a.status, can ? 200 : 501, "an upload with metadata is answered");
	has_str(a.body, can ? "\"metadata\":{\"n\":\"1\",\"team\":\"a=b c\"}" : "keep metadata",
		can ? "the upload's answer tells the metadata" : "a file system without is named");
	answer_free(&a);
	a = post(FS "Stat", at("{\"path\":\"%s/m\"}", work));
	ok(can == !!strstr(a.body, "\"metadata\":{\"n\":\"1\",\"team\":\"a=b c\"}"),
		"Stat tells the metadata");
	answer_free(&a);
	a = post(FS "ListDir", at("{\"path\":\"%s\"}", work));
	ok(can == !!strstr(a.body, "\"metadata\":{\"n\":\"1\",\"team\":\"a=b c\"}"),
		"ListDir tells the metadata");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/m", work), RAW, "y");
	is_int(a.status, 200, "an upload over it succeeds");
	answer_free(&a);
	a = post(FS "Stat", at("{\"path\":\"%s/m\"}", work));
	ok(!strstr(a.body, "metadata"), "an upload over it clears the metadata");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/m", work), RAW "X-Metadata-K: \xc3\xa4\r\n", "x");
	is_int(a.status, 400, "metadata that is not ASCII is refused");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/m", work), RAW "X-Metadata-: v\r\n", "x");
	is_int(a.status, 400, "metadata without a name is refused");
	answer_free(&a);
	memset(big, 'v', sizeof(big) - 1);
	a = call("POST", at("/files?path=%s/m", work), at(RAW "X-Metadata-K: %s\r\n", big), "x");
	is_int(a.status, 400, "too much metadata is refused");
	answer_free(&a);
	a = post("/exec", at("{\"cmd\":\"cat %s/m\"}", work));
	has_str(a.body, "\"stdout\":\"y\"", "a refused upload changes nothing");
	answer_free(&a);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	if (!mkdtemp(work))
		peer_die(work);
	if (!rig_start()) {
		tap_skip("the agent has not been built");
		return tap_done();
	}
	test_watcher();
	test_recursive();
	test_flood();
	test_many();
	test_stream();
	test_slow();
	test_metadata();
	rig_stop();
	(void)!system(at("rm -r %s", work));
	buffer_free(&heard);
	return tap_done();
}
