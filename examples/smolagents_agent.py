# SPDX-License-Identifier: Apache-2.0
"""smolagents' CodeAgent, whose code runs in a sandbox. smolagents_agent.py [QUESTION]"""
import functools
import os
import sys

from smolagents import CodeAgent, LogLevel, OpenAIModel

LEASE_S = 300  # the pool kills the sandbox then, whatever has become of this program
CALL_S = 20  # one run of code


def ask(question):
    model = OpenAIModel(os.environ.get("OPENAI_MODEL", "gpt-5"), client_kwargs={"timeout": 60})  # OPENAI_BASE_URL says which
    # the sandbox is made here; what is in executor_kwargs goes to Sandbox.create()
    agent = CodeAgent(
        tools=[], model=model, executor_type="e2b", executor_kwargs={"timeout": LEASE_S}, max_steps=10, verbosity_level=LogLevel.OFF
    )
    try:
        # the executor has no setting for the limit of one run
        sandbox = agent.python_executor.sandbox
        sandbox.run_code = functools.partial(sandbox.run_code, timeout=CALL_S)
        return agent.run(question)
    finally:
        agent.cleanup()


if __name__ == "__main__":
    print(ask(" ".join(sys.argv[1:]) or "What is the sum of the first million squares, and which Linux says so?"))
