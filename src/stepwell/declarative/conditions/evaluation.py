"""Conditions asked from an event loop: patterns are matched in a thread, so that nothing else waits for them.

The package `regex` stops a match after its time limit, but looks at the clock only once in several hundred steps,
and one step may walk through a whole text. It lets other threads run meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not


async def evaluate(condition: Condition, values: Mapping[str, Any]) -> bool:
    """As `condition.holds(values)`, in the same order, without keeping the event loop waiting for a pattern."""
    match condition:
        case AllOf(conditions=parts):
            for part in parts:
                if not await evaluate(part, values):
                    return False
            return True
        case AnyOf(conditions=parts):
            for part in parts:
                if await evaluate(part, values):
                    return True
            return False
        case Not(condition=inner):
            return not await evaluate(inner, values)
        case FieldCondition(kind="matches"):
            return await asyncio.to_thread(condition.holds, values)
        case _:
            return condition.holds(values)


async def evaluate_all(conditions: Mapping[int, Condition], values: Mapping[str, Any]) -> dict[int, bool]:
    """Which of these conditions hold, one after the other."""
    return {key: await evaluate(condition, values) for key, condition in conditions.items()}
