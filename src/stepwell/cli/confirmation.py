"""A person says yes before something is done that cannot be undone."""

from __future__ import annotations

import sys

import click

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.settings import Settings
from stepwell.cli.views.output import print_note


def needs_confirmation(otherwise: str, hint: str = "--yes says yes") -> bool:
    """Whether a person has to be asked first: --yes says that it is wanted.

    Raises CommandFailed, saying `otherwise`, if nobody is there to be asked.
    """
    settings = click.get_current_context().ensure_object(Settings)
    if settings.yes:
        return False
    if settings.no_input or not sys.stdin.isatty():
        raise CommandFailed(otherwise, hint, USAGE)
    return True


def confirm(question: str, otherwise: str) -> None:
    """Ask the person at the terminal. Unless the answer is yes, say `otherwise`, and end as if interrupted.

    Not to be called inside an event loop, which would keep an interrupt from whoever waits for the answer.
    """
    if not click.confirm(question, err=True):
        print_note(otherwise)
        raise click.Abort
