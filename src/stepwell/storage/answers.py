"""Responses on their way to a run: the first one to a request wins."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import msgspec

from stepwell.errors import ResponseRejected
from stepwell.kernel.requests import open_requests
from stepwell.model.request import AnswerRecord
from stepwell.model.signal import ReceivedJson, ReceivedResponse, Signal
from stepwell.storage.archive import Archive
from stepwell.storage.signals import answer_key, first_answer_key, next_answer_key

Response = ReceivedResponse | ReceivedJson


class PendingAnswer(msgspec.Struct, frozen=True):
    """A response that was sent, and that the run has not applied yet: who sent it, and when."""

    by: str | None
    at: str  # UTC, ISO 8601; empty if that is not known


def find_pending_answer(key: str, signals: Mapping[str, Signal]) -> Response | None:
    """Return the response that is on its way; `key` is that of the first response to its request."""
    for sent_as, signal in signals.items():
        if isinstance(signal, Response) and first_answer_key(sent_as) == key:
            return signal
    return None


async def send_answer(archive: Archive, run_id: str, key: str, response: Response, *, as_driver: bool = False) -> str:
    """Send a response; return its key. `key` is that of the first response to its request.

    The same response of the same sender may be there already, from a call that crashed: that is not
    an error. Raises ResponseRejected, naming who was first, if another one is on its way or was
    applied; and what `Archive.send` does.
    """
    first = key
    while not await archive.send(run_id, key, response, as_driver=as_driver):
        earlier = (await archive.pending_signals(run_id)).get(key)
        if isinstance(earlier, Response):
            if is_repeated(earlier, response):
                return key
            raise answered_error(run_id, response.request_id, earlier.by, earlier.at)
        # Applied, or rejected by the run: then the request is open, and another response may follow.
        stored = await archive.look(run_id)
        if stored.head is None or first not in {
            answer_key(stored.head.header.epoch, request) for request in open_requests(stored.head, stored.log).values()
        }:
            raise await find_answered_error(archive, run_id, response.request_id)
        key = next_answer_key(key)
    return key


def is_repeated(earlier: Response, response: Response) -> bool:
    """Return whether a response is one that was sent before, by the same sender."""
    return type(earlier) is type(response) and (earlier.value, earlier.by) == (response.value, response.by)


async def find_answer(archive: Archive, run_id: str, request_id: str) -> AnswerRecord | None:
    """Return the latest answer to a request that a run has used, if the history still has it."""
    # Before its commit, the answer to a handler that waits is in the superstep log.
    logged = [entry.answer for entry in (await archive.look(run_id)).log.entries.values() if entry.answer is not None]
    committed = (answer for commit in reversed(await archive.commits(run_id)) for answer in commit.answers)
    return next((answer for answer in chain(logged, committed) if answer.request_id == request_id), None)


async def find_answered_error(archive: Archive, run_id: str, request_id: str) -> ResponseRejected:
    """Return the error for a request that was answered; it says by whom, if the history still does."""
    answer = await find_answer(archive, run_id, request_id)
    return answered_error(run_id, request_id, *(None, "") if answer is None else (answer.by, answer.at))


def answered_error(run_id: str, request_id: str, by: str | None, at: str) -> ResponseRejected:
    who = "" if by is None else f" by {by!r}"
    when = f" at {at}" if at else ""
    return ResponseRejected(
        f"request {request_id!r} of run {run_id!r} was answered already{who}{when}; the first response stands",
        run_id=run_id,
        request_id=request_id,
    )
