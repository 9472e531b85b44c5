"""Requests and responses: checks what is asked and what comes back, and handles deadlines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Never

from stepwell.errors import (
    DefinitionError,
    GraphChanged,
    RequestError,
    RequestExpired,
    ResponseRejected,
    RunError,
    UnknownRequest,
)
from stepwell.graph.context import NO_DEFAULT
from stepwell.graph.executor import Executor
from stepwell.graph.graph import Graph
from stepwell.graph.type_matching import describe, flatten
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.payload import Pack, Payload
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedResponse, Signal
from stepwell.model.valid_text import is_text
from stepwell.storage import clock
from stepwell.storage.answers import answered_error, find_answer, find_pending_answer, is_repeated, send_answer
from stepwell.storage.archive import Archive
from stepwell.storage.response_types import NotOfType, answer_as, named_in, schema_of, type_words
from stepwell.storage.signals import answer_key, next_answer_key


def check_request_id(id: object, open_ids: Collection[str]) -> None:
    """Raise ValueError for an id that a handler chose for its request and that cannot be used."""
    if id is None:
        return
    if not isinstance(id, str) or not id or not is_text(id):
        raise ValueError(f"request_id must be a non-empty string of valid Unicode, not {id!r}")
    if id in open_ids:
        raise ValueError(f"request {id!r} is open already; leave request_id out, or make it unique")


def check_withdrawal(at: Checkpoint, request_id: str) -> None:
    """Raise RequestError for a request that a handler cannot take back."""
    request = at.requests.get(request_id)
    if request is None:
        raise UnknownRequest(
            f"run {at.run_id!r} has no open request {request_id!r} to withdraw; open: "
            f"{', '.join(map(repr, at.requests)) or 'none'}",
            run_id=at.run_id,
            request_id=request_id,
        )
    if request.is_awaited:
        raise RequestError(
            f"request {request_id!r} cannot be withdrawn: {request.executor!r} waits for the answer in ctx.ask",
            run_id=at.run_id,
            request_id=request_id,
        )


def make_request(
    id: str,
    executor: Executor,
    question: object,
    response_type: Any,
    *,
    deadline: datetime | timedelta | None,
    default: Any,
    pack: Pack,
    waiting: str | None = None,
) -> Request:
    """Return a request that a handler asks. Raises DefinitionError, ValueError or TypeError for a wrong one.

    `waiting` says where the handler waits for the response; otherwise a response handler must accept it.
    """
    if waiting is None:
        _check_answerable(executor, question, response_type)
    asked_at = clock.now()
    return Request(
        id=id,
        executor=executor.id,
        payload=pack(question, "$.request"),
        request_type=type(question).__name__,
        response_type=type_words(response_type),
        schema=schema_of(response_type),
        at=asked_at.isoformat(),
        deadline=_deadline_text(asked_at, deadline),
        default=None if default is NO_DEFAULT else pack(_default_for(default, response_type), "$.default"),
        waiting=waiting,
    )


def _check_answerable(executor: Executor, question: object, response_type: object) -> None:
    """Raise DefinitionError unless a response handler accepts such a response to such a request.

    It must name the requested types exactly: after a restart their names are all that is known of them.
    """
    accepted = executor._handler_table.response_types(question)
    accepted_names = {describe(reply_type) for reply_type in accepted}
    missing = [
        reply_type
        for reply_type in flatten(response_type) or (Never,)
        if not accepted_names & {describe(reply_type), "Any", "object"}
    ]
    if missing:
        handled = " | ".join(describe(reply_type) for reply_type in accepted) or "no response to it"
        raise DefinitionError(
            f"{executor.id!r} requests a {type_words(response_type)} in response to a {type(question).__name__}, but "
            f"none of its response handlers accepts {describe(missing[0])}: they accept {handled}; add a "
            f"@response_handler for it"
        )


def _default_for(default: Any, response_type: object) -> Any:
    """Return a default as a response of the requested type. Raises TypeError if it is not one."""
    try:
        return answer_as(default, [response_type])
    except NotOfType as error:
        raise TypeError(f"the default does not have the requested type: {error}") from error


def _deadline_text(asked_at: datetime, deadline: datetime | timedelta | None) -> str | None:
    """Return a deadline as it is stored: UTC, ISO 8601."""
    if deadline is None:
        return None
    if not isinstance(deadline, datetime | timedelta):
        raise TypeError(f"the deadline must be a timedelta, or a datetime with a time zone, not {deadline!r}")
    at = asked_at + deadline if isinstance(deadline, timedelta) else deadline
    if at.tzinfo is None:
        raise ValueError(f"the deadline {at} has no time zone; use datetime.now(UTC) + ..., or a timedelta")
    return at.astimezone(UTC).isoformat()


def has_passed(moment: str | None) -> bool:
    return moment is not None and clock.until(moment) <= timedelta(0)


def check_responses(
    graph: Graph,
    at: Checkpoint,
    responses: Mapping[str, Any],
    *,
    requests: Mapping[str, Request],
    pending: Mapping[str, Signal],
    pack: Pack,
) -> dict[str, Payload]:
    """Return responses to open requests, converted to the requested types. `pending` are the signals of the run.

    Raises UnknownRequest, ResponseRejected or RequestExpired, naming the request, before anything has changed. A
    request with a response on its way has not expired: that one was in time, and stands.
    """
    answers = {}
    for id, value in responses.items():
        request = _find_open(at, requests, id)
        is_answered = find_pending_answer(answer_key(at.header.epoch, request), pending) is not None
        if has_passed(request.deadline) and at.header.caller is None and not is_answered:
            raise RequestExpired(
                f"the response to {id!r} is too late: the deadline was {request.deadline}",
                run_id=at.run_id,
                request_id=id,
            )
        answers[id] = convert_response(graph, at, request, value, pack)
    return answers


def check_no_caller(at: Checkpoint) -> None:
    """Raise RunError for a sub-workflow run: only its caller may answer it, send to it or move it back."""
    if at.header.caller is not None:
        raise RunError(
            f"run {at.run_id!r} is a sub-workflow run of {at.header.caller!r}, which asks its questions and gets the "
            f"answers: respond to that run, or fork this one from a checkpoint",
            run_id=at.run_id,
        )


async def send_responses(
    archive: Archive,
    at: Checkpoint,
    answers: Mapping[str, Payload],
    *,
    requests: Mapping[str, Request],
    pending: Mapping[str, Signal],
    by: str | None = None,
    comment: str | None = None,
    as_driver: bool = False,
) -> dict[str, Signal]:
    """Send responses to open requests of a run; return them by key. `pending` are the signals that wait already.

    Raises ResponseRejected, naming who was first, if a request was answered already, and what `Archive.send` does.
    """
    now = clock.stamp()
    signals = {
        answer_key(at.header.epoch, requests[id]): ReceivedResponse(id, payload, by=by, comment=comment, at=now)
        for id, payload in answers.items()
    }
    # All are checked before the first is sent: all or none.
    for key, signal in signals.items():
        earlier = find_pending_answer(key, pending)
        if earlier is not None and not is_repeated(earlier, signal):
            raise answered_error(at.run_id, signal.request_id, earlier.by, earlier.at)
    return {
        await send_answer(archive, at.run_id, key, signal, as_driver=as_driver): signal
        for key, signal in signals.items()
    }


async def explain_unknown(archive: Archive, unknown: UnknownRequest) -> RequestError:
    """Return the error for a request that is not open: if it was answered, it says by whom and when."""
    answer = await find_answer(archive, unknown.run_id, unknown.request_id)
    return unknown if answer is None else answered_error(unknown.run_id, unknown.request_id, answer.by, answer.at)


def find_overdue(at: Checkpoint, early: Mapping[str, Request] = {}) -> list[Request]:
    """Return the open requests past their deadline; none for a sub-workflow run, whose caller keeps the deadlines.

    `early` are those of the superstep that is not committed yet: not those that its handlers wait for, because these
    notice it themselves.
    """
    if at.header.caller is not None:
        return []
    returned = [request for id, request in early.items() if id not in at.requests and not request.is_awaited]
    return [request for request in (*at.requests.values(), *returned) if has_passed(request.deadline)]


async def send_defaults(archive: Archive, at: Checkpoint, late: list[Request]) -> bool:
    """Answer overdue requests with their defaults; a response that came in time stands, because it was first.

    Return whether there was one to answer.
    """
    defaults = [(request, request.default) for request in late if request.default is not None]
    for request, default in defaults:
        answer = ReceivedResponse(request.id, default, at=clock.stamp())
        key = answer_key(at.header.epoch, request)
        # What has an earlier key was rejected, or will be; a valid response that was sent just now comes before this.
        while not await archive.send(at.run_id, key, answer, as_driver=True):
            key = next_answer_key(key)
    return bool(defaults)


def expiry_error(at: Checkpoint, request: Request) -> RequestExpired:
    """Return the error for a request without a default that is past its deadline."""
    return RequestExpired(
        f"run {at.run_id!r}: request {request.id!r} of {request.executor!r} got no response; the deadline was "
        f"{request.deadline}, and it has no default",
        run_id=at.run_id,
        request_id=request.id,
    )


def _find_open(at: Checkpoint, requests: Mapping[str, Request], id: str) -> Request:
    request = requests.get(id)
    if request is None:
        open_ids = ", ".join(map(repr, requests)) or "none"
        raise UnknownRequest(
            f"run {at.run_id!r} has no open request {id!r} (it may have been answered already); open: {open_ids}",
            run_id=at.run_id,
            request_id=id,
        )
    return request


def convert_response(graph: Graph, at: Checkpoint, request: Request, value: Any, pack: Pack) -> Payload:
    """Return a response converted to the requested type.

    Raises ResponseRejected, naming the request, for another type, and GraphChanged if its executor is not there.
    """
    return pack(_convert(graph, at, request, value), f"$.responses.{request.id}")


def _convert(graph: Graph, at: Checkpoint, request: Request, value: Any) -> Any:
    if request.waiting is not None:
        return _check_for_asker(graph, at, request, value)
    executor = graph.executors.get(request.executor)
    if executor is None:
        missing = f"executor {request.executor!r}, whose request {request.id!r} is open, is not in this workflow"
        raise GraphChanged(
            f"run {at.run_id!r} of workflow {at.header.workflow!r} cannot be answered with this code: {missing}; "
            f"respond with the code that drives the run, or without any: stepwell.admin.respond",
            differences=[missing],
        )
    accepted = executor._handler_table.response_types(request.payload.open())
    wanted = [reply_type for reply_type in accepted if named_in(request.response_type, reply_type)] or [Any]
    try:
        return answer_as(value, wanted)
    except NotOfType as error:
        raise rejection_error(at, request, error) from error


_PLAIN = {"bool": bool, "int": int, "float": float, "str": str, "None": None}


def _check_for_asker(graph: Graph, at: Checkpoint, request: Request, value: Any) -> Any:
    """Return a response to a handler that waits: it converts it itself, and alone has the type.

    Raises ResponseRejected for what cannot be right: an object of another class, the wrong plain type, or JSON that
    does not make the class that the code of the executor has under the name in the request.
    """
    if at.header.caller is not None:
        return value  # it was accepted for the run of the caller: the handler rejects it and frees the request
    names = request.response_type.split(" | ")
    is_plain = value is None or type(value) in (bool, int, float, str, list, dict)
    try:
        if all(name in _PLAIN for name in names):
            return answer_as(value, [_PLAIN[name] for name in names])
        if not is_plain and not {describe(type(value)), "Any", "object"} & set(names):
            raise NotOfType(f"a {type(value).__name__} is not {request.response_type}")
        wanted = _find_types(graph, request, names) if is_plain else None
        if wanted is not None:
            answer_as(value, wanted)
    except NotOfType as error:
        raise rejection_error(at, request, error) from error
    return value


def _find_types(graph: Graph, request: Request, names: Sequence[str]) -> list[type] | None:
    """Return the types that the names of a request stand for in the code of its executor; None if that is not sure."""
    executor = graph.executors.get(request.executor)
    if executor is None:
        return None
    found = [NoneType if name == "None" else _PLAIN.get(name) or executor._find_named(name) for name in names]
    types = [each for each in found if isinstance(each, type)]
    # Another class may have the name. One with the same schema takes the same JSON.
    is_sure = len(types) == len(found) and schema_of(reduce(or_, types)) == request.schema
    return types if is_sure else None


def rejection_error(at: Checkpoint, request: Request, error: NotOfType) -> ResponseRejected:
    """Return the error for a response that does not have the requested type."""
    return ResponseRejected(
        f"the response to {request.id!r} of {request.executor!r} in run {at.run_id!r} is not accepted: {error}",
        run_id=at.run_id,
        request_id=request.id,
    )
