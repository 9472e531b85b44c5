"""What to type next."""

from __future__ import annotations

import shlex

import click

from .secrets import without_secrets
from .settings import Settings


def command_line(*words: str) -> str:
    """A command of this program that can be typed as it is, on the same store; its address only if nothing in it is a
    secret."""
    store = click.get_current_context().ensure_object(Settings).store
    named = ["--store", store] if store and without_secrets(store) == store else []
    return shlex.join(["holdfast", *words, *named])
