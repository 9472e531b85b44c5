"""The steps of a turn: their stable names, and the results that they already have.

A name is the part of the turn, then the order within it. A part is a branch of the handler that takes
the turn (see engine/handler/branches.py). Agent libraries start and end tasks as they please, so their
adapters name the part explicitly instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.agents.messages import ToolCall
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.errors import RunError
from stepwell.model.timing import CallSummary


@dataclass(slots=True)
class ToolDone:
    """The result of a tool, or an error for the agent to see."""

    value: Any = None
    error: str | None = None
    seconds: float = 0.0


async def give_way() -> None:
    """Let siblings hand their outcomes to the store before foreign code runs."""
    # The first call of a model may build a client and import half a library, and block the event
    # loop for seconds. A crash in that time would lose outcomes that are complete.
    await asyncio.sleep(0)


class TurnSteps:
    """The steps of one turn; `committed` holds the results that earlier commits contain."""

    def __init__(self, ctx: InternalContext, prefix: str, committed: Mapping[str, Any]) -> None:
        self._ctx, self._prefix, self._committed = ctx, prefix, committed
        self._turn = ctx.steps.branch().id
        self._names: Counter[str] = Counter()
        self._in_progress: set[str] = set()
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

    def add_calls(self, calls: Sequence[ToolCall], number: int, within: str | None) -> list[str]:
        """Record the tool calls that a reply of the model requests, and return their places.

        The reply has this number in its part of the turn.
        """
        branch, part = self._branches()[0] if within is None else "", self.part(within)
        reply = f"{part}:{number}" if part else str(number)
        places = [f"{reply}/{call.id}" for call in calls]
        self._calls |= {(branch, call.id): place for call, place in zip(calls, places, strict=True)}
        return places

    def of_call(self, call: ToolCall) -> str | None:
        """Return the place of a tool call in the latest reply that requested it, or None."""
        # A tool often runs in a task of its own, so the branches around the calling one count too.
        branches = [*self._branches(), ""]
        return next((self._calls[branch, call.id] for branch in branches if (branch, call.id) in self._calls), None)

    def _branches(self) -> list[str]:
        """List the calling branch and those around it, innermost first."""
        return ["" if branch.id == self._turn else branch.id for branch in self._ctx.steps.branch().ancestors()]

    def is_committed(self, name: str) -> bool:
        """Return whether the step was done in an earlier part of the turn, which is committed."""
        return self._prefix + name in self._committed

    def is_logged(self, name: str) -> bool:
        """Return whether the step was done in the current superstep."""
        return self._ctx.steps.has_result(self._prefix + name)

    def is_done(self, name: str) -> bool:
        return self.is_committed(name) or self.is_logged(name)

    def logged(self) -> dict[str, Any]:
        """Return the results in the superstep log that belong to this turn, by the name of the step."""
        # Everything in the log, not only what this attempt recalled: one that died may have got
        # further. Read from the log, because the agent may have changed the objects it received.
        steps, kinds = self._ctx.steps, tuple(f"{self._prefix}{kind} " for kind in ("model", "tool", "step", "began"))
        return {name: steps.get_result(name) for name in steps.list_names() if name.startswith(kinds)}

    def summarise(self, name: str, summary: CallSummary) -> None:
        """Add what a call came to to its record in the commit. One of an earlier commit is recorded there."""
        self._ctx.steps.summarise(self._prefix + name, summary)

    async def run_once(
        self, name: str, function: Callable[[], Awaitable[Any]], call: str | None = None
    ) -> tuple[Any, str]:
        """Return the result of a step, and how it was obtained.

        That is "done" (now), "recalled" (from the superstep log) or "committed" (in an earlier part of
        the turn).
        """
        name = self._prefix + name
        if name in self._committed:
            return self._committed[name], "committed"
        if name in self._in_progress:
            raise RunError(
                f"{self._ctx.executor_id!r} in run {self._ctx.run_id!r} makes the call {name!r} twice at the same "
                f"time; make one call after the other, or name the parts of the turn that run concurrently: "
                f"turn.model(..., within=...)",
                run_id=self._ctx.run_id,
            )
        how = "recalled"

        async def do() -> Any:
            nonlocal how
            how = "done"
            await give_way()
            return await function()

        self._in_progress.add(name)
        try:
            return await self._ctx.named_step(name, do, call), how
        finally:
            self._in_progress.discard(name)
