"""Answering a question from the command line: find it, ask for the answer, check it, send it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from stepwell.admin.lookup import NotFound, find_run
from stepwell.admin.requests import Question, open_questions
from stepwell.admin.responses import answer
from stepwell.cli.failures import INTERRUPTED, NOT_FOUND, USAGE, CommandFailed, refusals
from stepwell.cli.forms.agent_forms import schema_for, select_visible
from stepwell.cli.forms.answers import check_answer, check_unanswered, has_prefix, match_questions, read_json
from stepwell.cli.forms.prompts import fill_in, is_interactive
from stepwell.cli.forms.schema_form import Unfillable, ask_choice, ask_yes_or_no, build_form
from stepwell.cli.hints import command_line
from stepwell.cli.input_option import read_input
from stepwell.cli.settings import Settings
from stepwell.cli.stores.history import read_commits
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.output import print_note
from stepwell.cli.views.text import format_deadline, format_span, status_word, tree
from stepwell.storage import clock
from stepwell.storage.damage import read_moment

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

_GIVE = "give the answer with --json VALUE, --json @FILE or --json -"
_PAGE = 500  # questions of the inbox
_CHOICES = 20  # questions to choose from
_LOOK_BACK = 500  # commits, for what became of a question


def respond(run: str | None, request: str | None, argument: str | None) -> Question:
    """Find the question that is meant, and send it an answer: the argument, or what a person types into a form."""
    value = None if argument is None else read_json(_read_argument(argument), "the answer")
    question = _choose(run_on_store(lambda storage: _find_questions(storage, run, request)))
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
        raise CommandFailed(str(error), _GIVE, error.code) from error


async def _find_questions(storage: BuiltInStorage, run: str | None, request: str | None) -> list[Question]:
    """The open questions that may be meant; at least one."""
    if run is None:
        return await _read_inbox(storage, "")
    try:
        info = await find_run(storage, run)
    except NotFound:
        # a name that was left empty, by a variable that is not set, is not the same as none: nothing else is answered
        if request is not None or not run or not (inbox := await _read_inbox(storage, run)):
            raise
        return inbox
    with refusals():
        questions = await open_questions(storage, info.run_id)
    if not questions and request is None:
        problem = f"run {info.run_id!r} asks nothing: it is {status_word(info.status.value)}"
        raise CommandFailed(problem, command_line("requests"), NOT_FOUND)
    matching = questions if request is None else match_questions(request, questions)
    if request is not None and not matching:
        raise await _explain_gone(storage, info.run_id, request, questions)
    return matching


async def _read_inbox(storage: BuiltInStorage, prefix: str) -> list[Question]:
    """The open questions of all runs whose ids begin so, as many as a person can choose from."""
    runs = [run_id async for run_id in _find_asking_runs(storage, prefix)]
    if not runs and not prefix:
        raise CommandFailed("nobody is asked anything", code=NOT_FOUND)
    questions = [question for run_id in dict.fromkeys(runs) for question in await open_questions(storage, run_id)]
    return match_questions(prefix, questions) if prefix else questions


async def _find_asking_runs(storage: BuiltInStorage, prefix: str) -> AsyncIterator[str]:
    """The runs with questions whose ids begin so, as many as are shown; in any case those of just that id."""
    last, room = None, _CHOICES
    while page := await storage.pending_requests(after=last, limit=_PAGE if prefix else _CHOICES):
        for request in page:
            if request.request_id == prefix or (room and (not prefix or has_prefix(request.request_id, prefix))):
                room = max(0, room - 1)
                yield request.run_id
        if not room and not prefix:
            return
        last = page[-1]


async def _explain_gone(storage: BuiltInStorage, run_id: str, request: str, questions: list[Question]) -> CommandFailed:
    """What became of a question that is not open, as far as the last commits say it."""
    there = ", ".join(repr(question.request_id) for question in questions) or "none"
    problem = f"run {run_id!r} does not ask {request!r}; open are: {there}"
    head = await storage.store.head(run_id)
    last = -1 if head is None else head.entry.number
    for commit in reversed(await read_commits(storage, run_id, last - _LOOK_BACK, None)):
        if request in commit.closed:
            how = "answered" if commit.kind.value == "intake" else "withdrawn"
            problem = f"{request!r} of run {run_id!r} was {how} already, by {run_id}@{commit.number}"
            break
    return CommandFailed(problem, command_line("requests"), NOT_FOUND)


def _choose(questions: list[Question]) -> Question:
    """The one that is meant; whoever is there is asked if several may be."""
    waiting = [question for question in questions if not question.answered] or questions
    if len(waiting) == 1:
        return waiting[0]
    labels = [f"{question.request_id} of {question.run_id}" for question in waiting]
    if not is_interactive():
        listing = "\n".join(labels[:_CHOICES])
        raise CommandFailed(f"several questions may be meant:\n{listing}", "give the run and the request", USAGE)
    return waiting[fill_in(ask_choice("question", labels[:_CHOICES]))]


def _fill_in(question: Question) -> Any:
    """What a person types into the form of the question, and wants to be sent."""
    if not is_interactive():
        problem = f"{question.request_id!r} wants {question.response_type}, and nobody is there to be asked for it"
        raise CommandFailed(problem, _GIVE, USAGE)
    _introduce(question)
    try:
        value = fill_in(build_form(schema_for(question.data, question.response_type, question.response_schema)))
        print_note("answer")
        for line in tree(value, full=True):
            print_note(f"  {line}")
        if _settings().yes or fill_in(ask_yes_or_no("send", enter=True)):
            return value
    except Unfillable as error:
        raise CommandFailed(f"there is no form for this answer: {error}", "give it with --json VALUE", USAGE) from None
    except click.Abort:
        pass
    raise CommandFailed("nothing was sent", code=INTERRUPTED)


def _introduce(question: Question) -> None:
    what = f"the question {question.request_id!r}"
    asked_at, now = read_moment(question.asked_at, what), clock.now()
    print_note(f"{question.run_id}: {question.executor} asked {question.request_id} {format_span(now - asked_at)} ago")
    for line in tree(select_visible(question.data, question.response_type), full=True):
        print_note(f"  {line}")
    if question.deadline is not None:
        print_note(f"deadline: {format_deadline(read_moment(question.deadline, what), now)}")


async def _send(storage: BuiltInStorage, question: Question, value: Any) -> None:
    """Leave the answer, if the question is still the one that was read."""
    with refusals():
        questions = await open_questions(storage, question.run_id)
        for current in questions:
            if current.request_id == question.request_id and current.asked_at == question.asked_at:
                check_unanswered(current)
                await answer(storage, question.run_id, question.request_id, value)
                return
    raise await _explain_gone(storage, question.run_id, question.request_id, questions)


def _settings() -> Settings:
    return click.get_current_context().ensure_object(Settings)
