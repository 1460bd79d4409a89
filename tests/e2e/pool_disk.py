# SPDX-License-Identifier: Apache-2.0
"""pool_disk.py SCRATCH KEY DIGEST…: three keys of one pool whose state lies in a file system of 220 MiB. One of them fills it
with paused sandboxes as far as it may, one works beside it, and one has a bound of its own."""
import sys
from pool_lib import *

scratch, *keys = sys.argv[1:]
hoarder, modest, bounded = keys[::2]
tap = Tap()
d = Daemon(scratch, "".join(f"[key {name}]\ndigest = {digest}\n"
                            for name, digest in zip(("hoarder", "modest", "bounded"), keys[1::2])) + "max_disk = 1M\n")


def create(key):
    status, text = d.ask(key, "POST", "/sandboxes", {"templateID": "tiny", "timeout": 600})
    return json.loads(text)["sandboxID"] if status == 201 else (status, text)


def pause(key, box, mib):
    """Paused, with so much written, which its disk has and its memory too."""
    d.api.exec(box, f"tr '\\0' x </dev/zero | head -c {mib}M >/root/held && sync")
    return d.ask(key, "POST", f"/sandboxes/{box}/pause")[0]


try:
    d.start()
    box = create(hoarder)
    kept = []
    while isinstance(box, str) and len(kept) < 9:
        tap.equal(pause(hoarder, box, 25), 204, f"a key pauses its sandbox {len(kept) + 1}")
        kept.append(box)
        box = create(hoarder)
    tap.ok(1 < len(kept) < 9, "a key may pause until it has as much of the disk as is free", kept)
    tap.equal(box[0], 429, "a key that has as much as is free is refused", box)
    tap.ok("on the host's disk" in box[1] and "remove a paused sandbox or a snapshot" in box[1], "the answer to a key with too much disk tells what to do", box)
    tap.equal(d.headers["Retry-After"], "1", "the answer to a key with too much disk tells when to ask again")
    tap.equal(d.ask(hoarder, "POST", f"/sandboxes/{kept[0]}/snapshots", {})[0], 429, "a key with too much disk gets no snapshot")
    tap.equal(d.ask(hoarder, "POST", f"/sandboxes/{kept[0]}/fork", {"count": 1})[0], 429, "a key with too much disk gets no fork")
    other = create(modest)
    tap.ok(isinstance(other, str), "another key creates a sandbox", other)
    tap.equal(pause(modest, other, 10), 204, "another key pauses its sandbox: there is room")
    d.kill9()
    d.start()
    tap.equal(create(hoarder)[0], 429, "a later daemon counts a key's disk the same")
    tap.equal(d.ask(hoarder, "POST", f"/sandboxes/{kept[0]}/resume", {"timeout": 600})[0], 201, "a key with too much disk may resume")
    for one in kept:
        tap.equal(d.ask(hoarder, "DELETE", f"/sandboxes/{one}")[0], 204, "a key with too much disk removes a sandbox")
    box = create(hoarder)
    tap.ok(isinstance(box, str), "a key that made room creates again", box)

    box = create(bounded)
    tap.ok(isinstance(box, str), "a key with a bound of its own has room at first", box)
    d.api.exec(box, "tr '\\0' x </dev/zero | head -c 4M >/root/held && sync")
    tap.equal(d.ask(bounded, "POST", f"/sandboxes/{box}/snapshots", {})[0], 201, "a key with a bound of its own makes a first snapshot")
    status, text = d.ask(bounded, "POST", f"/sandboxes/{box}/snapshots", {})
    tap.equal(status, 429, "a second snapshot is beyond the key's bound", text)
    tap.ok("may have 1 MiB" in text, "the answer to a key beyond its bound names the bound", text)
    tap.equal(pause(bounded, box, 1), 204, "a key beyond its bound may pause, as the sandbox would be lost")
    tap.equal(create(bounded)[0], 429, "a key beyond its bound may not create")
finally:
    tap.equal(d.stop(), {}, "nothing is left of it")
tap.finish()
