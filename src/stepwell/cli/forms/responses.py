"""Respond to a request from the command line: find it, check the response, send it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from stepwell.admin.lookup import NotFound, find_run, has_prefix
from stepwell.admin.requests import OpenRequest, open_requests, send_response
from stepwell.admin.schemas.json_schema import shape_of
from stepwell.admin.schemas.validation import UnusableSchema, problems
from stepwell.admin.state_edits import check_plain
from stepwell.cli import server_runs
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed, command_line, refusals
from stepwell.cli.forms.agent_forms import schema_for
from stepwell.cli.input_text import PASS_RESPONSE, read_input
from stepwell.cli.next_driver import find_next_driver
from stepwell.cli.server_client import ServerClient
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_note
from stepwell.error_ids import ErrorId

CHOICES = 20  # requests to choose from
_SHOWN = 5  # problems of one response
_PAGE = 500  # requests read at a time
_LOOK_BACK = 500  # commits searched for what closed a request


def respond(
    run: str | None, request: str | None, argument: str | None, *, by: str | None = None, comment: str | None = None
) -> tuple[OpenRequest, str]:
    """Find the request, and send the argument, or what a person enters in a form; return it, and who applies it."""
    text = None if argument is None else read_input("@-" if argument == "-" else argument, PASS_RESPONSE)

    async def find(storage: BuiltInStorage) -> tuple[list[OpenRequest], str]:
        """Return the requests that may be meant and, if the response to the only one is sent, who applies it."""
        questions = await _find_requests(storage, run, request)
        # A request that has its response already is not what a person means, if there is another.
        waiting = [question for question in questions if not question.answered] or questions
        if text is None or len(waiting) > 1:
            return waiting, ""
        return waiting, await _send(storage, waiting[0], _read_response(waiting[0], text), by=by, comment=comment)

    questions, driver = run_on_store(find, waits_for_nothing_else=True)
    if driver:
        return questions[0], driver
    from stepwell.cli.forms.dialogue import ask_for_response, choose  # lazy: 10 ms, and a script is never asked

    # No store is open while a person thinks.
    question = choose(questions[:CHOICES])
    check_unanswered(question)
    answer = ask_for_response(question) if text is None else _read_response(question, text)
    send = partial(_send_if_unchanged, question=question, value=answer, by=by, comment=comment)
    return question, run_on_store(send, waits_for_nothing_else=True)


def respond_on_server(
    server: ServerClient, run: str | None, request: str | None, argument: str | None, *, comment: str | None = None
) -> tuple[OpenRequest, str, str]:
    """Do as `respond`, on a server; return the request, who responded, and who applies the response."""
    text = None if argument is None else read_input("@-" if argument == "-" else argument, PASS_RESPONSE)
    questions = _find_on_server(server, run, request)
    waiting = [question for question in questions if not question.answered] or questions
    question = waiting[0]
    if text is None or len(waiting) > 1:
        from stepwell.cli.forms.dialogue import ask_for_response, choose  # lazy: 10 ms, and a script is never asked

        question = choose(waiting[:CHOICES])
    check_unanswered(question)
    value = ask_for_response(question) if text is None else _read_response(question, text)
    check_answer(question, value)
    path = ("runs", question.run_id, "requests", question.request_id, "response")
    with refusals():
        sent = server.post(*path, value=value, comment=comment)
    return question, sent["by"], sent["driver"]["sentence"]


def _find_on_server(server: ServerClient, run: str | None, request: str | None) -> list[OpenRequest]:
    """Return the open requests that may be meant, at least one. Raises CommandFailed or NotFound."""
    if run is None:
        inbox = list(islice(server_runs.open_requests(server), CHOICES))
        if not inbox:
            raise CommandFailed(ErrorId.NOT_OPEN, "there are no open requests", code=NOT_FOUND)
        return inbox
    try:
        run_id = server_runs.find_checkpoint(server, run).run_id
    except NotFound:
        # The one argument may be a request id.
        if request is not None or not run or not (inbox := match_requests(run, [*server_runs.open_requests(server)])):
            raise
        return inbox
    questions = list(server_runs.open_requests(server, run_id))
    if not questions and request is None:
        raise _not_open(f"run {run_id!r} has no open requests: it is {server.get('runs', run_id)['status']}")
    matching = questions if request is None else match_requests(request, questions)
    if request is not None and not matching:
        raise _not_open(_describe_missing(run_id, request, questions))
    return matching


async def _find_requests(storage: BuiltInStorage, run: str | None, request: str | None) -> list[OpenRequest]:
    """Return the open requests that may be meant, at least one.

    Raises CommandFailed or NotFound.
    """
    if run is None:
        return await _read_inbox(storage, "")
    try:
        info = await find_run(storage, run)
    except NotFound:
        # The one argument may be a request id. Not an empty one: `respond "$UNSET"` must not pick
        # some other request.
        if request is not None or not run or not (inbox := await _read_inbox(storage, run)):
            raise
        return inbox
    with refusals():
        questions = await open_requests(storage, info.run_id)
    if not questions and request is None:
        raise _not_open(f"run {info.run_id!r} has no open requests: it is {info.standing}")
    matching = questions if request is None else match_requests(request, questions)
    if request is not None and not matching:
        raise await _explain_gone(storage, info.run_id, request, questions)
    return matching


async def _read_inbox(storage: BuiltInStorage, prefix: str) -> list[OpenRequest]:
    """Return open requests with ids that start with `prefix`, over all runs."""
    runs = [run_id async for run_id in _find_asking_runs(storage, prefix)]
    if not runs and not prefix:
        raise CommandFailed(ErrorId.NOT_OPEN, "there are no open requests", code=NOT_FOUND)
    questions = [question for run_id in dict.fromkeys(runs) for question in await open_requests(storage, run_id)]
    return match_requests(prefix, questions) if prefix else questions


async def _find_asking_runs(storage: BuiltInStorage, prefix: str) -> AsyncIterator[str]:
    """Yield the runs of some requests with this prefix, and of all with exactly this id."""
    # A complete id must be found even if many others share its prefix, so with a prefix all pages
    # are read.
    last, room = None, CHOICES
    while page := await storage.pending_requests(after=last, limit=_PAGE if prefix else CHOICES):
        for request in page:
            if request.request_id == prefix or (room and (not prefix or has_prefix(request.request_id, prefix))):
                room = max(0, room - 1)
                yield request.run_id
        if not room and not prefix:
            return
        last = page[-1]


async def _explain_gone(
    storage: BuiltInStorage, run_id: str, request: str, questions: list[OpenRequest]
) -> CommandFailed:
    """Return the error for a request that is not open; it names the commit that closed it."""
    from stepwell.admin.run_history import read_commits  # lazy: 10 ms, and only this error reads the history

    run = await storage._store.run(run_id)
    last = -1 if run is None else run.number
    # A closed request is in no list any more; only the commit that closed it still names it.
    for commit in reversed(await read_commits(storage, run_id, last - _LOOK_BACK, None)):
        if request in commit.closed:
            how = "withdrawn" if request in commit.withdrawn else "answered"
            return _not_open(f"{request!r} of run {run_id!r} was already {how}, in {run_id}@{commit.number}")
    return _not_open(_describe_missing(run_id, request, questions))


def _describe_missing(run_id: str, request: str, questions: Sequence[OpenRequest]) -> str:
    there = ", ".join(repr(question.request_id) for question in questions) or "none"
    return f"run {run_id!r} has no open request {request!r}; open requests: {there}"


def _not_open(problem: str) -> CommandFailed:
    return CommandFailed(ErrorId.NOT_OPEN, problem, command_line("requests"), NOT_FOUND)


async def _send(
    storage: BuiltInStorage, question: OpenRequest, value: Any, *, by: str | None, comment: str | None
) -> str:
    check_unanswered(question)
    check_answer(question, value)
    with refusals():
        await send_response(storage, question, value, by=by, comment=comment)
    otherwise = "the process that drives the run applies it; if there is none"
    return await find_next_driver(storage, question.run_id, does="applies it", otherwise=otherwise)


async def _send_if_unchanged(
    storage: BuiltInStorage, question: OpenRequest, value: Any, *, by: str | None, comment: str | None
) -> str:
    """Send the response, if the request is still the one that the person saw."""
    with refusals():
        questions = await open_requests(storage, question.run_id)
    for current in questions:
        # The time tells a new request apart that has the same id, asked after a restore for example.
        if current.request_id == question.request_id and current.asked_at == question.asked_at:
            return await _send(storage, current, value, by=by, comment=comment)
    raise await _explain_gone(storage, question.run_id, question.request_id, questions)


def _read_response(question: OpenRequest, text: str) -> Any:
    """Parse a response, which is JSON. Raises CommandFailed with a hint that says what is expected."""
    try:
        return json.loads(text)
    except RecursionError:
        raise CommandFailed(ErrorId.WRONG_RESPONSE, "the response is nested too deeply", code=USAGE) from None
    except ValueError as error:
        problem = f"the response is not valid JSON: {error}"
        raise CommandFailed(ErrorId.WRONG_RESPONSE, problem, describe_expected(question), USAGE) from None


def describe_expected(question: OpenRequest) -> str:
    """Return what a response has to look like, on one line."""
    shape = shape_of(schema_for(question.data, question.response_type, question.response_schema))
    return f"{question.request_id!r} expects {question.response_type}: {shape}"


def check_answer(question: OpenRequest, value: Any) -> None:
    """Raise CommandFailed if a value cannot be stored, or does not match the schema."""
    # NaN, huge integers and deep nesting pass a schema, but cannot be stored.
    with refusals():
        check_plain(value, f"the response to {question.request_id!r}")
    try:
        flaws = problems(question.response_schema, value)[:_SHOWN]
    except UnusableSchema as error:
        print_note(f"the response is not checked before it is sent: {error}")
        return
    if flaws:
        problem = f"this is not a valid response to {question.request_id!r}, which expects {question.response_type}"
        raise CommandFailed(ErrorId.WRONG_RESPONSE, "\n".join([problem, *flaws]), describe_expected(question), USAGE)


def check_answers(questions: Sequence[OpenRequest], answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by the complete ids of their requests, which may be shortened.

    Raises CommandFailed unless each value matches the schema of its request.
    """
    checked: dict[str, Any] = {}
    for name, value in answers.items():
        matching = match_requests(name, questions)
        if len(matching) > 1:
            ids = ", ".join(repr(question.request_id) for question in matching)
            raise CommandFailed(ErrorId.Ambiguous, f"{name!r} matches {ids}", "use more characters of the id", USAGE)
        # An unknown request is left to `admin.fork`, which lists the open ones in its error.
        id = matching[0].request_id if matching else name
        if id in checked:
            raise CommandFailed(ErrorId.WRONG_USAGE, f"{id!r} is responded to twice", code=USAGE)
        if matching:
            check_answer(matching[0], value)
        checked[id] = value
    return checked


def match_requests(prefix: str, questions: Sequence[OpenRequest]) -> list[OpenRequest]:
    """Return the request with this id, or else all whose ids start with it."""
    exact = [question for question in questions if question.request_id == prefix]
    return exact or [question for question in questions if has_prefix(question.request_id, prefix)]


def check_unanswered(question: OpenRequest) -> None:
    """Raise CommandFailed if the request already has a response."""
    if (answer := question.answered) is not None:
        by = "" if answer.by is None else f" from {answer.by!r}"
        problem = (
            f"{question.request_id!r} of run {question.run_id!r} already has a response{by}, which is not applied yet"
        )
        hint = f"{command_line('show', question.run_id)} says what applies it"
        raise CommandFailed(ErrorId.NOT_OPEN, problem, hint, NOT_FOUND)
