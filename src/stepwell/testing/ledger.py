"""What handlers did to the world, by the key they did it under."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stepwell.graph.context import WorkflowContext


class Ledger:
    """Stands for the world outside, which honours idempotency keys: what is done twice under one key counts once.

    `ledger.do(ctx, "charge", 30)` in a handler; `effects` is what the world came to.
    """

    def __init__(self) -> None:
        self._done: dict[tuple[str, str], Any] = {}
        self.calls: Counter[str] = Counter()  # how often each thing was really done

    def do(self, ctx: WorkflowContext[Any, Any], what: str, value: Any = None) -> None:
        """Do something to the world."""
        self.calls[what] += 1
        self._done.setdefault((ctx.idempotency_key, what), value)

    @property
    def effects(self) -> list[tuple[str, Any]]:
        """What was done, each once, in an order that does not depend on who was faster."""
        return sorted(((what, value) for (_, what), value in self._done.items()), key=repr)

    def clear(self) -> None:
        """A new world."""
        self._done.clear()
        self.calls.clear()
