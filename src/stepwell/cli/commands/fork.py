"""`stepwell fork`: a new run that goes on from a checkpoint of another, with changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import stepwell
from stepwell import admin
from stepwell.cli.failures import refusals
from stepwell.cli.forms.value_parsers import read_anything
from stepwell.cli.hints import command_line
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.changes import difference_to_dict, format_difference
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.cli.views.text import leaf, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.storage.built_in_storage import BuiltInStorage

_WORDS = {str: "text", bool: "yes or no", int: "number", float: "number", list: "list", dict: "mapping"}


def _parse_pairs(context: click.Context, option: click.Parameter, arguments: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, several times, by name."""
    pairs: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{argument!r} is not of the form {option.metavar}")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice")
        pairs[name] = value
    return pairs


def _parse_values(context: click.Context, option: click.Parameter, arguments: tuple[str, ...]) -> dict[str, Any]:
    """PATH=VALUE, several times, with values that are JSON or else texts."""
    return {name: read_anything(text) for name, text in _parse_pairs(context, option, arguments).items()}


@click.command("fork")
@click.argument("checkpoint", metavar="RUN[@N]")
@click.option("--as", "run_id", metavar="NEW", help="The id of the new run. Default: one that is made up.")
@click.option(
    "--set", "set_", multiple=True, metavar="PATH=VALUE", callback=_parse_values, help="Change what is there."
)
@click.option("--add", multiple=True, metavar="PATH=VALUE", callback=_parse_values, help="Put in what is not there.")
@click.option("--delete", multiple=True, metavar="PATH", help="Take out what is there.")
@click.option(
    "--answer", "answers", multiple=True, metavar="REQUEST=VALUE", callback=_parse_values, help="Answer a question."
)
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=_parse_pairs, help="Instead of its parent's tags."
)
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and make nothing.")
@json_option
@common_options
def command(
    checkpoint: str,
    run_id: str | None,
    set_: dict[str, Any],
    add: dict[str, Any],
    delete: tuple[str, ...],
    answers: dict[str, Any],
    tags: dict[str, str],
    dry_run: bool,
    json: bool,
) -> None:
    """Begin a new run where another was, with changes to its state. Prints the id of the new run.

    A path leads into the state, like order.price or lines.0, or /a.b/0 if a name has dots in it. A value is JSON, or
    else a text. These options may be given several times. The other run stays as it is, nothing that led to
    the checkpoint is done again, and nothing is run: `stepwell resume` goes on with the new run.
    """
    wanted: dict[str, Any] = {"set": set_, "add": add, "delete": delete, "responses": answers, "tags": tags or None}

    async def work(storage: BuiltInStorage) -> None:
        with refusals():
            if answers:
                from stepwell.cli.forms.answers import check_answers  # lazy: 100 ms

                await check_answers(storage, checkpoint, answers)
            result = await (admin.preview_fork if dry_run else admin.fork)(storage, checkpoint, run_id=run_id, **wanted)
        _note_values({**set_, **add}, answers)
        if isinstance(result, stepwell.CheckpointInfo):
            _report(result, json)
        else:
            _print_preview(result, json)

    run_on_store(work)


def _print_preview(difference: admin.Difference, json: bool) -> None:
    if json:
        print_document(**difference_to_dict(difference))
    else:
        print_lines(format_difference(difference))


def _report(forked: stepwell.CheckpointInfo, json: bool) -> None:
    if json:
        print_document(run_id=forked.run_id, number=forked.number, checkpoint_id=forked.checkpoint_id)
    else:
        print_lines([printable(forked.run_id)])
        print_note(f"to go on with it: {command_line('resume', forked.run_id, 'MODULE:WORKFLOW')}")


def _note_values(state: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
    """What was understood: whether a value is a number or a text is not to be seen on the command line."""
    for name, value in (*state.items(), *answers.items()):
        print_note(f"{name} = {leaf(value)} ({_WORDS.get(type(value), 'nothing')})")
