"""What to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from stepwell.cli.secrets import without_secrets
from stepwell.cli.settings import Settings


def command_line(*words: str) -> str:
    """A command of this program that can be typed as it is, on the same store; its address only if nothing in it is a
    secret."""
    return format_command(click.get_current_context().ensure_object(Settings), *words)


def format_command(settings: Settings, command: str, *words: str, options: Sequence[str] = ()) -> str:
    """The same, where no command is under way any more."""
    store = settings.store
    given_options = [*options, "--store", store] if store and without_secrets(store) == store else list(options)
    if any(word.startswith("-") for word in words):  # it would be taken for an option
        return shlex.join(["stepwell", command, *given_options, "--", *words])
    return shlex.join(["stepwell", command, *words, *given_options])
