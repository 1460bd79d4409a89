/* SPDX-License-Identifier: Apache-2.0 */
/* Files over HTTP, against the real agent: streams both ways, and the filesystem service. */
#include "common/buffer.h"
#include "tests/unit/envd_rig.h"

#include <signal.h>
#include <sys/stat.h>

#include "common/file.h"
#include "pool/envd/limits.h"

static char work[] = "/tmp/parbake-files-XXXXXX";

/* @format with the directory's name in it, once or twice. */
#define at(format, ...) str_of(format, ##__VA_ARGS__)

__attribute__((format(printf, 1, 2))) static const char *str_of(const char *format, ...)
{
	static char texts[8][8192];
	static unsigned n;
	char *text = texts[n++ % 8];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(texts[0]), format, args);
	va_end(args);
	return text;
}

static void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || file_write_full(fd, bytes, len) < 0)
		peer_die(path);
	close(fd);
}

static bool file_is(const char *path, const void *bytes, size_t len)
{
	cleanup_free char *got = NULL;
	size_t n = 0;

	return file_read_all(AT_FDCWD, path, 64 << 20, &got, &n, NULL) == 0 && n == len &&
		!memcmp(got, bytes, len);
}

static uint8_t *noise(size_t len)
{
	uint8_t *bytes = malloc(len);
	uint32_t x = 12345;

	if (!bytes)
		abort();
	for (size_t i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(x >> 24);
	}
	return bytes;
}

#define BIG (9u << 20)

static void test_get(void)
{
	cleanup_free uint8_t *bytes = noise(BIG);
	struct answer a;
	struct client c;

	write_file(at("%s/big file", work), bytes, BIG);
	a = call("GET", at("/files?path=%s/big%%20file", work), "", "");
	is_int(a.status, 200, "a file");
	ok(a.whole && a.len == BIG && !memcmp(a.body, bytes, BIG), "byte for byte");
	answer_free(&a);
	c = ask("GET", at("/files?path=%s/big%%20file", work), "", "", 0);
	c.take = 5000;
	until(&c, c.len > 100000);
	c.take = SIZE_MAX;
	a = finish(&c);
	ok(a.whole && a.len == BIG && !memcmp(a.body, bytes, BIG),
		"a client that reads slowly gets a file byte for byte");
	answer_free(&a);
	write_file(at("%s/empty", work), "", 0);
	a = call("GET", at("/files?path=%s/empty", work), "", "");
	ok(a.status == 200 && a.whole && a.len == 0, "an empty one");
	answer_free(&a);
	a = call("GET", at("/files?path=%s/none", work), "", "");
	is_int(a.status, 404, "a file that is not there is 404");
	has_str(a.body, "\"code\":404", "a file that is not there is told as JSON");
	answer_free(&a);
	a = call("GET", at("/files?path=%s", work), "", "");
	is_int(a.status, 400, "a directory");
	answer_free(&a);
	a = call("GET", "/files", "", "");
	is_int(a.status, 400, "no path");
	answer_free(&a);
	/* a client that goes in the middle takes its transfer along */
	c = ask("GET", at("/files?path=%s/big%%20file", work), "", "", 0);
	c.take = 5000;
	until(&c, c.len > 10000);
	leave(&c);
	ok(until(NULL, http_open(rig.server) == 0), "a client that leaves is forgotten");
}

#define RAW "Content-Type: application/octet-stream\r\n"

static void test_put(void)
{
	cleanup_free uint8_t *bytes = noise(BIG);
	struct client c;
	struct answer a;
	struct stat st;

	c = ask("POST", at("/files?path=%s/a/b/c", work), RAW, bytes, BIG);
	a = finish(&c);
	is_int(a.status, 200, "an upload, its directories made");
	is_str(a.body, at("[{\"name\":\"c\",\"path\":\"%s/a/b/c\",\"type\":\"file\"}]", work),
		"an upload's answer tells what was written");
	ok(file_is(at("%s/a/b/c", work), bytes, BIG), "byte for byte");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/a/empty", work), RAW, "");
	ok(a.status == 200 && stat(at("%s/a/empty", work), &st) == 0 && st.st_size == 0,
		"an empty one");
	answer_free(&a);
	/* cut in the middle: what was there is */
	c = enter();
	say(&c,
		at("POST /files?path=%s/a/b/c HTTP/1.1\r\nHost: x\r\n" RAW
		   "Content-Length: 1000\r\n\r\nhalf",
			work));
	until(&c, http_open(rig.server) == 1);
	leave(&c);
	until(NULL, http_open(rig.server) == 0);
	a = call("GET", at("/files?path=%s/a/b/c", work), "", "");
	ok(a.len == BIG && file_is(at("%s/a/b/c", work), bytes, BIG),
		"an upload that is cut changes nothing");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/a/b", work), RAW, "x");
	is_int(a.status, 400, "onto a directory");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/x&username=nobody-such", work), RAW, "x");
	is_int(a.status, 401, "an upload as a user that does not exist is refused");
	has_str(a.body, "nobody-such", "which is named");
	answer_free(&a);
	a = call("POST", "/files?path=/proc/nothing/here", RAW, "x");
	ok(a.status >= 400 && a.status < 600, "where none can be (%d)", a.status);
	answer_free(&a);
	a = call("POST", "/files", RAW, "x");
	is_int(a.status, 400, "no path");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/x", work), "Content-Type: text/plain\r\n", "x");
	is_int(a.status, 400, "an upload of another content type is refused");
	answer_free(&a);
}

