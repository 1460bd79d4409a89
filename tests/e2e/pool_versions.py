# SPDX-License-Identifier: Apache-2.0
"""pool_versions.py SCRATCH: daemons of two versions, one after the other, over the same sandboxes. NEXT is a parbake
whose records have another version: it reads this one's, and this one cannot read its."""
import sys
from pool_lib import *

scratch = sys.argv[1]
tap = Tap()
d = Daemon(scratch, "[template tiny]\nspares = 0\nstandbys = 0\n")


def pair(who):
    """A sandbox that runs and one that is paused, each with a word in its memory."""
    run, rest = d.api.create("tiny"), d.api.create("tiny")
    for sid in run, rest:
        d.api.exec(sid, f"echo {who} >/dev/shm/who")
    d.api("POST", f"/sandboxes/{rest}/pause")
    return run, rest


def whole(run, rest, who, version):
    states = {sid: one["state"] for sid, one in d.api.list().items()}
    tap.equal([states.get(run), states.get(rest)], ["running", "paused"], f"{version} has the sandbox that ran and the paused one")
    tap.equal(d.api.exec(run, "cat /dev/shm/who").strip(), who, f"{version} runs a command in the one that ran, whose memory is as it was")
    d.api("POST", f"/sandboxes/{rest}/resume", {})
    tap.equal(d.api.exec(rest, "cat /dev/shm/who").strip(), who, f"{version} resumes the paused one, whose memory is as it was")


def change(program):
    d.leave()
    d.program = program
    d.start()


try:
    d.start()
    run, rest = pair("before")
    change(os.environ["NEXT"])
    whole(run, rest, "before", "a later version after this one")
    for sid in run, rest:
        d.api.kill(sid)
    run, rest = pair("later")
    snapshot = d.api("POST", f"/sandboxes/{run}/snapshots", {})["snapshotID"]
    monitors, files = d.monitors(), d.files()
    change(PARBAKE)
    tap.equal(d.api.list(), {}, "this version after a later one has none of its sandboxes")
    with open(d.log) as log:
        said = log.read()
    for sid, what in (run, "the sandbox that runs"), (rest, "the paused one"), (snapshot, "the snapshot"):
        tap.ok(re.search(f"{sid}.*a record of version 99, not [0-9]+: another parbake wrote it", said), f"it says by version why not, of {what}", said[-3000:])
    mine = d.api.create("tiny")
    tap.equal(d.api.exec(mine, "echo works").strip(), "works", "beside them it makes a sandbox of its own")
    d.api.kill(mine)
    tap.equal(monitors - d.monitors(), set(), "no machine of the later version has ended")
    tap.equal(set(files) - set(d.files()), set(), "no file of the later version is gone")
    change(os.environ["NEXT"])
    whole(run, rest, "later", "the later version, come again,")
    again = d.api.create(snapshot)
    tap.equal(d.api.exec(again, "cat /dev/shm/who").strip(), "later", "a snapshot of the later version makes a sandbox")
finally:
    tap.equal(d.stop(), {}, "nothing is left of it")
tap.finish()
