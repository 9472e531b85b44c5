"""`stepwell respond`: answer a question of a run."""

from __future__ import annotations

import click

from stepwell.cli.hints import command_line
from stepwell.cli.settings import common_options
from stepwell.cli.views.output import print_lines, print_note
from stepwell.cli.views.text import printable


@click.command("respond")
@click.argument("run", metavar="[RUN]", required=False)
@click.argument("request", metavar="[REQUEST]", required=False)
@click.option(
    "--json", "argument", metavar="VALUE", help="The answer: JSON, @FILE, or - for stdin. Nothing is asked then."
)
@common_options
def command(run: str | None, request: str | None, argument: str | None) -> None:
    """Answer a question that RUN asks. Without --json, a form is filled in.

    RUN may be left out if only one run asks something, REQUEST if only one question is open; both may be shortened to
    4 characters while they stay unique. REQUEST alone will do, if no run is called so.

    The answer is held against the schema of what is asked for, and left for the run. Whoever drives the run takes it
    in: a process that does so now, or else `stepwell resume`. Ends with 3 if the question is not open, or answered
    already.
    """
    from stepwell.cli.forms.responses import respond  # lazy: 130 ms

    question = respond(run, request, argument)
    print_lines([f"answered {printable(question.request_id)} of {printable(question.run_id)}"])
    resume = command_line("resume", question.run_id, "MODULE:WORKFLOW")
    print_note(f"a process that drives the run takes it in; if none does: {resume}")
