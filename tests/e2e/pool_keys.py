# SPDX-License-Identifier: Apache-2.0
"""pool_keys.py SCRATCH KEY_A DIGEST_A KEY_B DIGEST_B: two keys of one pool, of which one takes all that it can of templates
and snapshots; and what each may remove."""
import sys
from pool_lib import *

scratch, key_a, digest_a, key_b, digest_b = sys.argv[1:]
tap = Tap()
mine = "k" + uuid.uuid4().hex[:12]
d = Daemon(scratch, "max_templates = 3\nmax_sandboxes = 16\n"
           f"[key greedy]\ndigest = {digest_a}\nmax_snapshots = 4\n[key modest]\ndigest = {digest_b}\n")


def create(key, template):
    status, text = d.ask(key, "POST", "/sandboxes", {"templateID": template})
    return json.loads(text)["sandboxID"] if status == 201 else (status, text)


try:
    d.start()
    box = create(key_a, "tiny")
    tap.ok(isinstance(box, str), "a key creates a sandbox", box)
    for i in range(4):
        status, text = d.ask(key_a, "POST", f"/sandboxes/{box}/snapshots", {"name": f"{mine}-{i}"})
        tap.equal(status, 201, f"it publishes template {i + 1} of 4", text)
    status, text = d.ask(key_a, "POST", f"/sandboxes/{box}/snapshots", {"name": f"{mine}-4"})
    tap.equal(status, 429, "the fifth is more than it may have", text)
    tap.ok("remove one" in text, "the answer says what to do", text)
    status, text = d.ask(key_a, "POST", f"/sandboxes/{box}/snapshots", {})
    tap.equal(status, 429, "a snapshot counts as one", text)
    d.api.exec(box, "echo later >/root/which")
    status, text = d.ask(key_a, "POST", f"/sandboxes/{box}/snapshots", {"name": f"{mine}-3"})
    tap.equal(status, 201, "under the name of an earlier one there is room for another", text)
    tap.equal(json.loads(text).get("snapshotID"), f"{mine}-3", "a snapshot has the name that was asked for", text)
    for i in range(4):
        made = create(key_a, f"{mine}-{i}")
        tap.ok(isinstance(made, str), f"a sandbox is made of its template {i + 1}, though three places are all there are", made)
        last = made
    answer = d.api.exec(last, "cat /root/which")
    tap.ok("later" in repr(answer), "that of the name used twice is made of the later one", answer)
    made = create(key_b, "other")
    status, text = d.ask(key_b, "POST", f"/sandboxes/{made}/snapshots", {"name": f"{mine}-3"})
    tap.equal(status, 409, "another key does not take the name", text)
    tap.ok(isinstance(made, str), "another key's sandbox is made of another template at once", made)
    tap.equal(d.ask(key_b, "DELETE", f"/templates/{mine}-0")[0], 403, "a template is not another key's to remove")
    tap.equal(d.ask(key_a, "DELETE", "/templates/tiny")[0], 403, "a template that the host put there is not removed")
    tap.equal(d.ask(key_a, "DELETE", f"/templates/{mine}-0")[0], 204, "who published it removes it")
    tap.equal(d.ask(key_a, "DELETE", f"/templates/{mine}-0")[0], 404, "a template that was removed is not there")
    tap.equal(d.ask(key_a, "GET", f"/templates/{mine}-0")[0], 404, "for nobody")
    tap.equal(d.ask(key_a, "DELETE", f"/templates/{mine}-1:latest")[0], 204, "a template is removed by name and tag")
    tap.equal(d.ask("", "DELETE", f"/templates/{mine}-2")[0], 204, "who runs the pool removes any key's")
    status, text = d.ask(key_a, "POST", f"/sandboxes/{box}/snapshots", {"name": f"{mine}-4"})
    tap.equal(status, 201, "a template that was removed makes room for another", text)
    for bad in ("..%2f..%2fpaused", "a%2fb", mine + "-3%00", ".json", mine.upper() + "-3", mine + "-3:latest:x", mine + "-3@sha256:0"):
        status = d.ask(key_a, "DELETE", f"/templates/{bad}")[0]
        tap.ok(status in (400, 403, 404), f"{bad} is no template of its", status)
    tap.equal(d.ask(key_a, "GET", f"/templates/{mine}-3")[0], 200, "no request that was refused removed a template")
    made = 0
    while made < 16 and isinstance(create(key_a, "tiny"), str):
        made += 1
    tap.ok(made < 10, "a key without a bound of its own takes its share of the sandboxes", made)
    answer = create(key_a, "tiny")
    tap.equal(answer[0], 429, "a key that has all that it may is told so", answer)
    tap.ok(isinstance(create(key_b, "other"), str), "another key still creates a sandbox")
    d.kill9()
    d.start()
    tap.equal(d.ask(key_b, "DELETE", f"/templates/{mine}-3")[0], 403, "a daemon that follows knows whose it is")
    tap.equal(d.ask(key_a, "DELETE", f"/templates/{mine}-3")[0], 204, "the key that made a template may remove it")
    tap.equal(d.ask(key_a, "DELETE", f"/templates/{mine}-4")[0], 204, "each of them")
finally:
    tap.equal(d.stop(), {}, "nothing is left of it")
tap.finish()
