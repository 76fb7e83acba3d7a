"""Records what the peers' servers stream as fixtures of the readers.

    python3 record.py FOLDER

writes FOLDER/{peer}/{provider}-{case}.{sse,ndjson}. `cargo xtask record` calls it with the
peers set up. What differs from one time to the next and says nothing is replaced, and nobody
draws lots: recorded twice, the files are the same, so a difference is a change of the peer's.
"""

import json
import pathlib
import re
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[3]
CLOCK = {"type": "object", "properties": {"zone": {"type": "string"}}}
NAMED = {"name": "clock", "description": "Tells the time."}


def anthropic(text, limit):
    tool = {**NAMED, "input_schema": CLOCK}
    said = [{"role": "user", "content": text}]
    body = {"model": "m", "max_tokens": limit, "stream": True, "temperature": 0}
    return "/v1/messages", {**body, "messages": said, "tools": [tool]}


def openai_chat(text, limit):
    tool = {"type": "function", "function": {**NAMED, "parameters": CLOCK}}
    said = [{"role": "user", "content": text}]
    usage = {"include_usage": True}
    body = {"model": "m", "max_tokens": limit, "stream": True, "stream_options": usage}
    return "/v1/chat/completions", {**body, "temperature": 0, "messages": said, "tools": [tool]}


def openai_responses(text, limit):
    tool = {"type": "function", **NAMED, "parameters": CLOCK}
    body = {"model": "m", "max_output_tokens": limit, "stream": True, "temperature": 0}
    return "/v1/responses", {**body, "input": text, "tools": [tool]}


def gemini(text, limit):
    said = [{"role": "user", "parts": [{"text": text}]}]
    tool = {"functionDeclarations": [{**NAMED, "parameters": CLOCK}]}
    body = {"contents": said, "tools": [tool], "generationConfig": {"maxOutputTokens": limit}}
    return "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse", body


def ollama(text, limit):
    tool = {"type": "function", "function": {**NAMED, "parameters": CLOCK}}
    said = [{"role": "user", "content": text}]
    body = {"model": "m", "stream": True, "options": {"num_predict": limit}}
    return "/api/chat", {**body, "messages": said, "tools": [tool]}


def scrubbed(stream):
    """A stream without what its server makes up anew each time."""
    names = {}

    def numbered(found):
        return names.setdefault(found[0], b'"%s%d"' % (found[1], len(names) + 1))

    for pattern, instead in (
        # Its model is a temporary file, whose path is irrelevant.
        (rb'"/[^"]*/tiny.gguf"', b'"tiny.gguf"'),
        (rb'"([a-z]+[-_])(?=[^"]*[A-Z0-9])[A-Za-z0-9_-]{16,}"', numbered),
        (rb'"(created|created_at|completed_at)":\d+', rb'"\1":1794787200'),
        (rb'"created_at":"[^"]*"', b'"created_at":"2026-11-16T00:00:00.000Z"'),
        (rb'"(\w+_(?:ms|per_second))":[-+.e\d]+', rb'"\1":1.5'),
    ):
        stream = re.sub(pattern, instead, stream)
    return stream


class Server:
    """A server that prints its address and ends with its input."""

    def __init__(self, command):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            if "http://127.0.0.1:" in line:
                self.url = line[line.index("http://127.0.0.1:") :].strip()
                return
        raise SystemExit(f"{command} ended without an address")

    def record(self, provider, text, path):
        where, body = provider(text, limit=24)
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + where, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(scrubbed(answer.read()))
        print(path)

    def stop(self):
        self.process.kill()
        self.process.wait()


def main():
    folder = pathlib.Path(sys.argv[1])
    aimock = HERE / "node_modules/@copilotkit/aimock/dist/cli.js"
    options = ["--port", "0", "--log-level", "info", "--strict", "--fixtures"]
    server = Server(["node", str(aimock), *options, str(HERE / "aimock.json")])
    for provider in (anthropic, openai_chat, openai_responses, gemini, ollama):
        ending = "ndjson" if provider is ollama else "sse"
        for case, text in (("words", "words"), ("calls", "What time is it?")):
            path = folder / "aimock" / f"{provider.__name__}-{case}.{ending}"
            server.record(provider, text, path)
    server.stop()
    python = str(ROOT / "target/peers/llama/bin/python3")
    server = Server([python, str(HERE / "llama.py")])
    for provider in (anthropic, openai_chat, openai_responses):
        server.record(provider, "Hi", folder / "llama" / f"{provider.__name__}-words.sse")
    server.stop()


main()