/* What names nobody is the template's user's; an empty name is the agent's own choice. */
static void test_user(void)
{
	struct answer a;

	rig.target.user = "nobody-such";
	a = call("POST", at("/files?path=%s/u", work), RAW, "x");
	is_int(a.status, 401, "a template's user that is not there is refused");
	has_str(a.body, "nobody-such", "a template's user that is not there is named");
	answer_free(&a);
	a = call("GET", "/files?path=u", "", "");
	is_int(a.status, 404, "a relative path is looked up");
	has_str(a.body, "/home/nobody-such/u", "a relative path begins at that user's home");
	answer_free(&a);
	a = call("GET", "/files?path=~/u&username=root", "", "");
	has_str(a.body, "/root/u", "a request that names a user begins at that one's home");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/u&username=", work), RAW, "x");
	is_int(a.status, 200, "an empty name is the agent's own user");
	answer_free(&a);
	rig.target.user = NULL;
}

#define FORM "Content-Type: multipart/form-data; boundary=XX\r\n"

static void test_form(void)
{
	static const char head[] =
		"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"n\"\r\n\r\n";
	cleanup_free uint8_t *bytes = noise(BIG);
	struct buffer body = {0};
	struct client c;
	struct answer a = call("POST", at("/files?path=%s/form", work), FORM,
		"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"n.txt\"\r\n\r\n"
		"con\r\n--X\r\ntent\r\n--XX--\r\n");

	is_int(a.status, 200, "a form's file");
	ok(file_is(at("%s/form", work), "con\r\n--X\r\ntent", 14),
		"the file of a form comes without the form's framing");
	answer_free(&a);
	a = call("POST", "/files", FORM,
		at("--XX\r\nContent-Disposition: form-data; name=\"file\"; "
		   "filename=\"%s/named\"\r\n\r\n"
		   "x\r\n--XX--\r\n",
			work));
	is_int(a.status, 200, "at the place its name says");
	ok(file_is(at("%s/named", work), "x", 1), "where it is");
	answer_free(&a);
	buffer_append(&body, head, strlen(head));
	buffer_append(&body, bytes, BIG);
	buffer_append(&body, "\r\n--XX--\r\n", 10);
	c = ask("POST", at("/files?path=%s/bigform", work), FORM, body.bytes + body.head, body.len);
	a = finish(&c);
	ok(a.status == 200 && file_is(at("%s/bigform", work), bytes, BIG),
		"a big one, byte for byte");
	answer_free(&a);
	buffer_free(&body);
	a = call("POST", at("/files?path=%s/x", work), FORM,
		"--XX\r\nContent-Disposition: form-data; name=\"other\"; "
		"filename=\"n\"\r\n\r\nx\r\n--XX--\r\n");
	is_int(a.status, 400, "a form with another field is refused");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/x", work), FORM, "--XX--\r\n");
	is_int(a.status, 400, "a form without a file is refused");
	answer_free(&a);
	ok(access(at("%s/x", work), F_OK) < 0, "no file was made of the forms that were refused");
}

#define FILE_PART(name, text)                                                                      \
	"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" name                  \
	"\"\r\n\r\n" text "\r\n"

