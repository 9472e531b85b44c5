"""Requests that can be answered: those of a checkpoint, and those of the superstep that is not committed yet."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.log_keys import RecalledLog, closed_request_key
from stepwell.model.message import Outcome, RoutedMessage
from stepwell.model.request import Request


def open_requests(at: Checkpoint, log: RecalledLog) -> dict[str, Request]:
    """Return the requests that can be answered: those of a checkpoint, and those in the superstep log after it."""
    used = _find_used(log)
    return {**{id: request for id, request in at.requests.items() if id not in used}, **early_requests(at, log)}


def early_requests(at: Checkpoint, log: RecalledLog) -> dict[str, Request]:
    """Return the requests in the superstep log that can be answered.

    The answers of others are used already, or wait for the end of the superstep.
    """
    requests = {request.id: request for outcome in log.outcomes.values() for request in outcome.requests}
    for key, entry in log.entries.items():
        is_closed = closed_request_key(key) != key and closed_request_key(key) in log.entries
        if entry.request is not None and not is_closed:
            requests[entry.request.id] = entry.request
    held = {message.reply.request_id for message in at.messages if message.is_held and message.reply is not None}
    closed = held | _find_used(log)
    return {id: request for id, request in requests.items() if id not in closed}


def _find_used(log: RecalledLog) -> set[str]:
    """Return the ids of the questions whose answers their handlers use."""
    return {entry.answer.request_id for entry in log.entries.values() if entry.answer is not None}


def release_answers(
    ordered: Sequence[Outcome], early: Sequence[RoutedMessage]
) -> tuple[list[Outcome], list[RoutedMessage]]:
    """Return outcomes without those requests that were answered before this commit, and the answers, to be delivered.

    An answer whose request was not made in the end is dropped.
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
    return distinct, released


def inner_id(request_id: str, child: str | None) -> str:
    """Return the id that a sub-workflow's run itself uses for a request of this run."""
    return request_id if child is None else request_id.removesuffix(f"@{child}")
