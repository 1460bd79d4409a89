# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Agents SDK, with its own client for E2B's sandboxes: an agent with a shell. openai_agents.py [QUESTION]"""
import asyncio
import os
import sys

from agents import Runner, set_tracing_disabled
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxTimeouts
from agents.run import RunConfig
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell

LEASE_S = 300  # the pool kills the sandbox then, whatever has become of this program
CALL_S = 20  # one command

OPTIONS = E2BSandboxClientOptions(
    "e2b",
    template="code-interpreter",
    timeout=LEASE_S,
    on_timeout="kill",  # the SDK's own choice is a pause, which keeps the sandbox until somebody kills it
    timeouts=E2BSandboxTimeouts(exec_timeout_unbounded_s=CALL_S),
)


async def ask(question):
    set_tracing_disabled(True)  # else a record of each run goes to OpenAI, whichever model OPENAI_BASE_URL names
    agent = SandboxAgent(
        name="agent",
        model=os.environ.get("OPENAI_MODEL", "gpt-5"),
        instructions="Answer by running commands.",
        capabilities=[Shell()],
    )
    session = await E2BSandboxClient().create(options=OPTIONS)
    try:
        await session.start()
        config = RunConfig(sandbox=SandboxRunConfig(session=session))
        result = await Runner.run(agent, question, run_config=config, max_turns=10)
        return result.final_output
    finally:
        await session.shutdown()  # kills it


if __name__ == "__main__":
    print(asyncio.run(ask(" ".join(sys.argv[1:]) or "What is the sum of the first million squares, and which Linux says so?")))
