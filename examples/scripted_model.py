# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a language model: scripted_model.py [PORT].

It speaks OpenAI's chat completions and responses, as far as the examples need them, and needs no package, no key and no
network. It has one trick: it runs the code that stands in the question between two lines of ```, and then tells what came
of it. So what an example prints at its end can only come from the sandbox.
"""
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEFAULT_CODE = "import platform\nprint(sum(n * n for n in range(10**6)), 'says Linux', platform.release())"


def text_of(content):
    """What a message says; its content is a text or a list of parts."""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else json.dumps(content)


def code_in(question):
    """The code that the question holds."""
    block = re.search(r"```(?:python|py)?\n(.*?)\n```", question, re.DOTALL)
    return block.group(1) if block else DEFAULT_CODE


def call_for(tools, code):
    """Name and arguments of the tool that runs code: it has a parameter for code, or for a command of a shell."""
    for tool in tools:
        function = tool.get("function", tool)
        for parameter in function.get("parameters", {}).get("properties", {}):
            if parameter == "code":
                return function["name"], {"code": code}
            if parameter == "cmd":
                return function["name"], {"cmd": "python3 - <<'END_OF_CODE'\n" + code + "\nEND_OF_CODE"}
    raise ValueError("no tool runs code")


def chat(request):
    """The message that answers @request, of /v1/chat/completions."""
    messages = request["messages"]
    last = messages[-1]
    question = text_of(next(m["content"] for m in messages if m["role"] == "user"))
    if last["role"] == "tool":
        return {"role": "assistant", "content": "The sandbox says: " + text_of(last["content"])}
    if request.get("tools"):
        name, arguments = call_for(request["tools"], code_in(question))
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    # without tools: an agent that reads code out of the text (smolagents), and tells what it gave in a message behind that
    code = code_in(question)
    if any(m["role"] == "assistant" for m in messages):
        seen = text_of(last["content"]).replace("Observation:", "").strip()  # that word would end the agent's reading
        code = f"final_answer({'The sandbox says: ' + seen!r})"
    return {"role": "assistant", "content": f"Thought: I run code.\n<code>\n{code}\n</code>"}


def respond(request):
    """The items that answer @request, of /v1/responses."""
    items = request["input"] if isinstance(request["input"], list) else [{"role": "user", "content": request["input"]}]
    last = items[-1]
    if last.get("type") == "function_call_output":
        text = {"type": "output_text", "text": "The sandbox says: " + text_of(last["output"]), "annotations": []}
        return [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}]
    question = text_of(next(item["content"] for item in items if item.get("role") == "user"))
    name, arguments = call_for(request["tools"], code_in(question))
    return [{"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name, "status": "completed",
             "arguments": json.dumps(arguments)}]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request.get("stream"):
            self.answer(400, {"error": {"message": "this model does not stream"}})
        elif self.path == "/v1/chat/completions":
            message = chat(request)
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            self.answer(200, {"id": "chat_1", "object": "chat.completion", "created": 0, "model": request["model"],
                              "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                              "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
        elif self.path == "/v1/responses":
            self.answer(200, {"id": "resp_1", "object": "response", "created_at": 0, "model": request["model"],
                              "status": "completed", "output": respond(request), "tools": request.get("tools", []),
                              "tool_choice": "auto", "parallel_tool_calls": False,
                              "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                                        "input_tokens_details": {"cached_tokens": 0},
                                        "output_tokens_details": {"reasoning_tokens": 0}}})
        else:
            self.answer(404, {"error": {"message": "there is no " + self.path}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), Handler)
    print(f"export OPENAI_BASE_URL=http://127.0.0.1:{server.server_port}/v1 OPENAI_API_KEY=none", flush=True)
    server.serve_forever()