/* All files of a form are written, or it is said which were. */
static void test_many_files(void)
{
	cleanup_free uint8_t *bytes = noise(BIG);
	struct buffer body = {0};
	const char *text;
	struct client c;
	struct answer a;

	text = at(FILE_PART("%s/m/one", "1") FILE_PART("%s/m/empty", ""), work, work);
	buffer_append(&body, text, strlen(text));
	text = at("--XX\r\nContent-Disposition: form-data; name=\"file\"; "
		  "filename=\"%s/m/big\"\r\n\r\n",
		work);
	buffer_append(&body, text, strlen(text));
	buffer_append(&body, bytes, BIG);
	text = at("\r\n" FILE_PART("%s/m/three", "33") "--XX--\r\n", work);
	buffer_append(&body, text, strlen(text));
	c = ask("POST", "/files", FORM, body.bytes + body.head, body.len);
	a = finish(&c);
	is_int(a.status, 200, "a form with four files");
	text = strstr(a.body, "/m/one");
	text = text ? strstr(text, "/m/empty") : NULL;
	text = text ? strstr(text, "/m/big") : NULL;
	ok(text && strstr(text, "/m/three"), "each is told, in its order");
	ok(file_is(at("%s/m/one", work), "1", 1) && file_is(at("%s/m/empty", work), "", 0) &&
			file_is(at("%s/m/big", work), bytes, BIG) &&
			file_is(at("%s/m/three", work), "33", 2),
		"each file of a form is there, byte for byte");
	answer_free(&a);
	buffer_free(&body);
	a = call("POST", at("/files?path=%s/m/x", work), FORM,
		FILE_PART("a", "A") FILE_PART("b", "B") "--XX--\r\n");
	is_int(a.status, 400, "two files for one ?path=");
	has_str(a.body, "two files of the form go there, and the first has been written",
		"the error tells that the first of two files was written");
	ok(file_is(at("%s/m/x", work), "A", 1), "the first is there");
	answer_free(&a);
	a = call("POST", "/files", FORM,
		at(FILE_PART("%s/m/y", "Y") FILE_PART("%s/m", "D")
				FILE_PART("%s/m/z", "Z") "--XX--\r\n",
			work, work, work));
	is_int(a.status, 400, "a form of which one file cannot be written fails");
	has_str(a.body, "the files before it in the form are written",
		"what has been done is told");
	ok(file_is(at("%s/m/y", work), "Y", 1) && access(at("%s/m/z", work), F_OK) < 0,
		"no file after the one that failed is there");
	answer_free(&a);
}

/* What @bytes are as gzip (RFC 1952): stored blocks. */
static struct buffer gzip(const uint8_t *bytes, size_t len)
{
	static const uint8_t head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
	struct buffer b = {0};
	uint32_t crc = UINT32_MAX, n = (uint32_t)len;

