# SPDX-License-Identifier: Apache-2.0
"""AutoGen: a code executor over a sandbox, and an agent with the tool that runs code in it. autogen_executor.py [QUESTION]"""
import asyncio
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool
from e2b_code_interpreter import AsyncSandbox

LEASE_S = 300  # the pool kills the sandbox then, whatever has become of this program
CALL_S = 20  # one run of code


class SandboxExecutor(CodeExecutor):
    """Runs blocks of code, one after the other, in one sandbox."""

    async def start(self) -> None:
        self.sandbox = await AsyncSandbox.create(timeout=LEASE_S)

    async def stop(self) -> None:
        await self.sandbox.kill()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        output = ""
        for block in code_blocks:
            run = asyncio.ensure_future(self.sandbox.run_code(block.code, language=block.language, timeout=CALL_S))
            cancellation_token.link_future(run)
            try:
                execution = await run
            except Exception as e:  # it took too long, or the sandbox has ended
                return CodeResult(exit_code=1, output=f"{output}{type(e).__name__}: {e}")
            output += "".join(execution.logs.stdout + execution.logs.stderr) + (execution.text or "")
            if execution.error:
                return CodeResult(exit_code=1, output=output + execution.error.traceback)
        return CodeResult(exit_code=0, output=output)


async def ask(question):
    # OPENAI_BASE_URL says which; model_info is for models that AutoGen does not know by name
    model = OpenAIChatCompletionClient(
        model=os.environ.get("OPENAI_MODEL", "gpt-5"),
        timeout=60,
        model_info={"vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False},
    )
    async with SandboxExecutor() as executor:  # start(), and stop() at the end as `finally` does
        agent = AssistantAgent("agent", model, tools=[PythonCodeExecutionTool(executor)], reflect_on_tool_use=True, max_tool_iterations=10)
        result = await agent.run(task=question)
        return result.messages[-1].content


if __name__ == "__main__":
    print(asyncio.run(ask(" ".join(sys.argv[1:]) or "What is the sum of the first million squares, and which Linux says so?")))
