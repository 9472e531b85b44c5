"""Answers that are given on the command line: which question is meant, and whether it can have that answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from stepwell import admin
from stepwell.admin.requests import load_questions
from stepwell.admin.state_edits import check_plain
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed, refusals
from stepwell.cli.forms.json_schema import problems
from stepwell.cli.hints import command_line

if TYPE_CHECKING:
    from stepwell.admin import Question
    from stepwell.storage.built_in_storage import BuiltInStorage

SHORTEST = 4  # characters of a shortened id
_SHOWN = 5


def read_json(text: str, what: str) -> Any:
    """What a text says as JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise CommandFailed(f"{what} is nested too deeply", code=USAGE) from None
    except ValueError as error:
        hint = """a text is written in quotes, also for the shell: '"like this"'"""
        raise CommandFailed(f"{what} is no JSON: {error}", hint, USAGE) from None


def check_answer(question: Question, value: Any) -> None:
    """Raises CommandFailed, saying where, if a value cannot be stored, or is not what the question wants."""
    with refusals():
        check_plain(value, f"the answer to {question.request_id!r}")
    flaws = list(islice(problems(question.response_schema, value), _SHOWN))
    if flaws:
        problem = f"that is no answer to {question.request_id!r}, which wants {question.response_type}"
        raise CommandFailed("\n".join([problem, *flaws]), "`stepwell requests --json` has the schema", USAGE)


async def check_answers(storage: BuiltInStorage, checkpoint: str, answers: Mapping[str, Any]) -> None:
    """Raises CommandFailed for what is no answer to a question that is open there."""
    at = await admin.find_checkpoint(storage, checkpoint)
    questions = {question.request_id: question for question in await load_questions(storage, at)}
    for id, value in answers.items():
        if id in questions:  # of any other, fork says what is open
            check_answer(questions[id], value)


def match_questions(prefix: str, questions: Sequence[Question]) -> list[Question]:
    """Those that may be meant: the one of that id, or else all whose ids begin so."""
    exact = [question for question in questions if question.request_id == prefix]
    return exact or [question for question in questions if has_prefix(question.request_id, prefix)]


def has_prefix(id: str, prefix: str) -> bool:
    return len(prefix) >= SHORTEST and id.startswith(prefix)


def check_unanswered(question: Question) -> None:
    """Raises CommandFailed if an answer is there already."""
    if question.answered:
        problem = (
            f"{question.request_id!r} of run {question.run_id!r} is answered already; the answer was not taken in yet"
        )
        resume = command_line("resume", question.run_id, "MODULE:WORKFLOW")
        raise CommandFailed(problem, f"to go on with it: {resume}", NOT_FOUND)
