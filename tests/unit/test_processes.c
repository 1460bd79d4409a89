/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a guest's processes: reading /proc's texts, hostile ones too, and what differs between two records. */
#include "bake/processes.h"
#include "common/str.h"
#include "prove/processes.h"
#include "tests/unit/tap.h"

#define HEAD(path) "7f1c1000-7f1c2000 r-xp 00001000 fe:00 12345                      " path "\n"

static void is_json(json_t *got, const char *want, const char *name)
{
	cleanup_free char *text = got ? json_text(got) : str_dup("(null)");

	is_str(text, want, "%s", name);
	json_decref(got);
}

static void test_one(void)
{
	static const char command[] = "python3\0-c\0pass";
	struct lent lent = {0};

	is_json(processes_one(command, sizeof(command),
			HEAD("/usr/lib/libc.so.6") "Size:  4 kB\nRss:      8 kB\nAnonymous:    4 "
						   "kB\n" HEAD(
							   "/usr/bin/python3 (deleted)") "Rss: "
											 "16 "
											 "kB\nA"
											 "nonym"
											 "ous: "
											 "0 "
											 "kB"
											 "\n" HEAD("/usr/lib/libc.so.6") "Rss: 4 kB\n" HEAD(
												 "["
												 "h"
												 "e"
												 "a"
												 "p"
												 "]") "Rss: 100 kB\nAnonymous: 100 kB\nVmFlags: rd wr\n"
												      "7ffd1000-7ffd2000 rw-p 00000000 00:00 0 \nRss: 1 kB\n",
			NULL),
		"{\"anonymous_bytes\":106496,\"command\":\"python3 -c pass\",\"files\":["
		"{\"path\":\"/usr/bin/python3 (deleted)\",\"resident_bytes\":16384},"
		"{\"path\":\"/usr/lib/libc.so.6\",\"resident_bytes\":12288}],"
		"\"resident_bytes\":132096}",
		"a process: its memory, and of its files");
	is_json(processes_one("kthreadd", 8, "", NULL), "(null)",
		"a thread of the kernel has none");
	is_json(processes_one("a\377b", 3,
			"1-2\nRss: 4 kB\n1- /x\n1-2 r 0 0 0 \nRss: 99999999999999999999 kB\nx\n",
			NULL),
		"{\"anonymous_bytes\":0,\"command\":\"a\357\277\275b\",\"files\":[],\"resident_"
		"bytes\":4096}",
		"lines that nobody understands are passed over");
	lent_add_secret(&lent, "a password", "open-sesame", 11);
	is_json(processes_one("login\0open-sesame", 17, "1-2\nRss: 4 kB\n", &lent),
		"{\"anonymous_bytes\":0,\"command\":\"login "
		"***********\",\"files\":[],\"resident_bytes\":4096}",
		"what was lent is masked in a command");
	lent_clear(&lent);
	is_json(processes_kernel("MemTotal: 100 kB\nCached:   12 kB\nSwapCached: 7 kB\nPageTables: "
				 "4 kB\nShmem: x\n"),
		"{\"cached\":12288,\"page_tables\":4096}", "what the kernel uses memory for");
	is_json(processes_kernel(""), "{}", "nothing is told of it");
}

/* ---- differences ------------------------------------------------------------------------- */

static json_t *record(const char *text)
{
	json_t *made = json_loads(text, 0, NULL);

	if (!made)
		abort();
	return made;
}

#define FILE_OF(path, bytes) "{\"path\": \"" path "\", \"resident_bytes\": " bytes "}"
#define PROCESS(command, bytes, files)                                                             \
	"{\"command\": \"" command "\", \"resident_bytes\": " bytes                                \
	", \"anonymous_bytes\": 0, \"files\": [" files "]}"
#define RECORD(kernel, processes)                                                                  \
	"{\"version\": 1, \"kernel\": {" kernel "}, \"processes\": [" processes "]}"

static void compare(const char *a, const char *b, const char *want, bool same, const char *name)
{
	cleanup_json json_t *x = record(a), *y = record(b);
	json_t *got = processes_compare(x, y);

	ok(processes_same(got) == same, "%s: %s", name, same ? "the same" : "not the same");
	is_json(got, want, name);
}

static void test_compare(void)
{
	compare(RECORD("\"cached\": 10", PROCESS("sh", "5", FILE_OF("/bin/sh", "4"))),
		RECORD("\"cached\": 10", PROCESS("sh", "5", FILE_OF("/bin/sh", "4"))),
		"{\"kernel\":[],\"processes\":[]}", true, "a record and itself");
	compare(RECORD("\"cached\": 10, \"slab\": 1", PROCESS("sh", "5", FILE_OF("/bin/sh", "4"))),
		RECORD("\"cached\": 30, \"buffers\": 2",
			PROCESS("sh", "9", FILE_OF("/bin/sh", "4"))),
		"{\"kernel\":[{\"a\":10,\"b\":30,\"use\":\"cached\"},{\"a\":1,\"b\":null,\"use\":"
		"\"slab\"},"
		"{\"a\":null,\"b\":2,\"use\":\"buffers\"}],"
		"\"processes\":[{\"a\":5,\"a_count\":1,\"b\":9,\"b_count\":1,\"command\":\"sh\","
		"\"files_added\":[],"
		"\"files_removed\":[]}]}",
		true, "one that grew");
	compare(RECORD("", PROCESS("sh", "5", FILE_OF("/bin/sh", "4")) "," PROCESS("old", "1", "")),
		RECORD("",
			PROCESS("sh", "5", FILE_OF("/lib/new", "4")) "," PROCESS(
				"sh", "7", FILE_OF("/lib/new", "4"))),
		"{\"kernel\":[],\"processes\":[{\"a\":1,\"a_count\":1,\"b\":null,\"b_count\":0,"
		"\"command\":\"old\","
		"\"files_added\":[],\"files_removed\":[]},{\"a\":5,\"a_count\":1,\"b\":12,\"b_"
		"count\":2,"
		"\"command\":\"sh\",\"files_added\":[\"/lib/new\"],\"files_removed\":[\"/bin/"
		"sh\"]}]}",
		false, "one that is gone, one more, and other files");
	compare("{}", RECORD("", ""), "null", true, "what has no record is not compared");
	compare(RECORD("", "3"), RECORD("", "{\"command\": 7, \"files\": [4]}"),
		"{\"kernel\":[],\"processes\":[]}", true,
		"nonsense in a record of processes is passed over");
}

int main(void)
{
	test_one();
	test_compare();
	return tap_done();
}
