"""Ask a person on a terminal: which request is meant, and what the response to it is."""

from __future__ import annotations

from typing import Any

import click

from stepwell.admin.requests import OpenRequest
from stepwell.cli.failures import INTERRUPTED, USAGE, CommandFailed
from stepwell.cli.forms.agent_forms import schema_for, select_visible
from stepwell.cli.forms.answers import CHOICES, PASS_JSON
from stepwell.cli.forms.prompts import fill_in, is_interactive
from stepwell.cli.forms.schema_form import Unfillable, ask_choice, ask_yes_or_no, build_form
from stepwell.cli.settings import Settings
from stepwell.cli.views.output import print_note
from stepwell.cli.views.text import format_deadline, format_span, tree
from stepwell.storage import clock
from stepwell.storage.checked_reads import read_moment


def choose(questions: list[OpenRequest]) -> OpenRequest:
    """Return the request that is meant; if several match, ask. Raises CommandFailed."""
    if len(questions) == 1:
        return questions[0]
    labels = [f"{question.request_id} of {question.run_id}" for question in questions[:CHOICES]]
    if not is_interactive():
        listing = "\n".join(labels)
        raise CommandFailed(f"several requests match:\n{listing}", "name the run and the request", USAGE)
    return questions[fill_in(ask_choice("request", labels))]


def ask_for_response(question: OpenRequest) -> Any:
    """Return what a person enters in the form of the request and confirms. Raises CommandFailed."""
    if not is_interactive():
        problem = f"{question.request_id!r} expects {question.response_type}, and nobody can be asked for it"
        raise CommandFailed(problem, PASS_JSON, USAGE)
    _introduce(question)
    try:
        value = fill_in(build_form(schema_for(question.data, question.response_type, question.response_schema)))
        print_note("response")
        for line in tree(value, full=True):
            print_note(f"  {line}")
        # Typing is error-prone: the whole response is shown once more before it becomes final.
        if click.get_current_context().ensure_object(Settings).yes or fill_in(ask_yes_or_no("send", enter=True)):
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
