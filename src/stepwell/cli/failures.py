"""How a command fails: one sentence, a hint, and an exit code; and the commands that hints suggest."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import click

from stepwell.cli.secrets import without_secrets
from stepwell.cli.settings import ON_SERVER, Settings
from stepwell.error_ids import ErrorId
from stepwell.errors import (
    CannotUnseal,
    CheckpointMissing,
    GraphChanged,
    NewerFormat,
    RequestError,
    RunBusy,
    RunError,
    StepwellError,
)
from stepwell.model.visible_text import visible

OK, FAILED, USAGE, NOT_FOUND, WAITING, INCOMPATIBLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
# What people try first, and click would not find: its suggestions have similar letters.
_OTHER_NAMES = dict.fromkeys(("--answer", "--reply", "--value"), "--response")
KEYS = "keys are read from $STEPWELL_KEYS, $STEPWELL_KEYS_FILE, or keys_file in [tool.stepwell] of pyproject.toml"


class CommandFailed(Exception):
    """The command cannot be carried out.

    `id` is what `stepwell explain` takes. The message is one sentence; `hint` says what to do now.
    """

    def __init__(self, id: str, message: str, hint: str = "", code: int = FAILED) -> None:
        self.id, self.hint, self.code = id, hint, code
        super().__init__(message)


def command_line(command: str, *words: str, options: Sequence[str] = ()) -> str:
    """Format a command to type as it is, for a hint; an address that holds a secret is left out."""
    return format_command(Settings.current(), command, *words, options=options)


def format_command(settings: Settings, command: str, *words: str, options: Sequence[str] = ()) -> str:
    """Like `command_line`, for use outside a click context."""
    # The address of a server holds its token, if it has a query.
    server = settings.server if command in ON_SERVER and "?" not in (settings.server or "") else None
    places = [("--store", settings.store), ("--server", server)]
    shown = [(name, address) for name, address in places if address and without_secrets(address) == address]
    all_options = [*options, *(word for pair in shown for word in pair)]
    # A run id may start with a dash; after `--` it is not read as an option.
    if any(word.startswith("-") for word in words):
        return shlex.join(["stepwell", command, *all_options, "--", *words])
    return shlex.join(["stepwell", command, *words, *all_options])


def exit_with(code: int) -> NoReturn:
    """Exit the command with a code that is its answer, not an error."""
    # Flush first: a broken pipe must be noticed while `Program.invoke` can still handle it.
    sys.stdout.flush()
    click.get_current_context().exit(code)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what `admin` refuses into CommandFailed: wrong usage, or not found."""
    try:
        yield
    except RequestError as error:
        raise CommandFailed(error.id, str(error), command_line("requests"), NOT_FOUND) from error
    except (RunError, ValueError) as error:
        # Refused input is a plain ValueError or one of our own errors. Subclasses of other
        # libraries, such as UnicodeDecodeError, are bugs and keep their traceback.
        if not isinstance(error, StepwellError) and type(error) is not ValueError:
            raise
        id = error.id if isinstance(error, StepwellError) else ErrorId.WRONG_USAGE
        raise CommandFailed(id, str(error), code=USAGE) from error


def end_with(error: BaseException, settings: Settings) -> int:
    """Print an error, without secrets, and its hint; return the exit code."""
    if isinstance(error, (SystemExit, GeneratorExit)):
        raise error
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    # Not Python's own traceback: it would print secrets, and control characters of stored strings.
    if settings.debug:
        for line in "".join(traceback.format_exception(error)).rstrip().split("\n"):
            _print_error(visible(line))
    failure = _describe(error, settings)
    first, *more = str(failure).splitlines() or [type(error).__name__]
    _print_error(f"stepwell: {visible(first)} [{failure.id}]")
    for line in more:
        _print_error(f"  {visible(line)}")
    _print_error(f"hint: {visible(failure.hint or f'stepwell explain {failure.id}')}")
    return failure.code


def silence_stdout() -> None:
    """Keep Python from complaining at exit that it cannot flush stdout."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):  # the stdout of a test has no file descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _describe(error: BaseException, settings: Settings) -> CommandFailed:
    """Return an error as a failed command, with its id, its hint and its exit code."""
    # `format_command` and not `command_line`: click has left its context when an error arrives
    # here.
    match error:
        case CommandFailed():
            return error
        case click.UsageError():
            problem = error.format_message()
            if isinstance(error, click.NoSuchOption) and (meant := _find_meant(error)):
                problem = f"there is no option {error.option_name}; did you mean {meant}?"
            path = "stepwell" if error.ctx is None else error.ctx.command_path
            return CommandFailed(ErrorId.WRONG_USAGE, problem, f"{path} --help", USAGE)
        case click.ClickException():
            return CommandFailed(ErrorId.WRONG_USAGE, error.format_message(), code=error.exit_code)
        case StepwellError():
            return CommandFailed(error.id, str(error), *_advise(error, settings))
        case OSError():
            return CommandFailed(ErrorId.SYSTEM_ERROR, str(error))
    problem = f"{type(error).__name__}: {error}"
    return CommandFailed(ErrorId.UNEXPECTED, problem, "unexpected error; --debug shows the traceback")


def _advise(error: StepwellError, settings: Settings) -> tuple[str, int]:
    """Return the hint and the exit code for an error of the library."""
    match error:
        case CheckpointMissing():
            return format_command(settings, "list"), NOT_FOUND
        case GraphChanged():
            return "stepwell check MODULE:WORKFLOW checks all runs", INCOMPATIBLE
        case NewerFormat():
            return "pip install --upgrade stepwell", INCOMPATIBLE
        case CannotUnseal():
            return KEYS, INCOMPATIBLE
        case RunBusy():
            return format_command(settings, "tail", str(error.run_id), options=["--follow"]), FAILED
    # By its id: importing `Ambiguous` would load `admin.lookup`, which most commands do not need.
    return "", USAGE if error.id == ErrorId.Ambiguous else FAILED


def _find_meant(error: click.NoSuchOption) -> str | None:
    """Return the option that has another name here, if the command has it."""
    meant = _OTHER_NAMES.get(error.option_name)
    options = () if error.ctx is None else (name for param in error.ctx.command.params for name in param.opts)
    return meant if meant in options else None


def _print_error(text: str) -> None:
    with suppress(OSError):  # stderr may be closed: the exit code still reports the failure
        click.echo(without_secrets(text), err=True)
