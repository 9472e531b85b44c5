"""Stable names for the steps and requests of a turn: the part of the turn, then the order within it.

A part is a branch of the handler that takes the turn (see engine/branches.py). Agent libraries start
and end tasks as they please, so their adapters name the part explicitly instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stepwell.agents.replies import ToolCall
from stepwell.engine.handler_steps import HandlerSteps


class TurnPlaces:
    """The places of one turn."""

    def __init__(self, steps: HandlerSteps) -> None:
        self._steps = steps
        self._turn = steps.branch().id
        self._names: Counter[str] = Counter()
        # Places of tool calls, by call id and the branch whose model requested them: models in two
        # branches may use the same call ids.
        self._calls: dict[tuple[str, str], str] = {}

    def part(self, within: str | None) -> str:
        """Return the named part, or else the calling branch; empty for the turn itself."""
        return within if within is not None else self._branches()[0]

    def next(self, name: str, within: str | None) -> str:
        """Return the place of the next step or request with this name."""
        part = self.part(within)
        name = f"{name} in {part}" if part else name
        self._names[name] += 1
        return f"{name} {self._names[name]}"

    def add_calls(self, calls: Sequence[ToolCall], number: int, within: str | None) -> None:
        """Record the tool calls that the model's reply with this number, in its part of the turn, requests."""
        branch, part = self._branches()[0] if within is None else "", self.part(within)
        reply = f"{part}:{number}" if part else str(number)
        self._calls |= {(branch, call.id): f"{reply}/{call.id}" for call in calls}

    def of_call(self, call: ToolCall) -> str | None:
        """Return the place of a tool call in the latest reply that requested it, or None."""
        # A tool often runs in a task of its own, so the branches around the calling one count too.
        for branch in [*self._branches(), ""]:
            if (branch, call.id) in self._calls:
                return self._calls[branch, call.id]
        return None

    def _branches(self) -> list[str]:
        """List the calling branch and those around it, innermost first."""
        return ["" if branch.id == self._turn else branch.id for branch in self._steps.branch().ancestors()]
