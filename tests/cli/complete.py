# SPDX-License-Identifier: Apache-2.0
"""What bash makes of a line when tab is pressed, in a terminal of its own.

    complete.py SCRIPT TYPED WANT...    SCRIPT is read by bash first; TYPED and as many tabs as it has at its end are
                                        typed, and WANT must come to stand in what bash shows

Exit status 1 with what was shown where one does not within a minute.
"""
import os
import pty
import re
import select
import sys
import time

LIMIT_S = 60


def wait_for(fd, want, shown):
    """Reads until @want stands in what was shown; returns all of it."""
    end = time.monotonic() + LIMIT_S
    while want not in shown:
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            sys.exit(f"{want!r} does not appear in {shown!r}")
        try:
            data = os.read(fd, 65536).decode(errors="replace")
        except OSError:
            sys.exit(f"bash ended; {want!r} did not appear in {shown!r}")
        shown += re.sub(r"[\a\r]|\x1b\[[?0-9;]*[a-zA-Z]", "", data)
    return shown


def main():
    script, cases = sys.argv[1], sys.argv[2:]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", INPUTRC="/dev/null", COLUMNS="200", HISTFILE="")
        os.execvp("bash", ["bash", "--noprofile", "--norc", "-i"])
    try:
        # what is typed is shown, too: the mark is made of two parts, so that only its output has it whole
        os.write(fd, f"bind 'set show-all-if-ambiguous on'; PS1='> '; . '{script}'; echo rea''dy\n".encode())
        wait_for(fd, "ready\n", "")
        for typed, want in zip(cases[::2], cases[1::2]):
            os.write(fd, b"\x15" + typed.encode())
            wait_for(fd, want, "")
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


main()
