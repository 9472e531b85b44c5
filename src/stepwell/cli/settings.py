"""What is said once for every command: which store, and how to behave. Taken before and after the name of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Settings:
    """What was said so far."""

    store: str | None = None
    debug: bool = False
    no_input: bool = False  # nobody is there to be asked
    yes: bool = False  # what would be asked is answered with yes


def _set_option(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value == "":  # of a variable that is not set, say: another store than was meant would be taken
        raise click.BadParameter("it is empty")
    if value not in (None, False) and option.name is not None:
        setattr(context.ensure_object(Settings), option.name, value)


_OPTIONS: dict[str, dict[str, Any]] = {
    "--store": {
        "metavar": "STORE",
        "help": "sqlite:///runs.db, postgresql://..., or a directory. Default: $STEPWELL_STORE, then [tool.stepwell] "
        "of the nearest pyproject.toml, then the default store.",
    },
    "--debug": {"is_flag": True, "help": "Show the traceback of an error."},
    "--no-input": {"is_flag": True, "help": "Never ask: fail where a question would be asked."},
    "--yes": {"is_flag": True, "help": "Answer yes where a confirmation would be asked."},
}


def common_options(command: F) -> F:
    """The options that every command has, and the program itself."""
    for name, attributes in reversed(_OPTIONS.items()):
        command = click.option(name, **attributes, expose_value=False, callback=_set_option)(command)
    return command


def json_option(command: F) -> F:
    """The option of every command that prints data."""
    return click.option("--json", "json", is_flag=True, help="Print JSON.")(command)


def tag_option(help: str) -> Callable[[F], F]:
    """The option `--tag`, several times if need be; gives `tags`."""

    def parse_tags(context: click.Context, option: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
        for pair in pairs:
            if "=" not in pair:
                raise click.BadParameter(f"{pair!r} is not of the form name=value")
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

    return click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_tags, help=help)


def follow_option(command: F) -> F:
    """The option of every command that drives a run."""
    help = "Show what happens meanwhile, on stderr: a picture on a terminal, lines elsewhere. With --json, JSON Lines."
    return click.option("--follow", is_flag=True, help=help)(command)


def durability_option(command: F) -> F:
    """How much of a run may be lost in a crash."""
    help = "What a crash may cost: nothing, the last superstep, or all since the last pause."
    levels = click.Choice(["sync", "async", "exit"])
    return click.option("--durability", type=levels, default="sync", show_default=True, help=help)(command)
