"""The input of a turn: messages to answer, the agent's rules, and what earlier attempts have done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from stepwell.agents.messages import NO_USAGE, Message, Usage
from stepwell.agents.requests import BudgetKind, TurnResponse


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What the agent sees of a turn."""

    id: str  # the delivery that started the turn; unchanged when the turn is taken again
    messages: Sequence[Message]  # new since the agent's last turn
    conversation: Sequence[Message]  # all messages, the new ones included
    history: Sequence[Any] = ()
    state: Any = None
    handoffs: Mapping[str, str] = field(default_factory=dict)
    # Prepended to the names of steps, so that two turns in one handler call do not share them.
    prefix: str = ""


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


@dataclass(frozen=True, slots=True)
class AgentRules:
    """The restrictions on an agent's calls, and on its answer."""

    approve: frozenset[str] = frozenset()  # tools whose calls need approval
    unsafe: frozenset[str] = frozenset()  # tools that must not be repeated when their outcome is unknown
    budget: Budget | None = None
    price: Callable[[Usage], float] | None = None
    # What the answer is to be, a dataclass; libraries that can ask for it in a format of their model do.
    answer_type: Any = None


def tool_names(names: Any, option: str) -> frozenset[str]:
    """Return a list of tool names as a set.

    Raises TypeError for a single string: it would be read as its letters, and no tool would match.
    """
    if isinstance(names, str):
        raise TypeError(f"{option} must be a list of tool names, not one string: {option}=[{names!r}]")
    items: list[Any] = list(names) if isinstance(names, Iterable) else [None]
    if not all(isinstance(name, str) for name in items):
        raise TypeError(f"{option} must be a list of tool names, not {names!r:.80}")
    return frozenset(items)


@dataclass(frozen=True, slots=True)
class Past:
    """What an interrupted turn, and the turns before it, have already done."""

    done: Mapping[str, Any] = field(default_factory=dict)  # committed results, by the name of the step
    responses: Mapping[str, TurnResponse] = field(default_factory=dict)  # by the place of the request
    spent: Usage = NO_USAGE  # counts towards the budget; this turn is not included
    raised: Mapping[str, float] = field(default_factory=dict)  # limits of the budget that people changed
