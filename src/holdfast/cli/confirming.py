"""A person says yes before something is done that cannot be undone."""

from __future__ import annotations

import sys

import click

from .failing import USAGE, CommandFailed
from .settings import Settings


def confirm(question: str, otherwise: str) -> bool:
    """Whether it is wanted: --yes says so; else the person at the terminal is asked.

    Raises CommandFailed, saying `otherwise`, if nobody is there to be asked.
    """
    settings = click.get_current_context().ensure_object(Settings)
    if settings.yes:
        return True
    if settings.no_input or not sys.stdin.isatty():
        raise CommandFailed(otherwise, "--yes says yes", USAGE)
    return click.confirm(question, err=True)
