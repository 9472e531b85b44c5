"""Show the events of a run as they happen: as a live view, as lines, or as JSON Lines."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from stepwell.admin.run_events import TimedEvent
from stepwell.cli.views.events import Follower, NodesOnly, format_event
from stepwell.cli.views.live_view_state import CHATTER, Scene
from stepwell.cli.views.output import print_json_line
from stepwell.cli.views.text import wrap_line

_HIDDEN = "checkpoint"  # the store has it; its event only repeats the commit


class Lines(Follower):
    """Prints one line per event."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type not in CHATTER:
            for line in format_event(timed):
                for wrapped in wrap_line(line, self._to):
                    click.echo(wrapped, file=self._to)


class JsonLines(Follower):
    """Prints one JSON document per event to stdout."""

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type != _HIDDEN:
            print_json_line(**timed.to_dict())


def draw_on(to: TextIO, scene: Scene, *, lines: bool = False) -> Follower | None:
    """Return a live view of the scene; None if the terminal cannot redraw or rich is missing."""
    if not to.isatty() or os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown", ""):
        return None
    try:
        from stepwell.cli.views.picture import Picture  # lazy: rich takes 15 ms and may be missing
    except ModuleNotFoundError:
        return None
    return Picture(scene, to, lines=lines)


def make_follower(*, follow: bool, json: bool, scene: Scene, of_named_agents: bool = False) -> Follower:
    """Return the follower for a run that this process drives."""
    if not follow:
        return Follower()
    if json:
        return JsonLines()
    # To stderr: stdout is for the outputs of the run.
    follower = draw_on(sys.stderr, scene) or Lines(sys.stderr)
    return NodesOnly(follower) if of_named_agents else follower
