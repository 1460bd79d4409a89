# SPDX-License-Identifier: Apache-2.0
"""An agent of Agno with Agno's own toolkit for E2B's sandboxes. agno_agent.py [QUESTION]"""
import functools
import os
import sys

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.e2b import E2BTools

LEASE_S = 300  # the pool kills the sandbox then, whatever has become of this program
CALL_S = 20  # one run of code


def ask(question):
    # the toolkit makes its sandbox here
    tools = E2BTools(timeout=LEASE_S, include_tools=["run_python_code", "run_command", "read_file_content"])
    try:
        # the toolkit has no setting for the limit of one run
        tools.sandbox.run_code = functools.partial(tools.sandbox.run_code, timeout=CALL_S)
        agent = Agent(
            model=OpenAIChat(id=os.environ.get("OPENAI_MODEL", "gpt-5"), timeout=60),  # OPENAI_BASE_URL says which
            tools=[tools],
            tool_call_limit=10,
            telemetry=False,
        )
        return agent.run(question).content
    finally:
        tools.sandbox.kill()


if __name__ == "__main__":
    print(ask(" ".join(sys.argv[1:]) or "What is the sum of the first million squares, and which Linux says so?"))
