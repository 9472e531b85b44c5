"""Keyword arguments of a run that its agents pass on to their tools and model clients. They are never stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

TOOL_ARGUMENTS = "function_invocation_kwargs"
CLIENT_ARGUMENTS = "client_kwargs"

_EVERY_AGENT = ""


def by_executor(given: Mapping[str, Any], executor_ids: Collection[str]) -> dict[str, Any]:
    """Return arguments by executor.

    If a key is the id of an executor, the keys are executors, and "__global__" is for all of them. Otherwise every
    agent gets everything.
    """
    if not any(key in executor_ids for key in given):
        return {_EVERY_AGENT: dict(given)}
    own = {id: dict(arguments) for id, arguments in given.items() if id != "__global__"}
    return {_EVERY_AGENT: dict(given.get("__global__", {})), **own}


def arguments_of(executor_id: str, private: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return what an agent passes on to its tools or its model client: its own arguments beat those for all."""
    given: Mapping[str, Any] = private.get(kind, {})
    return {**given.get(_EVERY_AGENT, {}), **given.get(executor_id, {})}
