"""The input of a turn: messages to answer, the agent's rules, and what earlier attempts have done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.agents.budget import Budget
from stepwell.agents.messages import NO_USAGE, Message, Usage
from stepwell.agents.requests import TurnResponse


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
class AgentRules:
    """The restrictions on an agent's calls."""

    approve: frozenset[str] = frozenset()  # tools whose calls need approval
    unsafe: frozenset[str] = frozenset()  # tools that must not be repeated when their outcome is unknown
    budget: Budget | None = None
    price: Callable[[Usage], float] | None = None


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
