# parbake: `make help` lists the targets.
#
# One Makefile for everything; dependencies are found by the compiler (-MMD). V=1
# shows the commands. SAN=address|thread|undefined builds into a directory of its own.

MAKEFLAGS += --no-builtin-rules
# all cores, unless the command line has a -j of its own, which wins
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
.SUFFIXES:
.DELETE_ON_ERROR:

VERSION := 0.1.0
PREFIX ?= /usr/local
DESTDIR ?=
CC := gcc
CLANG ?= clang
WERROR ?=
SAN ?=
FAULTS ?=

V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)')

B := build$(if $(SAN),-$(SAN))
LIBDIR := $(PREFIX)/lib/parbake
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSCONFDIR ?= /etc

# -g1: backtraces have lines. To look at variables: make CFLAGS="-Og -g3". (-g costs a ninth of the time of a build.)
CFLAGS ?= -O2 -g1
WARN := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wformat=2 -Wno-format-nonliteral $(if $(WERROR),-Werror)
BASE_CFLAGS = -std=gnu11 $(WARN) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. \
	-DPARBAKE_VERSION='"$(VERSION)"' -DPARBAKE_LIBDIR='"$(LIBDIR)"' \
	-fstack-protector-strong -fno-strict-aliasing -MMD -MP \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
LIBS := -larchive -lext2fs -lcom_err -lzstd -lcurl -linih -ljansson -lcrypto -lsodium -lmicrohttpd -lz -lpthread -lm
LDFLAGS += $(if $(SAN),-fsanitize=$(SAN))

LIB_PARTS := common store prove vmm vmm/guest vmm/qemu vmm/kvm egress restore restore/pager bake bake/plan bake/ext4 bake/fetch bake/recipe \
	bake/scan bake/source pool pool/http pool/relay pool/envd pool/api pool/keeper pool/daemon benches
