"""`stepwell respond`: answer a question of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.failures import INTERRUPTED, NOT_FOUND, USAGE, CommandFailed
from stepwell.cli.hints import command_line
from stepwell.cli.settings import Settings, everywhere
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import lines, note
from stepwell.cli.views.text import deadline, length, printable, status_word, tree

if TYPE_CHECKING:
    from stepwell.admin.requests import Question
    from stepwell.storage.built_in_storage import BuiltInStorage

_GIVE = "give the answer with --json VALUE, --json @FILE or --json -"
_PAGE = 500  # questions of the inbox
_SHOWN = 20  # questions to choose from
_LOOKED_AT = 500  # commits, for what became of a question


@click.command("respond")
@click.argument("run", metavar="[RUN]", required=False)
@click.argument("request", metavar="[REQUEST]", required=False)
@click.option(
    "--json", "given", metavar="VALUE", help="The answer: JSON, @FILE, or - for stdin. Nothing is asked then."
)
@everywhere
def command(run: str | None, request: str | None, given: str | None) -> None:
    """Answer a question that RUN asks. Without --json, a form is filled in.

    RUN may be left out if only one run asks something, REQUEST if only one question is open; both may be shortened to
    4 characters while they stay unique. REQUEST alone will do, if no run is called so.

    The answer is held against the schema of what is asked for, and left for the run. Whoever drives the run takes it
    in: a process that does so now, or else `stepwell resume`. Ends with 3 if the question is not open, or answered
    already.
    """
    from stepwell.cli.forms.answers import check_answer, check_unanswered, read_json

    value = None if given is None else read_json(_text(given), "the answer")
    question = _chosen(on_the_store(lambda storage: _open(storage, run, request)))
    check_unanswered(question)
    if given is None:
        value = _filled_in(question)
    check_answer(question, value)
    on_the_store(lambda storage: _send(storage, question, value))
    lines([f"answered {printable(question.request_id)} of {printable(question.run_id)}"])
    resume = command_line("resume", question.run_id, "MODULE:WORKFLOW")
    note(f"a process that drives the run takes it in; if none does: {resume}")


def _text(given: str) -> str:
    from stepwell.cli.input_option import text_of

    try:
        return text_of("@-" if given == "-" else given)
    except CommandFailed as error:
        raise CommandFailed(str(error), _GIVE, error.code) from error


async def _open(storage: BuiltInStorage, run: str | None, request: str | None) -> list[Question]:
    """The open questions that may be meant; at least one."""
    from stepwell.admin.lookup import NotFound, find_run
    from stepwell.admin.requests import open_questions
    from stepwell.cli.forms.answers import meant_by, refusals

    if run is None:
        return await _inbox(storage, "")
    try:
        found = await find_run(storage, run)
    except NotFound:
        # a name that was left empty, by a variable that is not set, is not the same as none: nothing else is answered
        if request is not None or not run or not (inbox := await _inbox(storage, run)):
            raise
        return inbox
    with refusals():
        questions = await open_questions(storage, found.run_id)
    if not questions and request is None:
        told = f"run {found.run_id!r} asks nothing: it is {status_word(found.status.value)}"
        raise CommandFailed(told, command_line("requests"), NOT_FOUND)
    fitting = questions if request is None else meant_by(request, questions)
    if request is not None and not fitting:
        raise await _gone(storage, found.run_id, request, questions)
    return fitting


async def _inbox(storage: BuiltInStorage, said: str) -> list[Question]:
    """The open questions of all runs whose ids begin so, as many as a person can choose from."""
    from stepwell.admin.requests import open_questions
    from stepwell.cli.forms.answers import meant_by

    runs = [run_id async for run_id in _asking(storage, said)]
    if not runs and not said:
        raise CommandFailed("nobody is asked anything", code=NOT_FOUND)
    found = [one for run_id in dict.fromkeys(runs) for one in await open_questions(storage, run_id)]
    return meant_by(said, found) if said else found


async def _asking(storage: BuiltInStorage, said: str) -> AsyncIterator[str]:
    """The runs with questions whose ids begin so, as many as are shown; in any case those of just that id."""
    from stepwell.cli.forms.answers import begins

    last, left = None, _SHOWN
    while page := await storage.pending_requests(after=last, limit=_PAGE if said else _SHOWN):
        for one in page:
            if one.request_id == said or (left and (not said or begins(one.request_id, said))):
                left = max(0, left - 1)
                yield one.run_id
        if not left and not said:
            return
        last = page[-1]


async def _gone(storage: BuiltInStorage, run_id: str, request: str, questions: list[Question]) -> CommandFailed:
    """What became of a question that is not open, as far as the last commits say it."""
    from stepwell.codec.codec import DEFAULT_CODEC
    from stepwell.storage.wire.format import read_commit

    there = ", ".join(repr(one.request_id) for one in questions) or "none"
    told = f"run {run_id!r} does not ask {request!r}; open are: {there}"
    head = await storage.store.head(run_id)
    last = -1 if head is None else head.entry.number
    for record in reversed(await storage.store.history(run_id, after=max(-1, last - _LOOKED_AT))):
        commit = read_commit(record, DEFAULT_CODEC)[0]
        if request in commit.closed:
            how = "answered" if commit.kind.value == "intake" else "withdrawn"
            told = f"{request!r} of run {run_id!r} was {how} already, by {run_id}@{commit.number}"
            break
    return CommandFailed(told, command_line("requests"), NOT_FOUND)


def _chosen(questions: list[Question]) -> Question:
    """The one that is meant; whoever is there is asked if several may be."""
    from stepwell.cli.forms.prompts import asked, somebody_is_there
    from stepwell.cli.forms.schema_form import one_of

    waiting = [one for one in questions if not one.answered] or questions
    if len(waiting) == 1:
        return waiting[0]
    labels = [f"{one.request_id} of {one.run_id}" for one in waiting]
    if not somebody_is_there():
        named = "\n".join(labels[:_SHOWN])
        raise CommandFailed(f"several questions may be meant:\n{named}", "give the run and the request", USAGE)
    return waiting[asked(one_of("question", labels[:_SHOWN]))]


def _filled_in(question: Question) -> Any:
    """What a person types into the form of the question, and wants to be sent."""
    from stepwell.cli.forms.agent_forms import schema_for
    from stepwell.cli.forms.prompts import asked, somebody_is_there
    from stepwell.cli.forms.schema_form import Unfillable, form_of, yes_or_no

    if not somebody_is_there():
        told = f"{question.request_id!r} wants {question.response_type}, and nobody is there to be asked for it"
        raise CommandFailed(told, _GIVE, USAGE)
    _introduce(question)
    try:
        value = asked(form_of(schema_for(question.data, question.response_type, question.response_schema)))
        note("answer")
        for line in tree(value, full=True):
            note(f"  {line}")
        if _settings().yes or asked(yes_or_no("send", enter=True)):
            return value
    except Unfillable as error:
        raise CommandFailed(f"there is no form for this answer: {error}", "give it with --json VALUE", USAGE) from None
    except click.Abort:
        pass
    raise CommandFailed("nothing was sent", code=INTERRUPTED)


def _introduce(question: Question) -> None:
    from stepwell.cli.forms.agent_forms import shown
    from stepwell.storage import clock
    from stepwell.storage.damage import read_moment

    what = f"the question {question.request_id!r}"
    asked_at, now = read_moment(question.asked_at, what), clock.now()
    note(f"{question.run_id}: {question.executor} asked {question.request_id} {length(now - asked_at)} ago")
    for line in tree(shown(question.data, question.response_type), full=True):
        note(f"  {line}")
    if question.deadline is not None:
        note(f"deadline: {deadline(read_moment(question.deadline, what), now)}")


async def _send(storage: BuiltInStorage, question: Question, value: Any) -> None:
    """Leave the answer, if the question is still the one that was read."""
    from stepwell.admin.requests import open_questions
    from stepwell.admin.responses import answer
    from stepwell.cli.forms.answers import check_unanswered, refusals

    with refusals():
        now = await open_questions(storage, question.run_id)
        for one in now:
            if one.request_id == question.request_id and one.asked_at == question.asked_at:
                check_unanswered(one)
                await answer(storage, question.run_id, question.request_id, value)
                return
    raise await _gone(storage, question.run_id, question.request_id, now)


def _settings() -> Settings:
    return click.get_current_context().ensure_object(Settings)
