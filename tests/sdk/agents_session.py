# SPDX-License-Identifier: Apache-2.0
"""How OpenAI's Agents SDK comes back to what was in a sandbox: agents_session.py WAY. It fails where the file is lost, or where
another sandbox was made in place of the one that there was."""
import asyncio, io, pathlib, sys

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from e2b import AsyncSandbox

FILE = pathlib.Path("kept.txt")
client = E2BSandboxClient()


async def begin(**options):
    session = await client.create(options=E2BSandboxClientOptions("e2b", template="code-interpreter", timeout=120, **options))
    await session.start()
    await session.write(FILE, io.BytesIO(b"kept"))
    return session


async def judge(session, sandbox_id):
    await session.start()
    assert (await session.read(FILE)).read() == b"kept", "the file"
    assert sandbox_id in (None, session.state.sandbox_id), "another sandbox"


async def paused():
    """With the options that the SDK has by itself, after a pause such as comes when a lease is over."""
    first = await begin()
    sandbox_id = first.state.sandbox_id
    try:
        await AsyncSandbox.pause(sandbox_id)
        await judge(await client.resume(first.state), sandbox_id)
    finally:
        await AsyncSandbox.kill(sandbox_id)


async def closed():
    """A session that pauses its sandbox when it is closed."""
    first = await begin(pause_on_exit=True)
    sandbox_id = first.state.sandbox_id
    try:
        await first.aclose()
        await judge(await client.resume(first.state), sandbox_id)
    finally:
        await AsyncSandbox.kill(sandbox_id)


async def persisted(how):
    """A workspace that is kept as @how says, and taken into another session."""
    first = await begin(workspace_persistence=how)
    try:
        kept = await first.persist_workspace()
    finally:
        await first.shutdown()
    second = await begin(workspace_persistence=how)
    try:
        await second.write(FILE, io.BytesIO(b"other"))
        await second.hydrate_workspace(kept)
        await judge(second, None)
    finally:
        await second.shutdown()


ways = {"paused": paused, "closed": closed, "tar": lambda: persisted("tar"), "snapshot": lambda: persisted("snapshot")}
asyncio.run(ways[sys.argv[1]]())
