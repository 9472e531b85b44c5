"""Where the steps and questions of a turn stand: in which part of it, and there by their order.

A part is a branch of the handler that takes the turn (see engine/branches.py), unless it is named: libraries start and
end tasks as they like, so what they call is placed by name.
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
        self._calls: dict[tuple[str, str], str] = {}  # places of tool calls, by the branch whose model wants them

    def part(self, within: str | None) -> str:
        """The part of the turn that is asking: the one that is named, else its branch; empty for the turn itself."""
        return within if within is not None else self._branches()[0]

    def next(self, name: str, within: str | None) -> str:
        """The place of the next step or question of a name."""
        part = self.part(within)
        name = f"{name} in {part}" if part else name
        self._names[name] += 1
        return f"{name} {self._names[name]}"

    def add_calls(self, calls: Sequence[ToolCall], number: int, within: str | None) -> None:
        """Remember which reply of a model wants these tools called: that of this number in its part of the turn."""
        branch, part = self._branches()[0] if within is None else "", self.part(within)
        reply = f"{part}:{number}" if part else str(number)
        self._calls |= {(branch, call.id): f"{reply}/{call.id}" for call in calls}

    def of_call(self, call: ToolCall) -> str | None:
        """The place of a tool call, in the latest reply that wants it; None if none in this part of the turn does."""
        for branch in [*self._branches(), ""]:
            if (branch, call.id) in self._calls:
                return self._calls[branch, call.id]
        return None

    def _branches(self) -> list[str]:
        """The branch that is asking, and those around it."""
        return ["" if branch.id == self._turn else branch.id for branch in self._steps.branch().ancestors()]
