/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in a guest: code that changes in every way in which code can change under whoever keeps
 * translations of it.
 *
 *   selfcode serve   have small functions at fixed addresses, and wait for who asks
 *   selfcode call    ask it to call each of them, and print what they return
 *   selfcode break   ask it to change each of them, and to call it again
 *
 * The server is started before a snapshot is taken, and asked to call them while translations are
 * recorded. So its functions lie in the snapshot's memory, at the same addresses in each sandbox,
 * with translations that fit until "break" begins.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define BASE 0x200000000ull
#define AT(i) ((uint8_t *)(uintptr_t)(BASE + (i)*0x100000ull))
#define OWN AT(0) /* anonymous */
#define CROSS AT(1) /* a function across two pages */
#define DMA AT(2)
#define ALIAS AT(3) /* and the same page, to write to: */
#define ALIAS_WRITE AT(4)
#define SWAP AT(5)
#define FILE_CODE AT(6)
#define IN_FILE "/var/selfcode.code"
#define DMA_FILE "/var/selfcode.dma"
#define RWX (PROT_READ | PROT_WRITE | PROT_EXEC)
#define ACROSS (PAGE - 3)
#define ROUNDS 100
#define THREADS 8

static FILE *out;
static int swap_fd;

static void die(const char *what)
{
	fprintf(stderr, "selfcode: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *map(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	void *p = mmap(at, bytes, prot, flags | MAP_FIXED, fd, offset);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* mov $value, %eax; ret */
static void put(uint8_t *at, uint32_t value)
{
	at[0] = 0xb8;
	memcpy(at + 1, &value, 4);
	at[5] = 0xc3;
}

static uint32_t call(const uint8_t *at)
{
	return ((uint32_t(*)(void))(uintptr_t)at)();
}

static void want(const char *what, uint32_t got, uint32_t right)
{
	if (got == right)
		fprintf(out, "%s: right\n", what);
	else
		fprintf(out, "%s: WRONG, %u instead of %u\n", what, got, right);
}

static int code_file(const char *path, uint32_t value)
{
	static _Alignas(PAGE) uint8_t page[PAGE];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	put(page, value);
	if (fd < 0 || write(fd, page, PAGE) != PAGE || fsync(fd) < 0)
		die(path);
	return fd;
}

static void set_up(void)
{
	int alias = memfd_create("alias", 0), in_file;

	swap_fd = memfd_create("swap", 0);
	if (alias < 0 || swap_fd < 0 || ftruncate(alias, PAGE) < 0 ||
		ftruncate(swap_fd, 2 * PAGE) < 0)
		die("memfd_create");
	map(OWN, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	map(CROSS, 2 * PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	map(DMA, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	map(ALIAS_WRITE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, alias, 0);
	map(ALIAS, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, alias, 0);
	map(SWAP, 2 * PAGE, RWX, MAP_SHARED, swap_fd, 0);
	in_file = code_file(IN_FILE, 60);
	map(FILE_CODE, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, in_file, 0);
	close(code_file(DMA_FILE, 21));
	put(OWN, 1);
	put(CROSS + ACROSS, 10);
	put(DMA, 20);
	put(ALIAS_WRITE, 40);
	put(SWAP, 50);
	put(SWAP + PAGE, 51);
}

static void call_all(void)
{
	fprintf(out, "%u %u %u %u %u %u %u\n", call(OWN), call(CROSS + ACROSS), call(DMA),
		call(ALIAS), call(SWAP), call(SWAP + PAGE), call(FILE_CODE));
}

/* ---- ways to change code ------------------------------------------------------------------ */

static void by_itself(void)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		put(OWN, 1000 + i);
		if (call(OWN) != 1000 + i)
			break;
	}
	want("changed by the program that runs it", call(OWN), 1000 + ROUNDS - 1);
}

/* The number's last two bytes lie in the second page. */
static void across(void)
{
	CROSS[PAGE] = 1;
	want("across two pages, the second one changed", call(CROSS + ACROSS), 10 + 0x10000);
	CROSS[ACROSS + 1] = 11;
	want("across two pages, the first one changed", call(CROSS + ACROSS), 11 + 0x10000);
}

static void by_dma(void)
{
	int fd = open(DMA_FILE, O_RDONLY | O_DIRECT);

	if (fd < 0 || pread(fd, DMA, PAGE, 0) != PAGE)
		die("read " DMA_FILE " past the page cache");
	close(fd);
	want("read from the disk into the page", call(DMA), 21);
}

static void by_alias(void)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		put(ALIAS_WRITE, 400 + i);
		if (call(ALIAS) != 400 + i)
			break;
	}
	want("changed through a second mapping", call(ALIAS), 400 + ROUNDS - 1);
}

static void by_swap(void)
{
	map(SWAP, PAGE, RWX, MAP_SHARED, swap_fd, PAGE);
	map(SWAP + PAGE, PAGE, RWX, MAP_SHARED, swap_fd, 0);
	want("pages changed for each other, the first", call(SWAP), 51);
	want("pages changed for each other, the second", call(SWAP + PAGE), 50);
}

static void by_file(void)
{
	uint32_t value = 61;
	int fd = open(IN_FILE, O_WRONLY);

	if (fd < 0 || pwrite(fd, &value, 4, 1) != 4)
		die("write " IN_FILE);
	close(fd);
	want("changed in the file that is mapped", call(FILE_CODE), 61);
}

/* The same address has other code in another process, in turn with this one's. */
static void by_process(void)
{
	uint32_t mine = call(OWN), bad = 0;
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		map(OWN, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		put(OWN, 2);
	}
	for (int i = 0; i < ROUNDS; i++) {
		bad += call(OWN) != (pid ? mine : 2);
		sched_yield();
	}
	if (pid == 0)
		_exit(bad != 0);
	waitpid(pid, &status, 0);
	want("other code in another process, here", bad, 0);
	want("other code in another process, there", (uint32_t)status, 0);
}

/*
 * Threads on all processors have run the function, it is changed, and they run it again. (To change
 * it while they run it is what QEMU 7.2 itself does not get right: a processor that translates it at that
 * very moment may keep what it was.)
 */
static pthread_barrier_t barrier;
static _Atomic uint32_t wrong;

static void *call_numbers(void *user)
{
	(void)user;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier); /* changed */
		wrong += call(ALIAS) != 4000 + i;
		pthread_barrier_wait(&barrier); /* run by all */
	}
	return NULL;
}

