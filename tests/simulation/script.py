"""What handlers do, said once: the model foretells it, and the executors do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.plan import Node, chance, trail


@dataclass(frozen=True)
class Token:
    """A message. No two of a run have the same trail."""

    trail: str
    hops: int  # so far it still goes


@dataclass(frozen=True)
class Question:
    trail: str
    hops: int
    asker: str


@dataclass(frozen=True)
class Due:
    """A timer that is due."""

    name: str


@dataclass(frozen=True)
class Act:
    kind: str
    value: Any = None


@dataclass
class Seen:
    """What a handler call goes by."""

    trail: str  # the name of the call
    hops: int
    is_reply: bool  # or a timer
    count: int = 0  # how many messages the executor has handled, with this one
    listed: int = 0  # the length of the list
    kept: bool = False  # whether its own value is there
    heard: int = 0  # the answer that it waited for

    @staticmethod
    def of(node: Node, given: Any, question: Question | None) -> Seen:
        if isinstance(given, Due):
            name, hops = given.name.split()
            return Seen(trail(node.name, "due", name), int(hops), True)
        if question is not None:
            return Seen(trail(node.name, question.trail, given), question.hops, True)
        tokens = given if isinstance(given, list) else [given]
        return Seen(trail(node.name, *(token.trail for token in tokens)), min(t.hops for t in tokens) - 1, False)


def acts_of(node: Node, seen: Seen, has_edges: bool) -> Iterator[Act]:
    """What a call does, in order; the same wherever it is done."""
    if node.appends:
        yield Act("append", f"{node.name} {seen.trail}")
    if node.sets:
        gone = seen.kept and chance("gone", seen.trail) % 4 == 0
        yield Act("delete") if gone else Act("set", seen.trail)
    if node.adds:
        yield Act("add", chance("add", seen.trail) % 100)
    if node.reminds and not seen.is_reply:
        yield Act("remind", f"{seen.trail} {seen.hops}")
    if node.asks and not seen.is_reply and chance("ask", seen.trail) % 2:
        yield Act("ask", Question(seen.trail, seen.hops, node.name))
        if node.withdraws:
            yield Act("ask", twin_of(Question(seen.trail, seen.hops, node.name)))
        return
    said = _said(node, seen)
    sent = node.sends if has_edges and seen.hops > 0 else 0
    for n in range(sent):
        yield Act("send", Token(trail("send", said, n), seen.hops))
    if node.yields or not sent:
        yield Act("yield", Token(trail("yield", said), seen.hops))


def twin_of(question: Question) -> Question:
    """The question to another person, which the answer to this one withdraws; and this one, of that."""
    mark = "'"
    name = question.trail.removesuffix(mark) if question.trail.endswith(mark) else question.trail + mark
    return Question(name, question.hops, question.asker)


def _said(node: Node, seen: Seen) -> str:
    count = seen.count if node.counts else 0
    listed = seen.listed if node.reads else 0
    return trail(seen.trail, count, listed, *([seen.heard] if seen.heard else []))


def waits_for(node: Node, seen: Seen) -> Question | None:
    """What a call asks in the middle, if it does."""
    if not node.waits or seen.is_reply or not chance("wait", seen.trail) % 2:
        return None
    return Question(trail("wait", seen.trail), seen.hops, node.name)


def answer_to(question: Question, asker: Node) -> int:
    """What a person says, or, if the question is left alone, what its default says."""
    return default_of(question) if is_ignored(question, asker) else chance("answer", question.trail) % 1000


def default_of(question: Question) -> int:
    return -1 - chance("default", question.trail) % 1000


def is_ignored(question: Question, asker: Node) -> bool:
    """Whether nobody answers before the deadline."""
    return asker.deadline > 0 and chance("ignored", question.trail) % 2 == 0
