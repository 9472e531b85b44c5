"""The program: its commands, loaded when they are called, and how it ends."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from stepwell.cli.failures import OK, Ending, silence_stdout
from stepwell.cli.settings import Settings, common_options
from stepwell.cli.std_streams import make_writable

COMMANDS = (
    "list",
    "show",
    "events",
    "tail",
    "requests",
    "respond",
    "fork",
    "diff",
    "run",
    "resume",
    "cancel",
    "viz",
    "check",
    "prune",
    "export",
    "import",
    "doctor",
    "migrate",
)


class Program(click.Group):
    """A group of commands, each a module of its own."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f".commands.{name}", __package__).command
        return command

    def invoke(self, context: click.Context) -> None:
        try:
            super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever read us has seen enough
            silence_stdout()

    def main(self, *args: Any, **options: Any) -> Any:
        """Do what the arguments say, tell on stderr what went wrong, and end the process with the code for it."""
        settings = Settings()
        make_writable()
        with Ending(settings):
            code = super().main(
                *args, **{"prog_name": "stepwell", **options, "standalone_mode": False, "obj": settings}
            )
            sys.exit(code if isinstance(code, int) else OK)


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(package_name="stepwell", message="%(prog)s %(version)s")
@common_options
def stepwell() -> None:
    """See the runs of agent workflows: where they are, what they hold, whom they wait for.

    Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 waiting
    for input, 5 this code cannot go on with the run, 130 interrupted.
    """