static void by_threads(void)
{
	pthread_t threads[THREADS];

	wrong = 0;
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, call_numbers, NULL))
			die("start a thread");
	for (uint32_t i = 0; i < ROUNDS; i++) {
		put(ALIAS_WRITE, 4000 + i);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	want("changed between the turns of eight threads", wrong, 0);
}

/* ---- server and client -------------------------------------------------------------------- */

static int open_socket(struct sockaddr_un *addr, socklen_t *len)
{
	static const char name[] = "selfcode"; /* abstract: behind a NUL */

	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(addr->sun_path + 1, name, sizeof(name) - 1);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(name));
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static void answer(int fd)
{
	char command;

	out = fdopen(fd, "r+");
	if (!out || read(fd, &command, 1) != 1)
		die("a request");
	if (command == 'c') {
		call_all();
	} else {
		by_itself();
		across();
		by_dma();
		by_alias();
		by_swap();
		by_file();
		fflush(out);
		by_process();
		by_threads();
	}
	fclose(out);
}

_Noreturn static void serve(void)
{
	struct sockaddr_un addr;
	socklen_t len;
	int sock = open_socket(&addr, &len);

	set_up();
	if (sock < 0 || bind(sock, (struct sockaddr *)&addr, len) < 0 || listen(sock, 4) < 0)
		die("listen");
	for (;;) {
		int fd = accept(sock, NULL, NULL);

		if (fd < 0)
			die("accept");
		answer(fd);
	}
}

static int ask(const char *command)
{
	struct sockaddr_un addr;
	socklen_t len;
	int sock = open_socket(&addr, &len);
	char buf[PAGE];
	ssize_t n;

	if (sock < 0 || connect(sock, (struct sockaddr *)&addr, len) < 0 ||
		write(sock, command, 1) != 1)
		die("connect");
	while ((n = read(sock, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stdout);
	return n < 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "serve"))
		serve();
	return argc == 2 ? ask(argv[1]) : 2;
}
