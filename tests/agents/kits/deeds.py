"""What the agents of the kits do: tools that leave a trace, and what is reported."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from stepwell.agents import current_tool_call

TRACE, HANGING = "CONTRACT_TRACE", "CONTRACT_HANGING"
"""Environment variables: the file where each effect is a line; the city whose weather never comes."""

NO_KEY = "none"


class Report(BaseModel):
    """The weather in a city."""

    city: str
    degrees: int


async def pay(amount: int) -> str:
    """Pay an amount."""
    _leave_trace(f"pay {amount}")
    return f"paid {amount}"


async def weather(city: str) -> str:
    """The weather in a city."""
    if os.environ.get(HANGING) == city:
        await asyncio.Event().wait()
    _leave_trace(f"weather {city}")
    return f"{city} is sunny"


def _leave_trace(effect: str) -> None:
    """One write to the end of the file: what the kernel has taken survives the death of the process."""
    path = os.environ.get(TRACE)
    if path is None:
        return
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{effect} {_key()}\n".encode())
    finally:
        os.close(handle)


def _key() -> str:
    """What the tool can know this very call by."""
    try:
        return current_tool_call().idempotency_key
    except RuntimeError:
        return NO_KEY


def traces(path: Path) -> list[tuple[str, str]]:
    """What was done, in order: the effect, and the key of the call."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(effect, key) for effect, _, key in (line.rpartition(" ") for line in lines)]
