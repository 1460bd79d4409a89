# SPDX-License-Identifier: Apache-2.0
"""pool_sdk.sh's part that asks the API, with one connection a request."""
import json, sys, time
from pool_lib import Daemon, Refused, Tap, Unix, until

tap = Tap()
daemon = Daemon(sys.argv[1], "domain = boxes.example.org\n[template small]\nspares = 1\n")
api = daemon.api


def ask(method, path, body=None, **headers):
    """Status, the answer (JSON where it is)."""
    conn = Unix(daemon.socket, 60)
    try:
        conn.request(method, path, None if body is None else json.dumps(body),
                     {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})
        answer = conn.getresponse()
        data = answer.read()
    finally:
        conn.close()
    try:
        return answer.status, json.loads(data)
    except ValueError:
        return answer.status, data


def state(sid):
    try:
        return api("GET", f"/sandboxes/{sid}")["state"]
    except Refused as e:
        return e.status


def not_found(answer, sid):
    return answer == (502, {"sandboxId": sid, "message": "The sandbox was not found", "code": 502})


def templates():
    created = api("POST", "/sandboxes", {"templateID": "small-v1"})
    tap.equal((created["templateID"], created["alias"]), ("tiny", "tiny"), "a sandbox of a template by another name")
    until(60, "a spare", daemon.settled)
    tap.equal(api("GET", f"/sandboxes/{api.create('small')}")["mode"], "spare", "what is configured under another name is kept ready")
    tap.equal(ask("GET", "/templates/aliases/small"), (200, {"templateID": "tiny", "public": True}), "an alias leads to its template")
    tap.equal(ask("GET", "/templates/aliases/tiny:latest")[1].get("templateID"), "tiny", "a template's own name and tag resolve like an alias")
    tap.equal(ask("GET", "/templates/aliases/nobody")[0], 404, "one that there is not does not")
    tap.equal(ask("GET", "/templates/tiny:latest")[1].get("templateID"), "tiny", "a template by its name and tag")
    tap.equal(ask("GET", "/templates/tiny")[1].get("aliases"), ["tiny", "small-v1", "small"], "tells its other names")
    tap.equal(ask("PATCH", "/v2/templates/tiny", {"public": True}), (200, {"names": ["tiny"]}), "a template may be asked to be public")
    tap.equal(ask("PATCH", "/templates/tiny", {"public": False})[0], 403, "a template may not be asked to be private")
    tap.equal(ask("PATCH", "/v2/templates/nobody", {"public": True})[0], 404, "a template that is not there cannot be changed")


def states():
    sid = api.create("tiny")
    tap.equal(ask("GET", "/health", E2b_Sandbox_Id=sid)[0], 204, "a sandbox that runs is well")
    tap.equal(ask("GET", "/health")[0], 200, "the API's own health is told")
    api("POST", f"/sandboxes/{sid}/pause")
    answer = ask("GET", "/health", E2b_Sandbox_Id=sid)
    tap.ok(not_found(answer, sid), "one that is paused is not found", answer)
    answer = ask("POST", "/filesystem.Filesystem/Stat", {"path": "/etc"}, E2b_Sandbox_Id=sid)
    tap.ok(not_found(answer, sid), "by a call either", answer)
    answer = ask("GET", "/files?path=/etc/hostname", Host=f"49983-{sid}.boxes.example.org")
    tap.ok(not_found(answer, sid), "a sandbox that is gone is not found by its host name", answer)
    tap.equal(ask("POST", f"/sandboxes/{sid}/exec", {"cmd": "true"})[0], 409, "who names it in the path is told why")
    status, answer = ask("POST", f"/v2/sandboxes/{sid}/connect")
    tap.equal((status, answer.get("sandboxID")), (201, sid), "a sandbox is connected to without a body")
    tap.equal(ask("POST", f"/v2/sandboxes/{sid}/connect", {"timeout": 900})[0], 200, "a sandbox is connected to again, with a body")
    tap.equal(api.exec(sid, "echo here"), "here\n", "a sandbox that was connected to runs")
    api.exec(sid, "echo a line >/dev/console")
    lines = api("GET", f"/sandboxes/{sid}/logs")["logs"]
    tap.ok(lines and all({"timestamp", "level", "logger", "message"} <= set(json.loads(one["line"])) for one in lines),
           "lines of its log are objects", lines[:2])
    api.kill(sid)
    answer = ask("GET", "/health", E2b_Sandbox_Id=sid)
    tap.ok(not_found(answer, sid), "one that is gone is not found", answer)
    tap.equal(ask("POST", f"/v2/sandboxes/{sid}/connect")[0], 404, "a sandbox that is gone is not connected to")


