"""Spending limits of an agent, checked before each model call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from stepwell.agents.messages import Usage
from stepwell.agents.requests import BudgetKind


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what an agent may spend; None means unlimited.

    Once a limit is reached, a person is asked before the model is called again. With `whole_run`,
    the usage of all agents of the run counts, as of the last commit; otherwise only the agent's own.
    Agents that run concurrently in one superstep do not see each other's calls until it ends.
    """

    tokens: int | None = None
    calls: int | None = None
    cost: float | None = None
    seconds: float | None = None
    whole_run: bool = False

    def __post_init__(self) -> None:
        for kind in get_args(BudgetKind):
            limit: Any = getattr(self, kind)
            # `not limit >= 0` instead of `limit < 0`, so that NaN is refused too.
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0):
                raise ValueError(f"Budget({kind}=...) must be a number of at least 0, or None, not {limit!r}")
        if not isinstance(self.whole_run, bool):
            raise ValueError(f"Budget(whole_run=...) must be True or False, not {self.whole_run!r}")

    def find_exhausted(self, spent: Usage, raised: Mapping[str, float]) -> Iterator[tuple[BudgetKind, float, float]]:
        """Yield each limit that is reached, with its value and what was spent.

        `raised` holds limits that people have set in place of the original ones.
        """
        spent_by_kind: dict[BudgetKind, float] = {
            "tokens": spent.tokens,
            "calls": spent.calls,
            "cost": spent.cost or 0.0,
            "seconds": spent.seconds,
        }
        for kind, so_far in spent_by_kind.items():
            limit: float | None = getattr(self, kind)
            # Not `>=`: a price function or a person may supply NaN, which must stop the agent, not free it.
            if limit is not None and not so_far < raised.get(kind, limit):
                yield kind, raised.get(kind, limit), so_far
