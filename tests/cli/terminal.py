# SPDX-License-Identifier: Apache-2.0
"""`parbake exec -it` in a terminal of ours: is it raw meanwhile, does a change of size arrive, is it put back?

With a third word its output goes into a pipe, as in `parbake exec -it … | cat`."""
import fcntl, os, pty, re, select, struct, subprocess, sys, termios, time

master, slave = pty.openpty()


def resize(rows, cols):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def until(pattern):
    global seen
    end = time.monotonic() + 20
    while not re.search(pattern, seen):
        if not select.select([shown], [], [], max(0, end - time.monotonic()))[0]:
            raise SystemExit(f"no {pattern} in {seen!r}")
        seen += os.read(shown, 4096).decode()


seen = ""
shown, output = os.pipe() if len(sys.argv) > 3 else (master, slave)
resize(24, 80)
before = termios.tcgetattr(slave)
script = "stty size; read x; until stty size | grep -q 100; do :; done; stty size; echo end; read y; exit 6"
p = subprocess.Popen([sys.argv[1], "exec", sys.argv[2], "-it", "--", "sh", "-c", script], stdin=slave, stdout=output, stderr=slave,
                     start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
until("24 80")
raw = not termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ISIG)
resize(30, 100)
os.write(master, b"x\n")
until("30 100")
until("end")
os.write(master, b"y\n")
code = p.wait(20)
restored = termios.tcgetattr(slave) == before
if code != 6:
    raise SystemExit(f"status {code}: {seen!r}")
print(f"24x80 then 30x100{', raw' if raw else ''}{', restored' if restored else ''}")
