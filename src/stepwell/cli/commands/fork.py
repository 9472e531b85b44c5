"""`stepwell fork`: start a new run from a checkpoint of another, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from stepwell import admin
from stepwell.admin.values import to_line
from stepwell.cli import server_runs
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import refusals
from stepwell.cli.forms.value_parsers import parse_any
from stepwell.cli.next_driver import find_next_driver
from stepwell.cli.server_client import ServerClient, find_server
from stepwell.cli.settings import by_option, common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.changes import describe_difference, print_difference
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.model.event import CheckpointInfo
from stepwell.model.visible_text import visible

# The first checkpoint of the new run, and who drives it; or what a fork would change.
Outcome = tuple[CheckpointInfo, str] | Mapping[str, Any]
_TYPE_NAMES = {str: "text", bool: "boolean", int: "number", float: "number", list: "list", dict: "mapping"}


def _parse_pairs(context: click.Context, option: click.Parameter, arguments: tuple[str, ...]) -> dict[str, str]:
    """Callback of a repeatable option NAME=VALUE."""
    pairs: dict[str, str] = {}
    # A dict would silently keep the last of two values for one name, so that is checked.
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{argument!r} is not of the form {option.metavar}")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is passed twice")
        pairs[name] = value
    return pairs


def _parse_values(context: click.Context, option: click.Parameter, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Callback of a repeatable option PATH=VALUE, where VALUE is JSON or else text."""
    return {name: parse_any(text) for name, text in _parse_pairs(context, option, arguments).items()}


@click.command("fork")
@click.argument("checkpoint", metavar="RUN[@N]", shell_complete=complete_runs)
@click.option("--as", "run_id", metavar="NEW", help="The id of the new run. Default: a generated one.")
@click.option(
    "--set", "set_", multiple=True, metavar="PATH=VALUE", callback=_parse_values, help="Replace a value of the state."
)
@click.option("--add", multiple=True, metavar="PATH=VALUE", callback=_parse_values, help="Add a value to the state.")
@click.option("--delete", multiple=True, metavar="PATH", help="Delete a value of the state.")
@click.option(
    "--response",
    "responses",
    multiple=True,
    metavar="REQUEST=VALUE",
    callback=_parse_values,
    help="Respond to an open request. Its id may be shortened to 4 characters.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_pairs,
    help="Tag the new run. Default: the tags of the original run.",
)
@by_option
@click.option("--dry-run", is_flag=True, help="Show what would change, and create nothing.")
@json_option
@common_options
def command(
    checkpoint: str,
    run_id: str | None,
    set_: dict[str, Any],
    add: dict[str, Any],
    delete: tuple[str, ...],
    responses: dict[str, Any],
    tags: dict[str, str],
    by: str | None,
    dry_run: bool,
    json: bool,
) -> None:
    """Start a new run from a checkpoint of another.

    Prints the id of the new run. The original run is not changed, and what led to the checkpoint is
    not executed again. The new run is only stored: `stepwell resume` drives it.

    A PATH leads into the state, such as order.price or lines.0, or /a.b/0 if a name contains dots.
    A VALUE is JSON, or else text. The options that change something are repeatable.
    """
    edits: dict[str, Any] = {"set": set_, "add": add, "delete": list(delete)}
    wanted = {**edits, "responses": responses, "tags": tags or None}

    async def work(storage: BuiltInStorage) -> Outcome:
        with refusals():
            if responses:
                from stepwell.admin.requests import load_requests  # lazy: 80 ms, and few forks have a --response
                from stepwell.cli.forms.responses import check_answers  # lazy: for the same reason

                questions = await load_requests(storage, await admin.find_checkpoint(storage, checkpoint))
                wanted["responses"] = check_answers(questions, responses)
            if dry_run:
                return describe_difference(await admin.preview_fork(storage, checkpoint, run_id=run_id, **wanted))
            place = await admin.fork(storage, checkpoint, run_id=run_id, by=by, **wanted)
        return place, await find_next_driver(storage, place.run_id)

    if (server := find_server(by=by)) is None:
        outcome = run_on_store(work)
    else:
        outcome = _fork_on_server(server, checkpoint, responses, dry_run, {"run_id": run_id, **wanted})
    # After the fork, so that a refused one prints nothing but its error. How each value was
    # understood: 12 may be a number or a string.
    for name, value in {**set_, **add}.items():
        print_note(f"{name} = {_describe(value)}")
    # They are stored beside the checkpoint, so that the difference does not have them.
    for name, value in responses.items():
        print_note(f"response to {name}, which a resume applies: {_describe(value)}")
    if not isinstance(outcome, tuple):
        print_difference(outcome, json=json)
        return
    place, driver = outcome
    if json:
        print_document(run_id=place.run_id, number=place.number, checkpoint_id=place.checkpoint_id)
    else:
        print_lines([visible(place.run_id)])
        print_note(driver)


def _fork_on_server(
    server: ServerClient, checkpoint: str, responses: dict[str, Any], dry_run: bool, wanted: dict[str, Any]
) -> Outcome:
    with refusals():
        place = server_runs.find_checkpoint(server, checkpoint)
        if responses:
            from stepwell.cli.forms.responses import check_answers  # lazy: 80 ms, and few forks have a --response

            wanted["responses"] = check_answers(server_runs.load_requests(server, place), responses)
        if dry_run:
            return server_runs.preview_fork(server, place, **wanted)
        moved = server_runs.fork(server, place, **wanted)
    return moved.place, moved.driver


def _describe(value: Any) -> str:
    return f"{to_line(value)} ({_TYPE_NAMES.get(type(value), 'null')})"
