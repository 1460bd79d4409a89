/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent where its kernel refuses every watch (EPOLL_CTL_ADD), as it may when memory is short or a user's bound on
 * watches is used up. The agent is PID 1 of a machine: it goes on, commands and cells run, their output is whole.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/unit/agent_client.h"

static int refusal;

/* epoll_ctl(…, EPOLL_CTL_ADD, …) fails with @refusal from here on; all else is allowed. */
static void refuse_watches(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)refusal),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(126);
}

static void test_command(void)
{
	struct seen *s;

	proto_put_str(begin(), PROTO_T_SHELL, "seq 1 10000 | md5sum; echo oops >&2; exit 3");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "72d4ff27a28afbc066d5804999d5a504  -\n", "a command's output");
	is_str(out(s, PROTO_ERR), "oops\n", "a command's errors come apart from its output");
	is_int(field(s, PROTO_T_EXIT_CODE), 3, "a command's exit status comes");
	seen_free(s);
}

static void test_input(void)
{
	static uint8_t zeros[PROTO_DATA_MAX];
	int n = PROTO_WINDOW / (int)sizeof(zeros);
	struct seen *s;

	/* it reads when all has come that the window allows, which is more than a pipe holds */
	proto_put_str(begin(), PROTO_T_SHELL, "sleep 0.2; wc -c");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (int i = 0; i < n; i++)
		send_frame(PROTO_DATA, 0, s->id, zeros, sizeof(zeros));
	send_frame(PROTO_EOF, 0, s->id, NULL, 0);
	finish(s);
	is_int(atoi(out(s, PROTO_OUT)), n * (int)sizeof(zeros),
		"what it is given, to the last byte");
	seen_free(s);
}

static void tests(void)
{
	if (!ok(do_sync(PROTO_VERSION, PROTO_VERSION), "it says hello"))
		return;
	test_command();
	test_input();
	begin();
	is_int(field(call(PROTO_INFO), PROTO_T_STREAMS), 0, "nothing is left open");
	ok(kill(agent_pid, 0) == 0, "the agent still lives");
}

int main(int argc, char **argv)
{
	static const int refusals[] = {ENOSPC, ENOMEM};

	(void)argc;
	agent_find(argv[0]);
	agent_prepare = refuse_watches;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		refusal = refusals[i];
		printf("# %s\n", strerror(refusal));
		agent_session(tests);
	}
	return tap_done();
}
