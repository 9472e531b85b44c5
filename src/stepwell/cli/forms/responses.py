"""Respond to a request from the command line: find it, ask for the response, check it, send it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from stepwell.admin.lookup import NotFound, find_run
from stepwell.admin.requests import OpenRequest, open_requests
from stepwell.admin.responses import respond as send_response
from stepwell.cli.failures import INTERRUPTED, NOT_FOUND, USAGE, CommandFailed, refusals
from stepwell.cli.forms.agent_forms import schema_for, select_visible
from stepwell.cli.forms.answers import check_answer, check_unanswered, has_prefix, match_requests, read_json
from stepwell.cli.forms.prompts import fill_in, is_interactive
from stepwell.cli.forms.schema_form import Unfillable, ask_choice, ask_yes_or_no, build_form
from stepwell.cli.hints import command_line
from stepwell.cli.input_option import read_input
from stepwell.cli.settings import Settings
from stepwell.cli.stores.history import read_commits
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.output import print_note
from stepwell.cli.views.text import format_deadline, format_span, tree
from stepwell.model.status_words import status_word
from stepwell.storage import clock
from stepwell.storage.checked_reads import read_moment

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

_PASS_JSON = "pass the response with --json VALUE, --json @FILE or --json -"
_PAGE = 500  # requests read at a time
_CHOICES = 20  # requests to choose from
_LOOK_BACK = 500  # commits searched for what closed a request


def respond(run: str | None, request: str | None, argument: str | None) -> OpenRequest:
    """Find the request, and send the argument, or what a person enters in a form."""
    # In three visits to the store: no event loop may be running, and no store open, while a person
    # thinks.
    value = None if argument is None else read_json(_read_argument(argument), "the response")
    question = _choose(run_on_store(lambda storage: _find_requests(storage, run, request)))
    check_unanswered(question)
    if argument is None:
        value = _fill_in(question)
    check_answer(question, value)
    run_on_store(lambda storage: _send(storage, question, value))
    return question


def _read_argument(argument: str) -> str:
    try:
        return read_input("@-" if argument == "-" else argument)
    except CommandFailed as error:
        raise CommandFailed(str(error), _PASS_JSON, error.code) from error


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
        problem = f"run {info.run_id!r} has no open requests: it is {status_word(info.status)}"
        raise CommandFailed(problem, command_line("requests"), NOT_FOUND)
    matching = questions if request is None else match_requests(request, questions)
    if request is not None and not matching:
        raise await _explain_gone(storage, info.run_id, request, questions)
    return matching


async def _read_inbox(storage: BuiltInStorage, prefix: str) -> list[OpenRequest]:
    """Return open requests with ids that start with `prefix`, over all runs."""
    runs = [run_id async for run_id in _find_asking_runs(storage, prefix)]
    if not runs and not prefix:
        raise CommandFailed("there are no open requests", code=NOT_FOUND)
    questions = [question for run_id in dict.fromkeys(runs) for question in await open_requests(storage, run_id)]
    return match_requests(prefix, questions) if prefix else questions


async def _find_asking_runs(storage: BuiltInStorage, prefix: str) -> AsyncIterator[str]:
    """Yield the runs of some requests with this prefix, and of all with exactly this id."""
    # A complete id must be found even if many others share its prefix, so with a prefix all pages
    # are read.
    last, room = None, _CHOICES
    while page := await storage.pending_requests(after=last, limit=_PAGE if prefix else _CHOICES):
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
    # A closed request is in no list any more; only the commit that closed it still names it.
    there = ", ".join(repr(question.request_id) for question in questions) or "none"
    problem = f"run {run_id!r} has no open request {request!r}; open requests: {there}"
    run = await storage._store.run(run_id)
    last = -1 if run is None else run.number
    for commit in reversed(await read_commits(storage, run_id, last - _LOOK_BACK, None)):
        if request in commit.closed:
            how = "answered" if commit.kind.value == "intake" else "withdrawn"
            problem = f"{request!r} of run {run_id!r} was already {how}, in {run_id}@{commit.number}"
            break
    return CommandFailed(problem, command_line("requests"), NOT_FOUND)


def _choose(questions: list[OpenRequest]) -> OpenRequest:
    """Return the request that is meant; if several match, ask. Raises CommandFailed."""
    # A request that has its response already is not what a person means, if there is another.
    waiting = [question for question in questions if not question.answered] or questions
    if len(waiting) == 1:
        return waiting[0]
    labels = [f"{question.request_id} of {question.run_id}" for question in waiting]
    if not is_interactive():
        listing = "\n".join(labels[:_CHOICES])
        raise CommandFailed(f"several requests match:\n{listing}", "name the run and the request", USAGE)
    return waiting[fill_in(ask_choice("request", labels[:_CHOICES]))]


def _fill_in(question: OpenRequest) -> Any:
    """Return what a person enters in the form of the request and confirms. Raises CommandFailed."""
    if not is_interactive():
        problem = f"{question.request_id!r} expects {question.response_type}, and nobody can be asked for it"
        raise CommandFailed(problem, _PASS_JSON, USAGE)
    _introduce(question)
    try:
        value = fill_in(build_form(schema_for(question.data, question.response_type, question.response_schema)))
        print_note("response")
        for line in tree(value, full=True):
            print_note(f"  {line}")
        # Typing is error-prone: the whole response is shown once more before it becomes final.
        if _settings().yes or fill_in(ask_yes_or_no("send", enter=True)):
            return value
    except Unfillable as error:
        raise CommandFailed(
            f"there is no form for this response: {error}", "pass it with --json VALUE", USAGE
        ) from None
    except click.Abort:
        pass
    raise CommandFailed("nothing was sent", code=INTERRUPTED)


def _introduce(question: OpenRequest) -> None:
    what = f"request {question.request_id!r}"
    asked_at, now = read_moment(question.asked_at, what), clock.now()
    print_note(
        f"{question.run_id}: request {question.request_id} from {question.executor}, {format_span(now - asked_at)} ago"
    )
    for line in tree(select_visible(question.data, question.response_type), full=True):
        print_note(f"  {line}")
    if question.deadline is not None:
        print_note(f"deadline: {format_deadline(read_moment(question.deadline, what), now)}")


async def _send(storage: BuiltInStorage, question: OpenRequest, value: Any) -> None:
    """Send the response, if the request is still the one that the person saw."""
    with refusals():
        questions = await open_requests(storage, question.run_id)
        # The time tells a new request apart that has the same id, asked after a restore for
        # example.
        for current in questions:
            if current.request_id == question.request_id and current.asked_at == question.asked_at:
                check_unanswered(current)
                await send_response(storage, question.run_id, question.request_id, value)
                return
    raise await _explain_gone(storage, question.run_id, question.request_id, questions)


def _settings() -> Settings:
    return click.get_current_context().ensure_object(Settings)
