"""A model on this machine: a small server that speaks the chat completions protocol, at once and in pieces.

What it replies depends on the messages alone. The first word of what the user said last is its orders:

    pay 40            calls the tool `pay` with amount=40
    weather Rome Oslo calls the tool `weather` for each city, all in one reply
    both 40 Rome      calls both tools in one reply
    again 40 41       calls `pay` for each amount, one after the other
    call boss         calls the tool `boss`, without arguments
    report Rome       gives {"city": "Rome", "degrees": 21}: as the format that is wanted, or by the tool that takes it
    anything else     is repeated

Once the tools have answered, it says what they gave. Like the real services it refuses a conversation in which
a tool call is not followed by its results.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
REPORT = {"city", "degrees"}  # what a report is made of
TOKENS_IN, TOKENS_OUT = 10, 7  # for each message it is given, and for each reply


@dataclass
class Reply:
    text: str = ""
    calls: list[Json] = field(default_factory=list)

    @property
    def finish(self) -> str:
        return "tool_calls" if self.calls else "stop"


class Server:
    """The server as a test sees it. Whoever calls a model does so at an address of its own, and is known by it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._requests: dict[str, list[Json]] = {}

    def url(self, caller: str) -> str:
        return f"http://127.0.0.1:{self._port}/{caller}/v1"

    def requests(self, caller: str) -> list[Json]:
        """What was asked, in order: the bodies of the requests."""
        return self._requests.setdefault(caller, [])

    def said(self, caller: str, request: int = -1) -> list[tuple[str, str]]:
        """The messages of a request, the last unless told otherwise: role and text."""
        messages = self.requests(caller)[request]["messages"]
        return [(message["role"], text_of(message)) for message in messages]


@contextmanager
def model_server() -> Iterator[Server]:
    """A server at a free port of this machine, until the block is left."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    http.seen = server = Server(http.server_address[1])  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def text_of(message: Json) -> str:
    content = message.get("content")
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content or ""


def reply_to(body: Json) -> Reply:
    messages = body["messages"]
    at = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    results = [text_of(message) for message in messages[at + 1 :] if message["role"] == "tool"]
    words = text_of(messages[at]).split() if at >= 0 else []
    if words[:1] == ["again"] and len(results) < len(words) - 1:
        amount = words[len(results) + 1]
        return Reply(calls=[_call(f"call_{at}_{amount}", "pay", amount=int(amount))])
    if results:
        return Reply("Results: " + " | ".join(results))
    return _ordered(words, body, f"call_{at}")


def _ordered(words: list[str], body: Json, id: str) -> Reply:
    match words:
        case ["pay", amount]:
            return Reply(calls=[_call(f"{id}_pay", "pay", amount=int(amount))])
        case ["weather", *cities]:
            return Reply(calls=[_call(f"{id}_{city}", "weather", city=city) for city in cities])
        case ["both", amount, city]:
            pay = _call(f"{id}_pay", "pay", amount=int(amount))
            return Reply("Let me see.", [pay, _call(f"{id}_{city}", "weather", city=city)])
        case ["call", tool]:
            return Reply("One moment.", [_call(f"{id}_{tool}", tool)])
        case ["report", city]:
            return _report({"city": city, "degrees": 21}, body, id)
    return Reply("You said: " + " ".join(words))


def _report(report: Json, body: Json, id: str) -> Reply:
    if body.get("response_format", {}).get("type") == "json_schema":
        return Reply(json.dumps(report))
    for tool in body.get("tools", []):
        if set(tool["function"]["parameters"].get("properties", {})) == REPORT:
            return Reply(calls=[_call(f"{id}_report", tool["function"]["name"], **report)])
    return Reply("There is no way to report.")


def _call(id: str, tool: str, **arguments: Any) -> Json:
    return {"id": id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}


def problem_with(messages: list[Json]) -> str | None:
    """Why a real service would refuse these messages."""
    owed: list[str] = []
    for n, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in owed:
                return f"message {n} is the result of {message.get('tool_call_id')!r}, which was not called before it"
            owed.remove(message["tool_call_id"])
        elif owed:
            return f"message {n} comes before the results of {owed}"
        else:
            owed = [call["id"] for call in message.get("tool_calls") or ()]
    return f"the results of {owed} are missing" if owed else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        caller = self.path.split("/")[1]
        self.server.seen.requests(caller).append(body)  # type: ignore[attr-defined]
        if (problem := problem_with(body["messages"])) is not None:
            self._send(400, {"error": {"message": problem, "type": "invalid_request_error"}})
        elif body.get("stream"):
            self._stream(body, reply_to(body))
        else:
            self._send(200, _completion(body, reply_to(body)))

    def _send(self, status: int, data: Json) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, body: Json, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in _chunks(body, reply):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def _known(body: Json, kind: str) -> Json:
    return {"id": "chatcmpl-1", "created": 1, "model": body["model"], "object": kind}


def _usage(body: Json) -> Json:
    read = TOKENS_IN * len(body["messages"])
    return {"prompt_tokens": read, "completion_tokens": TOKENS_OUT, "total_tokens": read + TOKENS_OUT}


def _completion(body: Json, reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = reply.calls
    choice = {"index": 0, "message": message, "finish_reason": reply.finish}
    return {**_known(body, "chat.completion"), "choices": [choice], "usage": _usage(body)}


def _chunks(body: Json, reply: Reply) -> Iterator[Json]:
    """A reply in pieces: word by word, and the arguments of a tool call in two halves."""
    known = _known(body, "chat.completion.chunk")

    def piece(delta: Json, finish: str | None = None) -> Json:
        return {**known, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield piece({"role": "assistant", "content": ""})
    words = reply.text.split(" ") if reply.text else []
    for n, word in enumerate(words):
        yield piece({"content": word if n + 1 == len(words) else f"{word} "})
    for n, call in enumerate(reply.calls):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        begun = {**call, "function": {"name": call["function"]["name"], "arguments": arguments[:half]}}
        yield piece({"tool_calls": [{"index": n, **begun}]})
        yield piece({"tool_calls": [{"index": n, "function": {"arguments": arguments[half:]}}]})
    yield piece({}, reply.finish)
    yield {**known, "choices": [], "usage": _usage(body)}