	buffer_append(&b, head, sizeof(head));
	for (size_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	crc = ~crc;
	for (size_t i = 0; i <= len; i += 65535) {
		uint16_t part = (uint16_t)(len - i < 65535 ? len - i : 65535),
			 not = (uint16_t)~part;
		uint8_t last = i + 65535 > len;

		buffer_append(&b, &last, 1);
		buffer_append(&b, &part, 2);
		buffer_append(&b, &not, 2);
		buffer_append(&b, bytes + i, part);
	}
	buffer_append(&b, &crc, 4);
	buffer_append(&b, &n, 4);
	return b;
}

#define GZIP RAW "Content-Encoding: gzip\r\n"

static void test_gzip(void)
{
	cleanup_free uint8_t *bytes = noise(BIG);
	struct buffer b = gzip(bytes, BIG), two;
	struct client c;
	struct answer a;

	c = ask("POST", at("/files?path=%s/unzipped", work), GZIP, b.bytes + b.head, b.len);
	a = finish(&c);
	is_int(a.status, 200, "a gzip body");
	ok(file_is(at("%s/unzipped", work), bytes, BIG), "a gzip body is stored unpacked");
	answer_free(&a);
	c = ask("POST", at("/files?path=%s/cut", work), GZIP, b.bytes + b.head, b.len - 9);
	a = finish(&c);
	is_int(a.status, 400, "a gzip upload that is cut short is refused");
	has_str(a.body, "ends before its end",
		"the error of a gzip upload that is cut short says so");
	ok(access(at("%s/cut", work), F_OK) < 0, "a gzip upload that is cut short makes no file");
	answer_free(&a);
	b.bytes[b.head + b.len / 2] ^= 1;
	c = ask("POST", at("/files?path=%s/cut", work), GZIP, b.bytes + b.head, b.len);
	a = finish(&c);
	is_int(a.status, 400, "a gzip upload with a wrong byte is refused");
	ok(access(at("%s/cut", work), F_OK) < 0, "makes none either");
	answer_free(&a);
	buffer_free(&b);
	b = gzip(bytes, 10);
	two = gzip(bytes + 10, 5);
	buffer_append(&b, two.bytes + two.head, two.len);
	c = ask("POST", at("/files?path=%s/two", work), GZIP, b.bytes + b.head, b.len);
	a = finish(&c);
	ok(a.status == 200 && file_is(at("%s/two", work), bytes, 15), "two members are one file");
	answer_free(&a);
	buffer_free(&b);
	buffer_free(&two);
	a = call("POST", at("/files?path=%s/plain", work), GZIP, "plain");
	is_int(a.status, 400, "what is no gzip");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/plain", work), RAW "Content-Encoding: br\r\n", "plain");
	is_int(a.status, 415, "an encoding that is not decoded");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/plain", work), FORM "Content-Encoding: gzip\r\n", "x");
	is_int(a.status, 415, "a form in gzip");
	answer_free(&a);
	a = call("POST", at("/files?path=%s/plain", work), RAW "Content-Encoding: identity\r\n",
		"plain");
	ok(a.status == 200 && file_is(at("%s/plain", work), "plain", 5),
		"a form without an encoding is stored");
	answer_free(&a);
}

/* ---- filesystem.Filesystem ---------------------------------------------------------------- */

static struct answer fs(const char *method, const char *body)
{
	return post(at("/filesystem.Filesystem/%s", method), body);
}

static void test_filesystem(void)
{
	struct answer a = fs("MakeDir", at("{\"path\":\"%s/dir/sub/\"}", work));
	struct stat st;

	is_int(a.status, 200, "MakeDir makes a directory");
	has_str(a.body, "\"type\":\"FILE_TYPE_DIRECTORY\"", "a directory");
	ok(stat(at("%s/dir/sub", work), &st) == 0 && S_ISDIR(st.st_mode),
		"MakeDir makes the parents, too");
	answer_free(&a);
	a = fs("MakeDir", at("{\"path\":\"%s/dir/sub\"}", work));
	is_int(a.status, 409, "MakeDir refuses a directory that is there");
	has_str(a.body, "already_exists", "MakeDir's error has the SDKs' form");
	answer_free(&a);
	write_file(at("%s/dir/f", work), "12345", 5);
	chmod(at("%s/dir/f", work), 04751);
	if (symlink("f", at("%s/dir/link", work)) < 0)
		peer_die("symlink");
	a = fs("Stat", at("{\"path\":\"%s/dir/f\"}", work));
	is_int(a.status, 200, "Stat answers");
	has_str(a.body, "\"name\":\"f\"", "Stat tells the name");
	has_str(a.body, "\"size\":\"5\"", "Stat tells the size");
	has_str(a.body, "\"permissions\":\"-rwsr-x--x\"", "Stat tells the mode");
	has_str(a.body, "\"modifiedTime\":\"20", "Stat tells the time");
	answer_free(&a);
	a = fs("Stat", at("{\"path\":\"%s/dir/link\"}", work));
	has_str(a.body, at("\"symlinkTarget\":\"%s/dir/f\"", work), "a link tells where it leads");
	has_str(a.body, "\"type\":\"FILE_TYPE_FILE\"", "Stat of a link tells what it leads to");
	has_str(a.body, "\"owner\":\"root\"", "Stat tells the owner by name");
	answer_free(&a);
	if (symlink("/no/such", at("%s/dir/dead", work)) < 0)
		peer_die("symlink");
	a = fs("Stat", at("{\"path\":\"%s/./dir//dead/\"}", work));
	has_str(a.body, at("\"symlinkTarget\":\"%s/dir/dead\"", work),
		"Stat of a link that leads nowhere is of the link itself");
	has_str(a.body, "FILE_TYPE_UNSPECIFIED", "Stat of a link that leads nowhere tells no type");
	has_str(a.body, at("\"path\":\"%s/dir/dead\"", work), "a path is told clean");
	answer_free(&a);
	unlink(at("%s/dir/dead", work));
	a = fs("Stat", at("{\"path\":\"%s/none\"}", work));
	is_int(a.status, 404, "Stat of a path that is not there is an error");
	has_str(a.body, "\"code\":\"not_found\"", "Stat's error has the SDKs' form");
	answer_free(&a);
	write_file(at("%s/dir/sub/deep", work), "", 0);
	a = fs("ListDir", at("{\"path\":\"%s/dir\"}", work));
	is_int(a.status, 200, "ListDir answers");
	ok(strstr(a.body, "\"f\"") && strstr(a.body, "\"link\"") && strstr(a.body, "\"sub\"") &&
			!strstr(a.body, "deep"),
		"what is in it");
	answer_free(&a);
	a = fs("ListDir", at("{\"path\":\"%s/dir\",\"depth\":2}", work));
	has_str(a.body, at("\"path\":\"%s/dir/sub/deep\"", work),
		"ListDir lists subdirectories to the depth that was asked for");
	answer_free(&a);
	write_file(at("%s/dir/sub.x", work), "", 0);
	chown(at("%s/dir/sub.x", work), 12345, 54321) < 0 ? peer_die("chown") : (void)0;
	answer_free(&a);
	a = fs("ListDir", at("{\"path\":\"%s/dir\",\"depth\":2}", work));
	{
		static const char *const order[] = {
			"/dir/f\"", "/dir/link\"", "/dir/sub\"", "/dir/sub/deep\"", "/dir/sub.x\""};
		const char *p = a.body;

		for (size_t i = 0; p && i < sizeof(order) / sizeof(*order); i++)
			p = strstr(p, at("\"path\":\"%s%s", work, order[i]));
		ok(p != NULL, "by name, what is in a directory right behind it");
	}
	has_str(a.body, at("\"symlinkTarget\":\"%s/dir/f\"", work),
		"links lead somewhere here, too");
	has_str(a.body, "\"owner\":\"12345\"", "who has no name is a number");
	has_str(a.body, "\"group\":\"54321\"", "a group likewise");
	answer_free(&a);
	unlink(at("%s/dir/sub.x", work));
	a = fs("ListDir", at("{\"path\":\"%s/dir/f\"}", work));
	is_int(a.status, 400, "ListDir of a file is an error");
	answer_free(&a);
	a = fs("Move", at("{\"source\":\"%s/dir/f\",\"destination\":\"%s/new/g\"}", work, work));
	is_int(a.status, 200, "Move moves a file");
	ok(access(at("%s/new/g", work), F_OK) == 0 && access(at("%s/dir/f", work), F_OK) < 0,
		"a moved file is at its new place alone");
	answer_free(&a);
	a = fs("Move", at("{\"source\":\"%s/dir/f\",\"destination\":\"%s/new/g\"}", work, work));
	is_int(a.status, 404, "not twice");
	answer_free(&a);
	a = fs("Remove", at("{\"path\":\"%s/dir\"}", work));
	ok(a.status == 200 && access(at("%s/dir", work), F_OK) < 0, "Remove, with what is in it");
	answer_free(&a);
	a = fs("Remove", at("{\"path\":\"%s/dir\"}", work));
	is_int(a.status, 200, "what is gone may be removed");
	answer_free(&a);
	a = fs("Stat", "{}");
	is_int(a.status, 400, "no path");
	answer_free(&a);
	a = fs("Stat", "{\"path\":7}");
	is_int(a.status, 400, "a path that is none");
	answer_free(&a);
	a = fs("ListDir", "{\"path\":\"/\",\"depth\":-1}");
	is_int(a.status, 400, "a depth that is none");
	answer_free(&a);
}

/* More than a listing may hold. */
static void test_many(void)
{
	struct answer a;

	mkdir(at("%s/many", work), 0755);
	for (int i = 0; i <= LIMIT_ENVD_ENTRIES; i++)
		write_file(at("%s/many/%d", work, i), "", 0);
	a = fs("ListDir", at("{\"path\":\"%s/many\"}", work));
	is_int(a.status, 429, "a directory of too many entries is refused");
	has_str(a.body, "10000", "the error names the bound on entries");
	answer_free(&a);
	unlink(at("%s/many/0", work));
	a = fs("ListDir", at("{\"path\":\"%s/many\"}", work));
	is_int(a.status, 200, "a directory of as many entries as may be is listed");
	has_str(a.body, at("\"path\":\"%s/many/10000\"", work), "ListDir lists every entry");
	answer_free(&a);
	a = fs("Remove", at("{\"path\":\"%s/many\"}", work));
	answer_free(&a);
}

int main(void)
{
	struct answer a;

	signal(SIGPIPE, SIG_IGN);
	if (!rig_start()) {
		tap_skip("the agent has not been built");
		return tap_done();
	}
	if (!mkdtemp(work))
		peer_die(work);
	test_get();
	test_put();
	test_user();
	test_form();
	test_many_files();
	test_gzip();
	test_filesystem();
	test_many();
	a = post("/exec", at("{\"argv\":[\"rm\",\"-rf\",\"%s\"]}", work));
	answer_free(&a);
	ok(access(work, F_OK) < 0, "the test's files are removed");
	rig_stop();
	return tap_done();
}
