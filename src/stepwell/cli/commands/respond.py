"""`stepwell respond`: respond to a request of a run."""

from __future__ import annotations

import click

from stepwell.cli.completion import complete_requests, complete_runs
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import by_option, common_options, json_option, text_option
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.model.visible_text import visible


@click.command("respond")
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.argument("request", metavar="[REQUEST]", required=False, shell_complete=complete_requests)
@click.option(
    "--response",
    "argument",
    metavar="VALUE",
    help="The response: JSON, @FILE, or - for stdin. Without it, a form asks for the response.",
)
@by_option
@text_option("--comment", "A comment, stored with the response.")
@json_option
@common_options
def command(
    run: str | None, request: str | None, argument: str | None, by: str | None, comment: str | None, json: bool
) -> None:
    """Respond to a request of a run.

    RUN may be left out if only one run has an open request, REQUEST if RUN has only one. A single
    argument is read as RUN, or as REQUEST if no run has that id. Both may be shortened to 4
    characters as long as they are unique.

    The response is checked against the schema of the request and stored as a signal. The process
    that drives the run applies it; if there is none, `stepwell resume` does. Exits with 3 if the
    request is not open or already has a response.
    """
    from stepwell.cli.forms.responses import respond, respond_on_server  # lazy: 40 ms

    if (server := find_server(by=by)) is not None:
        question, by, driver = respond_on_server(server, run, request, argument, comment=comment)
    else:
        question, driver = respond(run, request, argument, by=by, comment=comment)
    if json:
        print_document(run_id=question.run_id, request_id=question.request_id, by=by, comment=comment)
        return
    print_lines([f"responded to {visible(question.request_id)} of {visible(question.run_id)}"])
    print_note(driver)
