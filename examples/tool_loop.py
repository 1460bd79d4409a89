# SPDX-License-Identifier: Apache-2.0
"""An agent without a framework: a model of OpenAI's kind, one tool, and a sandbox. tool_loop.py [QUESTION]"""
import json
import os
import sys

from e2b_code_interpreter import Sandbox
from openai import OpenAI

LEASE_S = 300  # the pool kills the sandbox then, whatever has become of this program
CALL_S = 20  # one run of code
TURNS = 10  # of the model

TOOL = {
    "type": "function",
    "function": {
        "name": "run_python",
        "description": "Runs Python in a sandbox. Variables and files are there at the next call.",
        "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    },
}


def run_python(sandbox, code):
    """What the code printed, its last value and its error, as text: a model can mend what it can read."""
    try:
        execution = sandbox.run_code(code, timeout=CALL_S)
    except Exception as e:  # it took too long, or the sandbox has ended
        return f"{type(e).__name__}: {e}"
    parts = execution.logs.stdout + execution.logs.stderr + [r.text for r in execution.results if r.text]
    if execution.error:
        parts.append(execution.error.traceback)
    return "\n".join(parts) or "(no output)"


def ask(question):
    model = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY say which
    messages = [{"role": "user", "content": question}]
    sandbox = Sandbox.create(timeout=LEASE_S)
    try:
        for _ in range(TURNS):
            answer = model.chat.completions.create(
                model=os.environ.get("OPENAI_MODEL", "gpt-5"), messages=messages, tools=[TOOL], timeout=60
            )
            message = answer.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                output = run_python(sandbox, json.loads(call.function.arguments)["code"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
        return f"no answer after {TURNS} turns"
    finally:
        sandbox.kill()


if __name__ == "__main__":
    print(ask(" ".join(sys.argv[1:]) or "What is the sum of the first million squares, and which Linux says so?"))
