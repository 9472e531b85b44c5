"""Options that several commands share, and the settings that every command has.

The common options may stand before or after the name of the command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from stepwell.model.valid_text import is_text

F = TypeVar("F", bound=Callable[..., Any])

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@dataclass
class Settings:
    """The values of the common options."""

    store: str | None = None
    server: str | None = None
    debug: bool = False
    no_input: bool = False  # nobody can be asked
    yes: bool = False  # confirmations are given in advance
    utc: bool = False  # times are shown and read in UTC, not in local time

    @classmethod
    def current(cls) -> Settings:
        """Return the settings of the command that runs."""
        context = click.get_current_context(silent=True)
        return cls() if context is None else context.ensure_object(cls)


def _set_option(context: click.Context, option: click.Parameter, value: Any) -> None:
    # `--store "$UNSET"`: falling back to the default would silently use another store than the user
    # meant.
    if value == "":
        raise click.BadParameter("the value is empty")
    # Called for the group and for the command: a value that is not passed must not overwrite one
    # that is.
    if value not in (None, False) and option.name is not None:
        setattr(context.ensure_object(Settings), option.name, value)


class CommonOption(click.Option):
    """An option that every command has. Only the help of the program describes it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return super().get_help_record(ctx) if ctx.parent is None else None


# The commands that work with --server.
ON_SERVER = (
    "list",
    "show",
    "events",
    "tail",
    "requests",
    "respond",
    "submit",
    "cancel",
    "fork",
    "diff",
    "restore",
    "retry",
    "prune",
    "export",
    "workers",
)

_OPTIONS: dict[str, dict[str, Any]] = {
    "--store": {
        "metavar": "STORE",
        "help": "A SQLite file such as runs.db, postgresql://..., or a directory. Default: $STEPWELL_STORE, then "
        "[tool.stepwell] of the nearest pyproject.toml, then the default store.",
    },
    "--server": {
        "metavar": "URL",
        "help": f"Use a server of `stepwell serve` instead of a store: {', '.join(ON_SERVER)}.",
    },
    "--debug": {"is_flag": True, "help": "Show the traceback of an error."},
    "--no-input": {"is_flag": True, "help": "Never prompt: fail instead."},
    "--yes": {"is_flag": True, "help": "Answer yes to every confirmation."},
    # Eager: other options are read as times.
    "--utc": {"is_flag": True, "is_eager": True, "help": "Show and read times in UTC instead of local time."},
}


COMMON = f"Every command also has {', '.join(_OPTIONS)}: see stepwell --help."


def common_options(command: F) -> F:
    """Add the options that the program and every command have."""
    for name, attributes in reversed(_OPTIONS.items()):
        option = click.option(name, cls=CommonOption, **attributes, expose_value=False, callback=_set_option)
        command = option(command)
    return command


# Of every command that prints data.
json_option = click.option("--json", "json", is_flag=True, help="Print JSON.")
# Of every command that drives a run.
follow_option = click.option(
    "--follow",
    is_flag=True,
    help="Show progress on stderr: a live view on a terminal, one line per event elsewhere. With --json, JSON Lines.",
)


# Of every command that starts a run.
input_option = click.option(
    "--input", "argument", metavar="TEXT|@FILE|@-", help="The input: a string, a file, or stdin."
)


def _check_text(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    # Arguments that are not UTF-8 arrive as lone surrogates, which cannot be stored.
    if text is not None and not is_text(text):
        raise click.BadParameter("the text is not valid UTF-8")
    return text or None


def text_option(name: str, help: str) -> Callable[[F], F]:
    """Add an option with a text that is stored in the history of a run."""
    return click.option(name, metavar="TEXT", callback=_check_text, help=help)


by_option = text_option("--by", "Who does it, stored in the history.")

durability_option = click.option(
    "--durability",
    type=click.Choice(["sync", "async", "exit"]),
    default="sync",
    show_default=True,
    help="What a crash may lose: nothing, the latest commit, or all commits since the last pause.",
)


def agents_option(function: F) -> F:
    """Add `--agents MODULE:AGENTS`; the command gets `agents`."""
    help = "The agents of a definition file: a mapping of their names, or a function that returns one."
    return click.option("--agents", metavar="MODULE:AGENTS", help=help)(function)


def tag_option(help: str) -> Callable[[F], F]:
    """Add `--tag NAME=VALUE`, repeatable; the command gets `tags`."""

    def parse_tags(context: click.Context, option: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
        for pair in pairs:
            if "=" not in pair:
                raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE")
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

    return click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_tags, help=help)
