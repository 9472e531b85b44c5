"""Commands to suggest in hints: what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from stepwell.cli.secrets import without_secrets
from stepwell.cli.settings import Settings


def command_line(*words: str) -> str:
    """Format a command to type as it is; --store is left out if it holds a secret."""
    return format_command(Settings.current(), *words)


def format_command(settings: Settings, command: str, *words: str, options: Sequence[str] = ()) -> str:
    """Like `command_line`, for use outside a click context."""
    store = settings.store
    all_options = [*options, "--store", store] if store and without_secrets(store) == store else list(options)
    # A run id may start with a dash; after `--` it is not read as an option.
    if any(word.startswith("-") for word in words):
        return shlex.join(["stepwell", command, *all_options, "--", *words])
    return shlex.join(["stepwell", command, *words, *all_options])
