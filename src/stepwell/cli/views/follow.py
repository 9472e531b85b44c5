"""Those who are told of a run while it moves: a picture on a terminal, lines in a pipe, JSON for a program."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol, Self, TextIO

import click

from stepwell.cli.views.output import print_json_line
from stepwell.cli.views.scene import CHATTER, Scene

if TYPE_CHECKING:
    from stepwell.cli.views.events import TimedEvent

_HIDDEN = frozenset({"checkpoint"})  # whoever wants one asks the store for it


class Follower(Protocol):
    """Is told what happens in a run, in order, inside a `with`."""

    redraws: bool  # whether it keeps a place on the terminal, where nothing else may be printed

    def show(self, timed: TimedEvent) -> None: ...
    def expect(self, names: list[str]) -> None: ...
    def end(self, status: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class _Listener:
    """One who needs to know neither what comes next nor where it ended."""

    redraws = False

    def show(self, timed: TimedEvent) -> None:
        """Nothing is told to anybody."""

    def expect(self, names: list[str]) -> None:
        """Of no interest."""

    def end(self, status: str) -> None:
        """Of no interest."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to clear up."""


class Silence(_Listener):
    """Nobody follows."""


class Lines(_Listener):
    """One line for each event."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type not in CHATTER:
            click.echo(timed.format_line(), file=self._to)


class JsonLines(_Listener):
    """One JSON document for each event, on stdout."""

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type not in _HIDDEN:
            print_json_line(**timed.as_dict())


def draw_on(to: TextIO, scene: Scene, *, lines: bool = False) -> Follower | None:
    """A picture that stays in its place; None where there cannot be one: no terminal that moves its cursor, no rich."""
    if not to.isatty() or os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown", ""):
        return None
    try:
        from stepwell.cli.views.picture import Picture  # lazy: rich takes 40 ms, and may not be installed
    except ModuleNotFoundError:
        return None
    return Picture(scene, to, lines=lines)


def make_follower(*, follow: bool, json: bool, scene: Scene) -> Follower:
    """Whoever is to be told of a run that is driven here. People look at stderr: stdout is for what the run gives."""
    if not follow:
        return Silence()
    if json:
        return JsonLines()
    return draw_on(sys.stderr, scene) or Lines(sys.stderr)
