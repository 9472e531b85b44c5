"""Check responses passed on the command line, and find the requests they are for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stepwell import admin
from stepwell.admin.requests import OpenRequest, load_requests
from stepwell.admin.state_edits import check_plain
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed, refusals
from stepwell.cli.forms.validation import UnusableSchema, problems
from stepwell.cli.hints import command_line
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_note

PASS_JSON = "pass the response with --json VALUE, --json @FILE or --json -"
CHOICES = 20  # requests to choose from
SHORTEST = 4  # characters of a shortened id
_SHOWN = 5  # problems of one response


def read_json(text: str, what: str) -> Any:
    """Parse JSON. Raises CommandFailed."""
    try:
        return json.loads(text)
    except RecursionError:
        raise CommandFailed(f"{what} is nested too deeply", code=USAGE) from None
    except ValueError as error:
        hint = """quote a string for JSON and for the shell: '"like this"'"""
        raise CommandFailed(f"{what} is not valid JSON: {error}", hint, USAGE) from None


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
        raise CommandFailed("\n".join([problem, *flaws]), "`stepwell requests --json` prints the schema", USAGE)


async def check_answers(storage: BuiltInStorage, checkpoint: str, answers: Mapping[str, Any]) -> None:
    """Raise CommandFailed unless each value matches the schema of its request at the checkpoint."""
    at = await admin.find_checkpoint(storage, checkpoint)
    questions = {question.request_id: question for question in await load_requests(storage, at)}
    for id, value in answers.items():
        # An unknown request is left to `admin.fork`, which lists the open ones in its error.
        if id in questions:
            check_answer(questions[id], value)


def match_requests(prefix: str, questions: Sequence[OpenRequest]) -> list[OpenRequest]:
    """Return the request with this id, or else all whose ids start with it."""
    exact = [question for question in questions if question.request_id == prefix]
    return exact or [question for question in questions if has_prefix(question.request_id, prefix)]


def has_prefix(id: str, prefix: str) -> bool:
    # Shorter prefixes match by accident, and a response cannot be taken back.
    return len(prefix) >= SHORTEST and id.startswith(prefix)


def check_unanswered(question: OpenRequest) -> None:
    """Raise CommandFailed if the request already has a response."""
    if question.answered:
        problem = f"{question.request_id!r} of run {question.run_id!r} already has a response, which is not applied yet"
        resume = command_line("resume", question.run_id, "MODULE:WORKFLOW")
        raise CommandFailed(problem, f"to apply it: {resume}", NOT_FOUND)
