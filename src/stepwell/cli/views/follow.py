"""Show the events of a run as they happen: as a live view, as lines, or as JSON Lines."""

from __future__ import annotations

import os
import sys
from typing import Self, TextIO

import click

from stepwell.cli.type_names import TimedEvent
from stepwell.cli.views.live_view_state import CHATTER, Scene
from stepwell.cli.views.output import print_json_line

_HIDDEN = frozenset({"checkpoint"})  # the store has it; its event only repeats the commit


class Follower:
    """Receives the events of a run in order, inside a `with` block. This one shows nothing."""

    redraws = False  # whether it keeps a place on the terminal, where nothing else may be printed

    def show(self, timed: TimedEvent) -> None:
        """Show the next event."""

    def expect(self, names: list[str]) -> None:
        """Show which executors are called next."""

    def end(self, status: str) -> None:
        """Show the final status."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop showing."""


class Lines(Follower):
    """Prints one line per event."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type not in CHATTER:
            click.echo(timed.format_line(), file=self._to)


class JsonLines(Follower):
    """Prints one JSON document per event to stdout."""

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type not in _HIDDEN:
            print_json_line(**timed.as_dict())


def draw_on(to: TextIO, scene: Scene, *, lines: bool = False) -> Follower | None:
    """Return a live view of the scene; None if the terminal cannot redraw or rich is missing."""
    if not to.isatty() or os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown", ""):
        return None
    try:
        from stepwell.cli.views.picture import Picture  # lazy: rich takes 15 ms and may be missing
    except ModuleNotFoundError:
        return None
    return Picture(scene, to, lines=lines)


def make_follower(*, follow: bool, json: bool, scene: Scene) -> Follower:
    """Return the follower for a run that this process drives."""
    if not follow:
        return Follower()
    if json:
        return JsonLines()
    # To stderr: stdout is for the outputs of the run.
    return draw_on(sys.stderr, scene) or Lines(sys.stderr)
