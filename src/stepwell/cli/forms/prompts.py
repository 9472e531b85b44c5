"""Fill in a form on a terminal: prompts go to stderr, and each answer is one line."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TypeVar

import click

from stepwell.admin.diffs.json_diff import format_path
from stepwell.cli.forms.schema_form import Form, Prompt
from stepwell.cli.forms.value_parsers import are_numbered
from stepwell.cli.settings import Settings
from stepwell.cli.views.output import print_note
from stepwell.cli.views.text import printable

T = TypeVar("T")


def is_interactive() -> bool:
    """Return whether a person can be asked: on a terminal, without --no-input."""
    settings = click.get_current_context().ensure_object(Settings)
    return not settings.no_input and sys.stdin.isatty() and sys.stderr.isatty()


def fill_in(form: Form[T]) -> T:
    """Ask a person for each field, and return the value of the form.

    Raises Abort on Ctrl-C and Ctrl-D.
    """
    # The form is a generator that decides; this loop only prints and reads. See `schema_form`.
    try:
        prompt = next(form)
        while True:
            prompt = form.send(_read_answer(prompt))
    except StopIteration as end:
        filled: T = end.value
        return filled


def _read_answer(prompt: Prompt) -> str:
    for line in _introduce(prompt):
        print_note(line)
    try:
        return _read_line(f"{printable(_describe_place(prompt))} ({printable(_describe_wanted(prompt))}): ")
    except (EOFError, KeyboardInterrupt):
        click.echo(err=True)  # end the line of the prompt
        raise click.Abort from None


def _introduce(prompt: Prompt) -> list[str]:
    """Return the lines to show above the prompt."""
    lines = [f"  ! {prompt.problem}"] if prompt.problem else []
    # Description and choices are shown once, not again after each mistake.
    if prompt.about and not prompt.problem:
        lines += [f"  {line}" for line in prompt.about.splitlines()]
    if prompt.choices and not prompt.problem:
        numbered = are_numbered(prompt.choices)
        lines += [f"  {n}  {choice}" if numbered else f"  {choice}" for n, choice in enumerate(prompt.choices, 1)]
    return lines


def _describe_place(prompt: Prompt) -> str:
    return format_path(prompt.path) if prompt.path else "response"


def _describe_wanted(prompt: Prompt) -> str:
    return prompt.wants if prompt.enter is None else f"{prompt.wants}; Enter: {prompt.enter}"


def _read_line(prompt: str) -> str:
    """Read a line, with editing keys if possible."""
    # readline writes to stdout. If that is a pipe, its control characters would end up in the data.
    if sys.stdout.isatty():
        with suppress(ImportError):  # not built into every Python
            import readline  # noqa: F401 - lazy: loading it changes how `input` edits a line
        return input(prompt)
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")