LIB_SRC := $(filter-out vmm/qemu/preload_%.c,$(wildcard $(LIB_PARTS:%=%/*.c)))
CLI_SRC := $(wildcard cli/*.c)
AGENT_SRC := $(wildcard agent/*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
PEERS_SRC := $(wildcard benches/peers/*.c)
GATE_SRC := $(wildcard benches/gate/*.c)
DRIVE_SRC := $(wildcard tests/e2e/*_driver.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
VMM_SRC := $(wildcard vmm/kvm/program/*.c)
HEADERS := $(wildcard $(LIB_PARTS:%=%/*.h) vmm/kvm/program/*.h agent/*.h benches/peers/*.h benches/gate/*.h cli/*.h)

LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
PEERS_OBJ := $(PEERS_SRC:%.c=$(B)/%.o)
GATE_OBJ := $(GATE_SRC:%.c=$(B)/%.o)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/%)
DRIVE_BIN := $(DRIVE_SRC:tests/e2e/%.c=$(B)/e2e/%) $(patsubst tests/e2e/%_guest.c,$(B)/guest/%,$(wildcard tests/e2e/*_guest.c))
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)

PARBAKE := $(if $(SAN),$(B)/parbake,parbake)
PEERS := $(B)/bench_peers
GATE := $(B)/bench_gate
PRELOAD := $(B)/libparbake-uffd.so
AGENT := $(B)/agent/parbake-agent
INITRD := $(B)/initramfs.cpio
VMM := $(B)/parbake-vmm

.PHONY: all
all: $(PARBAKE) $(PRELOAD) $(INITRD) $(VMM)

.PHONY: help
help:
	@echo 'parbake $(VERSION)'
	@echo '  make setup       install what parbake is built from and runs with (Debian, as root)'
	@echo '  make all         build the program, the preload library, the agent and its initramfs'
	@echo '  make kernel      build the guest kernel (cached outside the tree)'
	@echo '  make monitor     build the trimmed QEMU from Debian'"'"'s source package (cached likewise)'
	@echo '  make demo        setup, build, bake base and code-interpreter, make sandboxes, print p50/p99'
	@echo '  make check       setup, build, all tests; ends with "N passed, N failed, N skipped"'
	@echo '  make check-unit  the unit tests, fuzz corpora and source rules alone'
	@echo '  make check-sdk   the SDKs as they are published, and examples/, fetched by pip and npm, against a pool'
	@echo '  make check-kvm   the KVM rig: an emulated KVM host, with each monitor, and what they take'
	@echo '  make soak        the tests of the pool at length: 1,000 cycles, 100 kill -9 of the daemon (an hour)'
	@echo '  make bench-pool  measure a running pool, and 100 idle spares of base'
	@echo '  make bench-idle  measure creates and lists beside 1,500 idle sandboxes'
	@echo '  make bench-gate  how often the gate on latencies is right, by simulation'
	@echo '  make bench       measure creates and what they are made of, into bench.html and bench.json'
	@echo '  make install     into DESTDIR and PREFIX ($(PREFIX))'
	@echo '  make asan tsan   the unit tests under AddressSanitizer+UBSan, ThreadSanitizer'
	@echo '  make lint        clang-tidy and clang-format over the sources'
	@echo '  make headercheck every header compiles alone'
	@echo '  make clean       remove what was built in the tree'
	@echo 'V=1 shows commands, WERROR=1 makes warnings errors.'

.PHONY: setup
setup:
	@sh tests/setup.sh

# ---- the program ------------------------------------------------------------------------

$(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -c -o $@ $<

$(PARBAKE): $(LIB_OBJ) $(CLI_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# The preload library gets no sanitizer: it runs inside the monitor.
$(PRELOAD): vmm/qemu/preload_uffd.c
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -fsanitize=%,$(BASE_CFLAGS)) -O2 -g1 -fPIC -shared -MF $(B)/preload.d -o $@ $< -ldl -lpthread

# The monitor for KVM is static, with nothing but libc: it starts for each machine. What it shares with parbake is compiled for it.
VMM_CFLAGS = $(filter-out -fsanitize=%,$(BASE_CFLAGS)) -O2 -g1 -fPIE -ffunction-sections -fdata-sections
VMM_SHARED := common/err.c common/fault.c common/file.c common/nearest.c common/sock.c common/str.c
VMM_OBJ := $(patsubst %.c,$(B)/static/%.o,$(VMM_SRC) $(VMM_SHARED))

$(B)/static/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(VMM_CFLAGS) -c -o $@ $<

$(VMM): $(VMM_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(VMM_CFLAGS) -static-pie -Wl,--gc-sections,-z,relro,-z,now,--build-id=none -o $@.debug $^ -lpthread
	$(Q)objcopy --strip-all $@.debug $@

# The agent is static and runs in the guest: no sanitizer, no host library.
AGENT_CFLAGS = $(filter-out -fsanitize=%,$(BASE_CFLAGS)) -O2 -g1 -static
AGENT_OBJ := $(AGENT_SRC:%.c=$(B)/guest/%.o)

$(B)/guest/agent/%.o: agent/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AGENT_CFLAGS) -c -o $@ $<

$(B)/guest/agent/embed.o: $(wildcard agent/python/* agent/javascript/* agent/bridge/*)

$(AGENT): $(AGENT_OBJ)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AGENT_CFLAGS) -Wl,--build-id=none -Wl,--wrap=free,--wrap=realloc -o $@.debug $^
	$(Q)objcopy --strip-all $@.debug $@

# What end-to-end tests run in a guest.
$(B)/guest/%: tests/e2e/%_guest.c
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(AGENT_CFLAGS) -MF $@.d -o $@ $< -lpthread

$(INITRD): $(AGENT) agent/mkinitramfs.sh
	$(call say,CPIO,$@)
	$(Q)sh agent/mkinitramfs.sh $(AGENT) $@

# The kernel lies in a cache outside the tree; a link shows where.
.PHONY: kernel
kernel:
	@mkdir -p $(B)
	@path=$$(bash kernel/build.sh) && ln -sfn "$$path" $(B)/vmlinux

# So does the trimmed QEMU; parbake prefers it where it is built.
.PHONY: monitor
monitor:
	@mkdir -p $(B)
	@path=$$(bash vmm/qemu/trimmed/build.sh) && ln -sfn "$$path" $(B)/parbake-qemu

# ---- tests ------------------------------------------------------------------------------

$(B)/tests/%: tests/unit/%.c $(LIB_OBJ) tests/unit/tap.h
	$(call say,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< $(LIB_OBJ) $(LIBS)

# The KVM monitor's own parts: compiled for tests, with the sanitizers of this build, and without what is parbake's.
VMM_PARTS_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out %/main.c,$(VMM_SRC)) vmm/overlay.c $(VMM_SHARED))
$(B)/tests/test_kvm_devices: tests/unit/test_kvm_devices.c $(VMM_PARTS_OBJ) tests/unit/tap.h
	$(call say,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< $(VMM_PARTS_OBJ) -lpthread

$(B)/fuzz/fuzz_kvm_%: tests/fuzz/fuzz_kvm_%.c tests/fuzz/replay.c $(VMM_PARTS_OBJ)
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< tests/fuzz/replay.c $(VMM_PARTS_OBJ) -lpthread

# Programs that end-to-end tests drive the library with.
$(B)/e2e/%: tests/e2e/%.c $(LIB_OBJ) tests/unit/tap.h
	$(call say,DRIVE,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< $(LIB_OBJ) $(LIBS)

$(B)/fuzz/%: tests/fuzz/%.c tests/fuzz/replay.c $(LIB_OBJ)
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< tests/fuzz/replay.c $(LIB_OBJ) $(LIBS)

# The agent's parsers belong to no library: compiled in, with the sanitizers of this build.
FRAMES_SRC := agent/wire.c agent/stream.c agent/request.c
$(B)/fuzz/fuzz_frames: tests/fuzz/fuzz_frames.c tests/fuzz/replay.c $(FRAMES_SRC) $(HEADERS)
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -MMD -MP,$(BASE_CFLAGS)) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^)

# The commands' own parsers belong to no library either.
CLIENT_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard cli/client*.c) cli/terminal.c)
$(B)/fuzz/fuzz_client: tests/fuzz/fuzz_client.c tests/fuzz/replay.c $(CLIENT_OBJ) $(LIB_OBJ)
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $(filter %.c %.o,$^) $(LIBS)

OPTIONS_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard cli/options*.c))
$(B)/tests/test_options: tests/unit/test_options.c $(OPTIONS_OBJ) $(LIB_OBJ) tests/unit/tap.h
	$(call say,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< $(OPTIONS_OBJ) $(LIB_OBJ) $(LIBS)

# A parbake of a later version, for tests of what one version does with another's sandboxes: it writes
# records that this one cannot read, and reads this one's.
NEXT := $(B)/next/parbake
$(B)/next/record.o: pool/record.c $(HEADERS)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -DRECORD_VERSION=99 -MF $@.d -c -o $@ $<

$(NEXT): $(B)/next/record.o $(LIB_OBJ) $(CLI_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter-out $(B)/pool/record.o,$^) $(LIBS)

.PHONY: tests
tests: all $(PEERS) $(GATE) $(UNIT_BIN) $(FUZZ_BIN) $(DRIVE_BIN) $(NEXT)

.PHONY: check check-unit check-kvm check-cli check-e2e check-sdk soak
check: setup
	@$(MAKE) --no-print-directory tests
	@$(MAKE) --no-print-directory kernel monitor
	@bash tests/run.sh

check-unit: tests
	@bash tests/run.sh unit

check-kvm: all kernel monitor
	@RIG=all bash tests/run.sh kvm

check-cli: all kernel
	@bash tests/run.sh cli

check-sdk: all kernel monitor
	@bash tests/run.sh sdk

check-e2e: all kernel $(DRIVE_BIN) $(NEXT)
	@bash tests/run.sh e2e

# What CI has small, large: an hour or so.
soak: all kernel monitor
	@bash tests/run.sh soak

.PHONY: asan tsan
asan:
	@$(MAKE) --no-print-directory SAN=address,undefined tests
	@BUILD=build-address,undefined bash tests/run.sh unit

tsan:
	@$(MAKE) --no-print-directory SAN=thread tests
	@BUILD=build-thread bash tests/run.sh unit

.PHONY: headercheck
headercheck: $(HEADERS:%=$(B)/headercheck/%.ok)

$(B)/headercheck/%.ok: %
	$(call say,HEADER,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -MMD -MP,$(BASE_CFLAGS)) -fsyntax-only -x c $<
	$(Q)touch $@

.PHONY: lint
lint:
	@sh tests/lint.sh

# ---- using it ---------------------------------------------------------------------------

.PHONY: demo
demo: setup
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory kernel demo-monitor demo-roots
	@bash benches/demo.sh

# Beside the compilers: much of what these do is waiting for an archive or a disk.
.PHONY: demo-monitor demo-roots
demo-monitor:
	@$(MAKE) --no-print-directory monitor || echo "demo: going on with the QEMU in PATH" >&2

demo-roots: $(PARBAKE)
	@for name in base code-interpreter; do ./$(PARBAKE) bake $$name --until root || exit; done

.PHONY: bench
bench: all kernel monitor $(PEERS)
	@bash benches/run.sh

.PHONY: bench-pool
bench-pool: all kernel monitor
	@bash benches/pool.sh

.PHONY: bench-idle
bench-idle: all kernel monitor
	@BENCH=idle bash benches/pool.sh

# What a template's peers take in the same run; a program of its own, for it uses what the driver keeps to itself.
$(PEERS): $(LIB_OBJ) $(PEERS_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# How often the gate is right: simulated, and with PAIRS=10 on as many pairs of real runs.
$(GATE): $(LIB_OBJ) $(GATE_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: bench-gate
bench-gate: all $(GATE)
	@$(GATE) $(TIMES)
	@[ -z "$(PAIRS)" ] || bash benches/gate/pairs.sh $(PAIRS)

.PHONY: install
install: all kernel
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/templates
	install -m 755 parbake $(DESTDIR)$(PREFIX)/bin/parbake
	install -m 755 $(PRELOAD) $(VMM) $(DESTDIR)$(LIBDIR)/
	install -m 644 $(INITRD) $(DESTDIR)$(LIBDIR)/
	install -m 644 $(B)/vmlinux $(DESTDIR)$(LIBDIR)/vmlinux
	if [ -x $(B)/parbake-qemu ]; then dir=$$(dirname "$$(readlink -f $(B)/parbake-qemu)") && \
		install -m 755 "$$dir/parbake-qemu" $(DESTDIR)$(LIBDIR)/ && \
		install -m 644 "$$dir/qboot.rom" $(DESTDIR)$(LIBDIR)/; fi
	install -m 644 templates/*.ini $(DESTDIR)$(LIBDIR)/templates/
	for to in bash:bash-completion/completions/parbake zsh:zsh/site-functions/_parbake fish:fish/vendor_completions.d/parbake.fish; do \
		./parbake completion $${to%%:*} >$(B)/completion && \
		install -D -m 644 $(B)/completion $(DESTDIR)$(PREFIX)/share/$${to#*:} || exit; done
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 644 docs/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 docs/*.5 $(DESTDIR)$(PREFIX)/share/man/man5/
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/parbake
	sed 's|@BINDIR@|$(PREFIX)/bin|' pool/daemon/parbake-pool.service >$(B)/parbake-pool.service
	install -m 644 $(B)/parbake-pool.service $(DESTDIR)$(UNITDIR)/
	[ -e $(DESTDIR)$(SYSCONFDIR)/parbake/pool.conf ] || \
		install -m 600 pool/daemon/pool.conf $(DESTDIR)$(SYSCONFDIR)/parbake/pool.conf

.PHONY: clean
clean:
	rm -rf build build-* parbake

# `make setup all kernel`, `make clean all`: first the one, then the others
FIRST := $(filter setup clean,$(MAKECMDGOALS))
$(LIB_OBJ) $(CLI_OBJ) $(PEERS_OBJ) $(GATE_OBJ) $(AGENT_OBJ) $(VMM_OBJ) $(PRELOAD) kernel monitor: | $(FIRST)

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(PEERS_OBJ:.o=.d) $(GATE_OBJ:.o=.d) $(AGENT_OBJ:.o=.d) $(UNIT_BIN:%=%.d) $(FUZZ_BIN:%=%.d) $(DRIVE_BIN:%=%.d) $(B)/preload.d $(VMM_OBJ:.o=.d)
