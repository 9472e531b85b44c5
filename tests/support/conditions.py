"""Conditions of a scheduler, evaluated at once: a test needs no thread for a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.declarative.schedule import Scheduler


def find_holding(scheduler: Scheduler, id: str, outputs: Mapping[str, Any]) -> dict[int, bool]:
    """Return which conditions hold after a node has succeeded, by the number of their edge."""
    conditions, values = scheduler.conditions_after(id, outputs)
    return {edge: condition.holds(values) for edge, condition in conditions.items()}
