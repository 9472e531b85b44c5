"""A record of the side effects of handlers, by idempotency key."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stepwell.graph.context import WorkflowContext


class Ledger:
    """A stand-in for an outside service that honours idempotency keys.

    Call `ledger.do(ctx, "charge", 30)` in a handler, or `ledger.do(idempotency_key, "charge", 30)` in a
    step. What is done twice under one key counts once in `effects`; `calls` counts every call.
    """

    def __init__(self) -> None:
        self._done: dict[tuple[str, str], Any] = {}
        self.calls: Counter[str] = Counter()  # how often each effect was requested, repetitions included

    def do(self, ctx: WorkflowContext[Any, Any] | str, what: str, value: Any = None) -> None:
        """Record an effect under an idempotency key, by default that of the handler."""
        self.calls[what] += 1
        self._done.setdefault((ctx if isinstance(ctx, str) else ctx.idempotency_key, what), value)

    @property
    def effects(self) -> list[tuple[str, Any]]:
        """Every effect once, as (what, value), sorted, so that the order does not depend on timing."""
        return sorted(((what, value) for (_, what), value in self._done.items()), key=repr)

    def clear(self) -> None:
        """Forget all effects and calls."""
        self._done.clear()
        self.calls.clear()
