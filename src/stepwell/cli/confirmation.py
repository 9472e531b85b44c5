"""Ask a person to confirm what cannot be undone."""

from __future__ import annotations

import sys

import click

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.settings import Settings
from stepwell.cli.views.output import print_note
from stepwell.error_ids import ErrorId


def needs_confirmation(problem: str, hint: str = "--yes confirms it") -> bool:
    """Return whether a person must be asked first; with --yes nobody is.

    Raises CommandFailed with `problem` and `hint` if a question is needed and nobody can answer it.
    """
    settings = Settings.current()
    if settings.yes:
        return False
    if settings.no_input or not sys.stdin.isatty():
        raise CommandFailed(ErrorId.UNCONFIRMED, problem, hint, USAGE)
    return True


def confirm(question: str, refused: str) -> None:
    """Ask the person at the terminal. Unless the answer is yes, print `refused` and raise Abort.

    Do not call this inside an event loop: it would swallow the Ctrl-C of a person who is being
    asked.
    """
    if not click.confirm(question, err=True):
        print_note(refused)
        raise click.Abort
