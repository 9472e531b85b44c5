"""Requests that can be answered: those of a checkpoint, and those of the superstep that is not committed yet."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.log_keys import RecalledLog, answer_log_key, closed_request_key, delivery_of
from stepwell.model.message import Outcome, RoutedMessage
from stepwell.model.request import Request


def open_requests(at: Checkpoint, log: RecalledLog) -> dict[str, Request]:
    """Return the requests that can be answered: those of a checkpoint, and those in the superstep log after it."""
    closed = find_used(log) | find_left(at, log).keys()
    return {**{id: request for id, request in at.requests.items() if id not in closed}, **early_requests(at, log)}


def early_requests(at: Checkpoint, log: RecalledLog) -> dict[str, Request]:
    """Return the requests in the superstep log that can be answered.

    The answers of others are used already, or wait for the end of the superstep.
    """
    requests = {request.id: request for outcome in log.outcomes.values() for request in outcome.requests}
    ended = find_closed(log)
    requests |= {id: request for id, request in log.asked.items() if id not in ended}
    held = {message.reply.request_id for message in at.messages if message.is_held and message.reply is not None}
    closed = held | find_used(log) | find_left(at, log).keys()
    return {id: request for id, request in requests.items() if id not in closed}


def find_left(at: Checkpoint, log: RecalledLog) -> dict[str, Request]:
    """Return what handlers have asked in `ctx.ask` and do not wait for any more, without an answer.

    They have returned, or their question has expired.
    """
    awaited = {id: request for id, request in {**at.requests, **log.asked}.items() if request.is_awaited}
    used = find_used(log) if awaited else set()
    return {
        id: request
        for id, request in awaited.items()
        if id not in used and (delivery_of(str(request.waiting)) in log.outcomes or is_expired(request, log))
    }


def is_expired(request: Request, log: RecalledLog) -> bool:
    """Return whether the question of a handler got no answer in time, and the handler knows it."""
    ended = log.entries.get(answer_log_key(request.waiting or ""))
    return ended is not None and ended.answer is None


def find_closed(log: RecalledLog) -> dict[str, Request]:
    """Return what sub-workflow runs have asked and taken back."""
    asked = {key: entry.request for key, entry in log.entries.items() if entry.request is not None}
    closed = {key: closed_request_key(key) for key in asked}
    return {asked[key].id: asked[key] for key, end in closed.items() if end != key and end in log.entries}


def find_used(log: RecalledLog) -> set[str]:
    """Return the ids of the questions whose answers their handlers use."""
    return {entry.answer.request_id for entry in log.entries.values() if entry.answer is not None}


def release_answers(
    ordered: Sequence[Outcome], early: Sequence[RoutedMessage]
) -> tuple[list[Outcome], list[RoutedMessage], list[str]]:
    """Return outcomes without those requests that were answered before this commit, and the answers, to be delivered.

    An answer whose request was not made in the end is dropped: the third value has a warning for each.
    """
    answers = {(m.reply.child, inner_id(m.reply.request_id, m.reply.child)): m for m in early if m.reply is not None}
    released: list[RoutedMessage] = []
    distinct: list[Outcome] = []
    for outcome in ordered:
        unanswered = []
        for request in outcome.requests:
            answer = answers.pop((request.child, inner_id(request.id, request.child)), None)
            if answer is None:
                unanswered.append(request)
            else:
                released.append(replace(answer, takers=(request.executor,)))
        distinct.append(replace(outcome, requests=tuple(unanswered)) if outcome.requests else outcome)
    dropped = [message.reply.request_id for message in answers.values() if message.reply is not None]
    return distinct, released, [unused_warning(id) for id in dropped]


def unused_warning(request_id: str, by: str | None = None) -> str:
    """Return what is on record of a response that was accepted, and whose request was then closed without it."""
    sender = "" if by is None else f" of {by!r}"
    return f"the response{sender} to {request_id!r} is not used: nobody waits for it any more"


def inner_id(request_id: str, child: str | None) -> str:
    """Return the id that a sub-workflow's run itself uses for a request of this run."""
    return request_id if child is None else request_id.removesuffix(f"@{child}")
