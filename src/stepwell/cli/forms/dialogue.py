"""Ask a person on a terminal: which request is meant, and what the response to it is.

Prompts go to stderr, and each answer is one line.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TypeVar

import click

from stepwell.admin.diffs.json_diff import format_path
from stepwell.admin.phrases import format_deadline, format_span
from stepwell.admin.questions import sentence_for
from stepwell.admin.requests import OpenRequest
from stepwell.admin.schemas.json_schema import shape_of
from stepwell.admin.values import to_lines
from stepwell.cli.failures import INTERRUPTED, USAGE, CommandFailed
from stepwell.cli.forms.agent_forms import schema_for
from stepwell.cli.forms.schema_form import Form, Prompt, Unfillable, ask_choice, ask_yes_or_no, build_form
from stepwell.cli.forms.value_parsers import are_numbered
from stepwell.cli.input_text import PASS_RESPONSE
from stepwell.cli.settings import Settings
from stepwell.cli.views.output import print_note
from stepwell.error_ids import ErrorId
from stepwell.model.visible_text import visible
from stepwell.storage import clock
from stepwell.storage.checked_reads import read_moment

T = TypeVar("T")


def choose(questions: list[OpenRequest]) -> OpenRequest:
    """Return the request that is meant; if several match, ask. Raises CommandFailed."""
    if len(questions) == 1:
        return questions[0]
    labels = [f"{question.request_id} of {question.run_id}" for question in questions]
    if not _is_interactive():
        listing = "\n".join(labels)
        raise CommandFailed(
            ErrorId.Ambiguous, f"several requests match:\n{listing}", "name the run and the request", USAGE
        )
    return questions[_fill_in(ask_choice("request", labels))]


def ask_for_response(question: OpenRequest) -> Any:
    """Return what a person enters in the form of the request and confirms. Raises CommandFailed."""
    schema = schema_for(question.data, question.response_type, question.response_schema)
    if not _is_interactive():
        problem = f"{question.request_id!r} expects {question.response_type}, and nobody can be asked for it"
        hint = f"{PASS_RESPONSE}, in JSON: {visible(shape_of(schema))}"
        raise CommandFailed(ErrorId.NOBODY_TO_ASK, problem, hint, USAGE)
    _introduce(question)
    try:
        value = _fill_in(build_form(schema))
        print_note("response")
        for line in to_lines(value, full=True):
            print_note(f"  {line}")
        # Typing is error-prone: the whole response is shown once more before it becomes final.
        if Settings.current().yes or _fill_in(ask_yes_or_no("send", enter=True)):
            return value
    except Unfillable as error:
        raise CommandFailed(
            ErrorId.NOBODY_TO_ASK,
            f"there is no form for this response: {error}",
            "pass it with --response VALUE",
            USAGE,
        ) from None
    except click.Abort:
        pass
    raise CommandFailed(ErrorId.NOBODY_TO_ASK, "nothing was sent", code=INTERRUPTED)


def _introduce(question: OpenRequest) -> None:
    what = f"request {question.request_id!r}"
    asked_at, now = read_moment(question.asked_at, what), clock.now()
    print_note(
        f"{question.run_id}: request {question.request_id} from {question.executor}, {format_span(now - asked_at)} ago"
    )
    # A request of an agent or a team is a sentence; people who approve it also want to see its parts.
    if (sentence := sentence_for(question.data, longest=None)) is not None:
        print_note(f"  {sentence}")
    for line in to_lines(question.data, full=True):
        print_note(f"  {line}")
    if question.deadline is not None:
        print_note(f"deadline: {format_deadline(read_moment(question.deadline, what), now)}")


def _is_interactive() -> bool:
    """Return whether a person can be asked: on a terminal, without --no-input."""
    return not Settings.current().no_input and sys.stdin.isatty() and sys.stderr.isatty()


def _fill_in(form: Form[T]) -> T:
    """Ask a person for each field, and return the value of the form.

    Raises Abort on Ctrl-C and Ctrl-D.
    """
    # The form is a generator that decides; this loop only prints and reads. See `schema_form`.
    try:
        prompt = next(form)
        while True:
            prompt = form.send(_read_answer(prompt))
    except StopIteration as end:
        filled: T = end.value
        return filled


def _read_answer(prompt: Prompt) -> str:
    for line in _describe_prompt(prompt):
        print_note(line)
    place = format_path(prompt.path) if prompt.path else "response"
    wanted = prompt.wants if prompt.enter is None else f"{prompt.wants}; Enter: {prompt.enter}"
    try:
        return _read_line(f"{visible(place)} ({visible(wanted)}): ")
    except (EOFError, KeyboardInterrupt):
        click.echo(err=True)  # end the line of the prompt
        raise click.Abort from None


def _describe_prompt(prompt: Prompt) -> list[str]:
    """Return the lines to show above the prompt."""
    # Description and choices are shown once, not again after each mistake.
    if prompt.problem:
        return [f"  ! {prompt.problem}"]
    numbered = are_numbered(prompt.choices)
    choices = [f"  {n}  {choice}" if numbered else f"  {choice}" for n, choice in enumerate(prompt.choices, 1)]
    return [*(f"  {line}" for line in prompt.about.splitlines()), *choices]


def _read_line(prompt: str) -> str:
    """Read a line, with editing keys if possible."""
    # readline writes to stdout. If that is a pipe, its control characters would end up in the data.
    if sys.stdout.isatty():
        with suppress(ImportError):  # not built into every Python
            import readline  # noqa: F401 - lazy: loading it changes how `input` edits a line
        return input(prompt)
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")
