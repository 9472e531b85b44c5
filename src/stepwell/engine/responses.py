"""Answers: may this question be asked, is this answer the one it wants, and what happens when time runs out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Never

from stepwell.errors import DefinitionError, RequestExpired, ResponseRejected, RunError, UnknownRequest
from stepwell.graph.executor import Executor
from stepwell.graph.graph import Graph
from stepwell.graph.type_matching import describe, flatten
from stepwell.model.payload import Pack, Payload
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.response_types import NotOfType, answer_as, named_in, type_words
from stepwell.storage.signals import answer_key, write_response


def check_answerable(executor: Executor, question: object, response_type: object) -> None:
    """Raises DefinitionError unless a response handler takes such an answer to such a question.

    It must name the very types that are asked for: after a restart, they are all that is known of the answer.
    """
    accepted = executor._handler_table.response_types(question)
    words = {describe(reply_type) for reply_type in accepted}
    missing = [
        reply_type
        for reply_type in flatten(response_type) or (Never,)
        if not words & {describe(reply_type), "Any", "object"}
    ]
    if missing:
        named = " | ".join(describe(reply_type) for reply_type in accepted) or "no answer to that at all"
        raise DefinitionError(
            f"{executor.id!r} asks a {type(question).__name__} and wants a {type_words(response_type)}, but no "
            f"@response_handler of it takes a {describe(missing[0])} for that: they take {named}"
        )


def default_for(default: Any, response_type: object) -> Any:
    """A default as the answer it stands for. Raises TypeError if it is not one."""
    try:
        return answer_as(default, [response_type])
    except NotOfType as error:
        raise TypeError(f"the default is not what is asked for: {error}") from error


def deadline_text(asked_at: datetime, deadline: datetime | timedelta | None) -> str | None:
    """A deadline as it is stored: UTC."""
    if deadline is None:
        return None
    at = asked_at + deadline if isinstance(deadline, timedelta) else deadline
    if at.tzinfo is None:
        raise ValueError(f"the deadline {at} has no time zone; use datetime.now(UTC) + ..., or a timedelta")
    return at.astimezone(UTC).isoformat()


def has_passed(moment: str | None) -> bool:
    return moment is not None and clock.until(moment) <= timedelta(0)


def check_responses(graph: Graph, at: Checkpoint, responses: Mapping[str, Any], pack: Pack) -> dict[str, Payload]:
    """Answers to open questions, each of the type that was asked for.

    Raises UnknownRequest, ResponseRejected or RequestExpired, naming the question, before anything has changed.
    """
    return {id: _check_response(graph, at, id, value, pack) for id, value in responses.items()}


def check_no_caller(at: Checkpoint) -> None:
    """Raises RunError if a run works for another: answering it, sending to it and moving it back is up to that one."""
    if at.header.caller is not None:
        raise RunError(
            f"run {at.run_id!r} works for run {at.header.caller!r}, which asks its questions and gets the answers: "
            f"answer that one, or go on from a checkpoint of this one in a new run",
            run_id=at.run_id,
        )


async def send_responses(archive: Archive, at: Checkpoint, answers: Mapping[str, Payload]) -> None:
    """Leave answers for a run. Raises ResponseRejected if somebody else was first: the first answer wins, for ever."""
    signals = {id: (answer_key(at.header.epoch, at.requests[id]), write_response(id, p)) for id, p in answers.items()}
    pending = dict(await archive.pending_signals(at.run_id))
    for id, (key, signal) in signals.items():  # before the first is posted: all of them are taken, or none
        if pending.get(key, signal) != signal:
            raise _already_answered_error(at, id)
    for id, (key, signal) in signals.items():
        # the very same answer may be there from a call that was cut short: it is being given again
        if key not in pending and not await archive.send(at.run_id, key, signal):
            raise _already_answered_error(at, id)


def find_overdue(at: Checkpoint) -> list[Request]:
    """The open questions whose deadline has passed. A run that works for another leaves the time to that one."""
    if at.header.caller is not None:
        return []
    return [request for request in at.requests.values() if has_passed(request.deadline)]


async def send_defaults(archive: Archive, at: Checkpoint, late: list[Request]) -> None:
    """Answer what is overdue with its default; an answer that came in time stands."""
    for request in late:
        if request.default is not None:
            signal = write_response(request.id, request.default)
            await archive.send(at.run_id, answer_key(at.header.epoch, request), signal)


def expiry_error(at: Checkpoint, late: list[Request]) -> RequestExpired | None:
    """The error of a run that waited for an answer in vain; None if every overdue question has a default."""
    unanswered = [request for request in late if request.default is None]
    if not unanswered:
        return None
    request = unanswered[0]
    return RequestExpired(
        f"run {at.run_id!r} waited in vain: {request.id!r} of {request.executor!r} was to be answered until "
        f"{request.deadline}, and has no default",
        run_id=at.run_id,
        request_id=request.id,
    )


def _check_response(graph: Graph, at: Checkpoint, id: str, value: Any, pack: Pack) -> Payload:
    request = at.requests.get(id)
    if request is None:
        open_ids = ", ".join(repr(request_id) for request_id in at.requests) or "none"
        raise UnknownRequest(
            f"run {at.run_id!r} does not ask {id!r} (or it was answered already); open are: {open_ids}",
            run_id=at.run_id,
            request_id=id,
        )
    if has_passed(request.deadline) and at.header.caller is None:
        raise RequestExpired(
            f"the answer to {id!r} came too late: its deadline was {request.deadline}", run_id=at.run_id, request_id=id
        )
    return convert_response(graph, at, request, value, pack)


def convert_response(graph: Graph, at: Checkpoint, request: Request, value: Any, pack: Pack) -> Payload:
    """An answer as what was asked for. Raises ResponseRejected, naming the question, if it cannot be made into that."""
    return pack(_convert(graph, at, request, value), f"$.responses.{request.id}")


def _convert(graph: Graph, at: Checkpoint, request: Request, value: Any) -> Any:
    accepted = graph.executors[request.executor]._handler_table.response_types(request.payload.open())
    wanted = [reply_type for reply_type in accepted if named_in(request.response_type, reply_type)] or [Any]
    try:
        return answer_as(value, wanted)
    except NotOfType as error:
        raise ResponseRejected(
            f"the answer to {request.id!r} of {request.executor!r} in run {at.run_id!r} is not accepted: {error}",
            run_id=at.run_id,
            request_id=request.id,
        ) from error


def _already_answered_error(at: Checkpoint, id: str) -> ResponseRejected:
    return ResponseRejected(
        f"{id!r} of run {at.run_id!r} was answered already, and the first answer stands",
        run_id=at.run_id,
        request_id=id,
    )