def listed():
    """What a list says of a sandbox is what it is now, whatever it said before."""
    sid = api.create("tiny", timeout=3600)

    def entry():
        one = [s for s in api("GET", "/v2/sandboxes?state=running,paused") if s["sandboxID"] == sid]
        whole = api("GET", f"/sandboxes/{sid}")
        return one == [{k: whole[k] for k in one[0]}] and one[0]

    before = entry()
    tap.ok(before and before["state"] == "running", "a list shows a sandbox as a look at it does", before)
    api("POST", f"/sandboxes/{sid}/timeout", {"timeout": 7200})
    after = entry()
    tap.ok(after and after["endAt"] > before["endAt"], "a list has a sandbox's new end when its lease was made longer", after)
    api("POST", f"/sandboxes/{sid}/pause")
    tap.equal((entry() or {}).get("state"), "paused", "a list has a paused sandbox as paused")
    api.kill(sid)
    tap.ok(sid not in [s["sandboxID"] for s in api("GET", "/sandboxes")], "a list does not have a sandbox that is gone")


def sleepers():
    sid = api.create("tiny", timeout=3600, autoPause=True)
    api("POST", f"/sandboxes/{sid}/timeout", {"timeout": 0})
    tap.equal(state(sid), "paused", "a lease that ends at once ends in a pause, where it is to")
    answer = ask("GET", "/health", E2b_Sandbox_Id=sid)
    tap.ok(not_found(answer, sid), "nobody wakes it by asking", answer)
    tap.equal(state(sid), "paused", "a sandbox that nothing may wake sleeps on")
    api.kill(sid)

    sid = api.create("tiny", timeout=3600, autoPause=True, autoResume={"enabled": True})
    tap.equal(api("GET", f"/sandboxes/{sid}")["lifecycle"], {"autoResume": True, "onTimeout": "pause"}, "one that is to be woken says so")
    api.exec(sid, "echo kept >/dev/shm/kept")
    api("POST", f"/sandboxes/{sid}/timeout", {"timeout": 0})
    tap.equal(state(sid), "paused", "a sandbox at the end of its lease sleeps")
    tap.equal(ask("GET", "/files?path=/dev/shm/kept", E2b_Sandbox_Id=sid), (200, b"kept\n"), "a request wakes it and is served")
    tap.equal(state(sid), "running", "a sandbox that a request woke runs")
    left = api("GET", f"/sandboxes/{sid}")["endAt"]
    tap.ok(left > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 600)), "for as long as its create asked", left)
    api("POST", f"/sandboxes/{sid}/pause")
    daemon.kill9()
    daemon.start()
    status, answer = ask("POST", f"/sandboxes/{sid}/exec", {"cmd": "cat /dev/shm/kept"})
    tap.equal((status, answer.get("stdout")), (200, "kept\n"), "after a daemon that died, too, and with a body", answer)
    api.kill(sid)
    tap.equal(state(sid), 404, "killed it does not come back")


daemon.start()
try:
    templates()
    states()
    listed()
    sleepers()
finally:
    left = daemon.stop()
tap.ok(not left, "nothing is left", left)
tap.finish()
