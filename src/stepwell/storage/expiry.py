"""Requests whose deadline passed without a response, as what is stored afterwards shows them.

Nobody can respond after the deadline, so a response of a later time is the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.errors import RequestExpired
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.request import AnswerRecord, Request


def find_expired(commit: Commit, before: Checkpoint | None, early: Mapping[str, Request]) -> tuple[str, ...]:
    """Return the ids of the requests that a commit closes with their defaults, or that it fails because of.

    `early` are those in the superstep log. What answers one that a handler waits for is there already.
    """
    if before is None or before.header.caller is not None:  # the caller of a run keeps its deadlines
        return ()
    if commit.kind is CommitKind.FAILED and any(_is_expiry(failure.error_type) for failure in commit.failures):
        requests = {**before.requests, **early}.values()
        without_default = [request for request in requests if request.default is None]
        return tuple(request.id for request in without_default if _has_passed(request, commit.stamp.at))
    answered = [({**early, **before.requests}.get(answer.request_id), answer) for answer in commit.answers]
    return tuple(
        answer.request_id
        for request, answer in answered
        if request is not None and not request.is_awaited and is_default(request, answer)
    )


def is_default(request: Request, answer: AnswerRecord) -> bool:
    """Return whether a request was answered by its deadline."""
    return _has_passed(request, answer.at)


def _has_passed(request: Request, at: str) -> bool:
    return request.deadline is not None and request.deadline <= at


def _is_expiry(error_type: str) -> bool:
    return error_type.rpartition(".")[2] == RequestExpired.__name__
