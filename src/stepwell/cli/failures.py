"""How a command ends that could not do what it was told: one sentence, a hint, and a code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import click

from stepwell.cli.hints import command_line, format_command
from stepwell.cli.secrets import without_secrets
from stepwell.cli.settings import Settings
from stepwell.cli.views.text import printable
from stepwell.errors import (
    CannotUnseal,
    CheckpointMissing,
    GraphChanged,
    InputMismatch,
    NewerFormat,
    RequestError,
    RunBusy,
    RunError,
    StepwellError,
)

OK, FAILED, USAGE, NOT_FOUND, WAITING, NOT_THIS_CODE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
KEYS = "keys are taken from $STEPWELL_KEYS, $STEPWELL_KEYS_FILE, or keys_file in [tool.stepwell] of pyproject.toml"


class CommandFailed(Exception):
    """The command cannot be done. The message is one sentence; `hint` says what to do now."""

    def __init__(self, message: str, hint: str = "", code: int = FAILED) -> None:
        self.hint, self.code = hint, code
        super().__init__(message)


def exit_with(code: int) -> NoReturn:
    """End the command with a code that is its answer, not an error."""
    sys.stdout.flush()
    click.get_current_context().exit(code)


@contextmanager
def refusals() -> Iterator[None]:
    """What `admin` refuses, told as the command line does: as wrong usage, or as not to be found."""
    try:
        yield
    except RequestError as error:
        raise CommandFailed(str(error), command_line("requests"), NOT_FOUND) from error
    except ValueError as error:  # a change, an answer, an id or a tag
        if isinstance(error, StepwellError) or type(error) is ValueError:
            raise CommandFailed(str(error), code=USAGE) from error
        raise
    except RunError as error:
        raise CommandFailed(str(error), code=USAGE) from error


class Ending:
    """Ends the process if something goes wrong inside: says on stderr what it was, without a secret."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __enter__(self) -> None:
        """Nothing has gone wrong yet."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: object) -> None:
        if error is None or isinstance(error, (SystemExit, GeneratorExit)):
            return
        if isinstance(error, (KeyboardInterrupt, click.Abort)):
            sys.exit(INTERRUPTED)
        if self._settings.debug:
            for line in "".join(traceback.format_exception(error)).rstrip().split("\n"):
                _print_error(printable(line))
        sys.exit(_report(error, self._settings))


def _report(error: BaseException, settings: Settings) -> int:
    """Say what went wrong and what to do; the code to end with."""
    sentence, hint, code = _describe(error, settings)
    first, *more = sentence.splitlines() or [type(error).__name__]
    _print_error(f"stepwell: {printable(first)}")
    for line in more:
        _print_error(f"  {printable(line)}")
    if hint:
        _print_error(f"hint: {printable(hint)}")
    return code


def silence_stdout() -> None:
    """Let Python end without a word about what it cannot write any more."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):  # a stdout of a test has no number
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _describe(error: BaseException, settings: Settings) -> tuple[str, str, int]:
    """The sentence, the hint and the code of an error."""
    match error:
        case CommandFailed():
            return str(error), error.hint, error.code
        case click.UsageError():
            path = "stepwell" if error.ctx is None else error.ctx.command_path
            return error.format_message(), f"{path} --help", USAGE
        case click.ClickException():
            return error.format_message(), "", error.exit_code
        case CheckpointMissing():
            return str(error), format_command(settings, "list"), NOT_FOUND
        case GraphChanged():
            return str(error), "stepwell check MODULE:WORKFLOW says it of all runs", NOT_THIS_CODE
        case NewerFormat():
            return str(error), "pip install --upgrade stepwell", NOT_THIS_CODE
        case CannotUnseal():
            return str(error), KEYS, NOT_THIS_CODE
        case RunBusy():
            return str(error), format_command(settings, "tail", str(error.run_id), options=["--follow"]), FAILED
        case InputMismatch():
            resume = format_command(settings, "resume", str(error.run_id), "MODULE:WORKFLOW")
            return str(error), f"{resume}, or give another --run-id", USAGE
        case StepwellError():
            return str(error), "", USAGE if type(error).__name__ == "Ambiguous" else FAILED
        case OSError():
            return str(error), "", FAILED
    return f"{type(error).__name__}: {error}", "this was not foreseen; --debug shows where it happened", FAILED


def _print_error(text: str) -> None:
    with suppress(OSError):  # nobody reads what went wrong: the code still says that it did
        click.echo(without_secrets(text), err=True)
