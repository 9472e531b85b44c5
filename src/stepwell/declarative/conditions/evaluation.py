"""Evaluate conditions without blocking the event loop: patterns are matched in a thread.

The package `regex` stops a match after its time limit, but checks the clock only once in several
hundred steps, and one step may scan a long text. It releases the GIL meanwhile, so a thread helps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not


async def evaluate(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Evaluate like `condition.holds(values)`, without blocking the event loop on patterns."""
    match condition:
        # A loop, because `all` and `any` cannot await and must stop at the first result as `holds`
        # does.
        case AllOf(conditions=parts) | AnyOf(conditions=parts):
            for part in parts:
                if await evaluate(part, values) is isinstance(condition, AnyOf):
                    return isinstance(condition, AnyOf)
            return isinstance(condition, AllOf)
        case Not(condition=inner):
            return not await evaluate(inner, values)
        case FieldCondition(kind="matches"):
            return await asyncio.to_thread(condition.holds, values)
        case _:
            return condition.holds(values)
