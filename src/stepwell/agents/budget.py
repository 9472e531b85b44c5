"""How much an agent may use up before somebody is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from stepwell.agents.messages import Usage
from stepwell.agents.requests import BudgetKind


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits; what is None is not limited. A model is not called any more once one of them is reached.

    With `whole_run` everything that the agents of the run used up counts, as of the last commit; otherwise only what
    the agent itself did. Agents that work side by side in one superstep do not see each other's calls before its end.
    """

    tokens: int | None = None
    calls: int | None = None
    cost: float | None = None
    seconds: float | None = None
    whole_run: bool = False

    def __post_init__(self) -> None:
        for kind in get_args(BudgetKind):
            limit: Any = getattr(self, kind)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0):
                raise ValueError(f"Budget({kind}=...) is a number from 0 on, or None for no limit, not {limit!r}")
        if not isinstance(self.whole_run, bool):
            raise ValueError(f"Budget(whole_run=...) is True or False, not {self.whole_run!r}")

    def used_up(self, spent: Usage, raised: Mapping[str, float]) -> Iterator[tuple[BudgetKind, float, float]]:
        """The limits that are reached, with what was spent; `raised` are limits that hold instead of these."""
        spent_of: dict[BudgetKind, float] = {
            "tokens": spent.tokens,
            "calls": spent.calls,
            "cost": spent.cost or 0.0,
            "seconds": spent.seconds,
        }
        for kind, so_far in spent_of.items():
            limit: float | None = getattr(self, kind)
            if limit is not None and not so_far < raised.get(kind, limit):  # also if that is no number
                yield kind, raised.get(kind, limit), so_far
