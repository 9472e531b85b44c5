"""The differential kit: a program, written once, runs on Agent Framework and on the door.

A program is an async function of a namespace `af` (the module to use) and a `Trace`, in which it records
what it sees. Both traces are compared after ids and times are replaced, and after each superstep's events
are put into one order: what happens at the same time has no order of its own.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agent_framework
import agent_framework_orchestrations

from stepwell.compat import agent_framework as door
from stepwell.compat.agent_framework import orchestrations as door_orchestrations

Program = Callable[[Any, "Trace"], Awaitable[None]]

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"0x[0-9a-f]+")

# The order within a superstep and an executor; what handlers emit while they work comes first.
_RANKS = {"output": 1, "intermediate": 1, "request_info": 1, "executor_completed": 2, "executor_failed": 2}


def namespaces(folder: Path) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Return what a program gets as `af`: the framework, and the door; each with its teams and a folder."""
    return (
        _Namespace(agent_framework, agent_framework_orchestrations, folder / "theirs"),
        _Namespace(door, door_orchestrations, folder / "ours"),
    )


class _Namespace(SimpleNamespace):
    def __init__(self, module: Any, teams: Any, folder: Path) -> None:
        exceptions = importlib.import_module(f"{module.__name__}.exceptions")
        super().__init__(teams=teams, folder=folder, exceptions=exceptions)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Trace:
    """What a program saw."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def note(self, *values: Any) -> None:
        """Record values."""
        self.entries.append(tuple(plain(value) for value in values))

    def result(self, result: Any) -> None:
        """Record the result of a run: its events, and where the run is."""
        self.note("events", *in_order([shape(event) for event in result]))
        self.note("state", result.get_final_state())

    async def stream(self, stream: Any) -> Any:
        """Read a stream to its end, record its events, and return its result."""
        events = []
        try:
            async for event in stream:
                events.append(shape(event))
        finally:
            self.note("stream", *in_order(events))
        return await stream.get_final_response()

    async def attempt(self, call: Callable[[], Any]) -> Any:
        """Call something and record what it raises; return what it returns."""
        try:
            value = call()
            return await value if hasattr(value, "__await__") else value
        except Exception as error:  # noqa: BLE001 - what is raised is compared
            self.note("raised", error)
            return None


async def observe(program: Program, af: Any) -> list[Any]:
    """Run a program and return what it recorded; the last entry is what it raised, if it did."""
    trace = Trace()
    await trace.attempt(lambda: program(af, trace))
    return trace.entries


def shape(event: Any) -> dict[str, Any]:
    """Return an event as plain data, without what differs from run to run."""
    described: dict[str, Any] = {"type": event.type, "data": plain(event.data)}
    if event.type == "request_info":
        described["request"] = (event.source_executor_id, plain(event.request_type), plain(event.response_type))
    for name in ("executor_id", "iteration", "state"):
        if getattr(event, name) is not None:
            described[name] = plain(getattr(event, name))
    if event.details is not None:
        described["details"] = (event.details.error_type, event.details.message)
    return described


def in_order(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield events with those of each superstep in one order; supersteps in which nothing happened are left out."""
    within: list[dict[str, Any]] | None = None
    count = 0
    for event in events:
        if event["type"] == "superstep_started":
            within = []
        elif event["type"] == "superstep_completed" and within is not None:
            if within:
                count += 1
                yield {"superstep": count, "events": _sorted(within)}
            within = None
        elif within is not None:
            within.append(event)
        else:
            yield event
    if within:  # of a superstep that failed
        yield from _sorted(within)


def _sorted(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(events, key=lambda event: (event.get("executor_id") or "~", _RANKS.get(event["type"], 0)))


def plain(value: Any) -> Any:
    """Return a value as data that can be compared: ids are replaced, objects described by what they hold."""
    match value:
        case str():
            return _ADDRESS.sub("<address>", _ID.sub("<id>", str(value)))
        case None | bool() | int() | float() | bytes():
            return value
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case BaseException():
            return type(value).__name__, plain(str(value))
        case type():
            return value.__qualname__.rpartition(".")[2]
        case dict():
            return {plain(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted(map(plain, value), key=repr)
    return _describe(value)


def _describe(value: Any) -> Any:
    name = type(value).__name__
    if name == "WorkflowEvent":
        return shape(value)
    if dataclasses.is_dataclass(value):
        return name, {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return name, plain(value.model_dump())
    match name:
        case "Message":
            return name, value.role, value.author_name, [plain(content) for content in value.contents]
        case "Content":
            shown = ("text", "name", "arguments", "result", "call_id", "approved", "exception")
            return name, value.type, {key: plain(getattr(value, key, None)) for key in shown}
        case "AgentResponse" | "ChatResponse":
            return name, [plain(message) for message in value.messages]
        case "AgentResponseUpdate":
            return name, value.author_name, [plain(content) for content in value.contents]
    return name if not hasattr(value, "__args__") else plain(str(value))
