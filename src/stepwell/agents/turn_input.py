"""What a turn begins with: what was said, what goes for the agent, and what happened so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.agents.budget import Budget
from stepwell.agents.messages import NOTHING, Message, Usage
from stepwell.agents.requests import Reply


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What a turn begins with."""

    id: str  # the delivery it began with, which it keeps however often it is taken again
    messages: Sequence[Message]  # said since the agent's last turn
    conversation: Sequence[Message]  # everything said, these included
    history: Sequence[Any] = ()
    state: Any = None
    handoffs: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""  # of the names of its steps, if another turn was taken in the same handler call


@dataclass(frozen=True, slots=True)
class Rules:
    """What goes for an agent."""

    approve: frozenset[str] = frozenset()  # tools whose calls are asked about
    unsafe: frozenset[str] = frozenset()  # tools that must not be called again if nobody knows whether they ran
    budget: Budget | None = None
    price: Callable[[Usage], float] | None = None


def tool_names(listed: Any, what: str) -> frozenset[str]:
    """The names of tools in a list. Raises TypeError: a text would be read as its letters, and no tool be meant."""
    if isinstance(listed, str):
        raise TypeError(f"{what} is a list of the names of tools, not one text: {what}=[{listed!r}]")
    names: list[Any] = list(listed) if isinstance(listed, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what} is a list of the names of tools, not {listed!r:.80}")
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Past:
    """What happened so far in a turn that was interrupted, and in those before it."""

    done: Mapping[str, Any] = field(default_factory=dict)  # by the name of the step
    replies: Mapping[str, Reply] = field(default_factory=dict)  # what people answered, by the place of the question
    spent: Usage = NOTHING  # that counts towards the budget, without this turn
    raised: Mapping[str, float] = field(default_factory=dict)  # limits of the budget
