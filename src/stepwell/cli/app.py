"""The click group `stepwell`: its commands, its help and its exit codes."""

from __future__ import annotations

import difflib
import io
import os
import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from stepwell.cli.failures import OK, end_with, silence_stdout
from stepwell.cli.settings import COMMON, Settings, common_options

# The first sentence of each command's help stands here once more, so that neither `stepwell --help`
# nor the completion of a command name has to import the commands. A test compares them.
COMMANDS = {
    "list": "List runs, newest first.",
    "show": "Show where a run is and what it holds.",
    "events": "Print the events of a run from its history.",
    "tail": "Print the latest events of a run, and follow it.",
    "requests": "List the open requests of all runs.",
    "respond": "Respond to a request of a run.",
    "fork": "Start a new run from a checkpoint of another.",
    "diff": "Compare two checkpoints.",
    "run": "Start a run and drive it until it stops.",
    "submit": "Store a run for workers to drive.",
    "resume": "Resume a run.",
    "restore": "Move a run back to one of its checkpoints.",
    "cancel": "Cancel a run.",
    "retry": "Retry runs that have stopped.",
    "worker": "Drive the runs that are ready.",
    "workers": "List the workers that drive runs.",
    "webhooks": "Tell other programs of requests and of runs that end.",
    "serve": "Answer over HTTP.",
    "studio": "See, answer and move runs in a browser.",
    "viz": "Draw the graph of a workflow.",
    "check": "Check which runs this code can continue.",
    "prune": "Delete old checkpoints and runs.",
    "export": "Export a run to a file.",
    "import": "Import an exported run into a store.",
    "doctor": "Check a store for damage.",
    "migrate": "Create a store, or upgrade its format.",
    "explain": "Explain an error: what happened, why, and what to do.",
}


class Program(click.Group):
    """A group that imports the module of a command when the command is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f".commands.{name}", __package__).command
        command.epilog = COMMON
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name not in COMMANDS and not name.startswith("-") and not context.resilient_parsing:
            meant = difflib.get_close_matches(name.lower(), COMMANDS, n=3)
            hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
            raise click.UsageError(f"there is no command {name!r}{hint}", context)
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        # Not `click.Group.shell_complete`: it imports every command whose name it suggests.
        return [*names, *click.Command.shell_complete(self, context, incomplete)]

    def invoke(self, context: click.Context) -> None:
        try:
            super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            silence_stdout()

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line, report errors on stderr, and exit with the matching code."""
        # Created here, because errors are reported after click has dropped its context.
        settings = Settings()
        _make_writable()
        try:
            code = super().main(
                *args, **{"prog_name": "stepwell", **options, "standalone_mode": False, "obj": settings}
            )
        except BaseException as error:  # noqa: BLE001 - nobody above would report it without secrets
            code = end_with(error, settings)
        sys.exit(code if isinstance(code, int) else OK)


def _make_writable() -> None:
    """Make sure that every string can be printed: a locale or a closed stream must not end a run.

    A stream that was closed before the program started is replaced by /dev/null. A character that
    the encoding of a stream lacks is written as an escape, such as `\\u2192`.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # Python found the file descriptor closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the process exits
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(package_name="stepwell", message="%(prog)s %(version)s")
@common_options
@click.pass_context
def stepwell(context: click.Context) -> None:
    """Inspect, drive and repair the runs of agent workflows.

    Data goes to stdout, everything else to stderr. Exit codes: 0 completed, 1 failed, 2 wrong
    usage, 3 not found, 4 waiting, 5 this code cannot continue the run, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
