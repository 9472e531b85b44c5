"""Those who are told of a run while it moves: a picture on a terminal, lines in a pipe, JSON for a program."""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Protocol, Self, TextIO

import click

from stepwell.cli.views.output import print_json_line
from stepwell.cli.views.scene import Scene

if TYPE_CHECKING:
    from rich.console import RenderableType

    from stepwell.cli.views.events import TimedEvent

_HIDDEN = frozenset({"checkpoint"})  # whoever wants one asks the store for it
_CHATTER = frozenset({"checkpoint", "update", "withdrawn"})  # what is being said right now, bit by bit
_STYLES = {"failed": "red", "asking": "yellow", "running": "cyan", "retrying": "magenta", "stopped": "magenta"}
_AROUND = 4  # lines of the picture beside its rows


class Follower(Protocol):
    """Is told what happens in a run, in order, inside a `with`."""

    def show(self, timed: TimedEvent) -> None: ...
    def expect(self, names: list[str]) -> None: ...
    def end(self, status: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class _Listener:
    """One who needs to know neither what comes next nor where it ended."""

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
        if timed.event.type not in _CHATTER:
            click.echo(timed.format_line(), file=self._to)


class JsonLines(_Listener):
    """One JSON document for each event, on stdout."""

    def show(self, timed: TimedEvent) -> None:
        if timed.event.type not in _HIDDEN:
            print_json_line(**timed.as_dict())


class Picture:
    """A picture that stays where it is and changes, and is left as it was at the end.

    It is drawn by a thread, so that it goes on while a handler keeps the event loop busy.
    """

    def __init__(self, scene: Scene, to: TextIO, *, lines: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        self.scene, self._lines = scene, lines
        self._console = Console(file=to, highlight=False)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=8, transient=False)

    def show(self, timed: TimedEvent) -> None:
        from rich.text import Text

        self.scene.apply(timed, monotonic())
        if self._lines and timed.event.type not in _CHATTER:
            self._console.print(Text(timed.format_line()), soft_wrap=True)  # above the picture

    def expect(self, names: list[str]) -> None:
        self.scene.expect(names)

    def end(self, status: str) -> None:
        self.scene.end(status, monotonic())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = monotonic()
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for width in (8, 8, 8, 6):  # so that it does not jump when a word changes
            table.add_column(no_wrap=True, overflow="ellipsis", min_width=width)
        for row in self.scene.rows(now, max(self._console.height - _AROUND, 3)):
            style = _STYLES.get(row.state, "dim" if row.state == "-" else "")
            table.add_row(Text(f"  {row.name}"), Text(row.state, style=style), Text(row.calls), Text(row.time))
        heading = Text(self.scene.heading(now), style="bold", no_wrap=True, overflow="ellipsis")
        return Group(heading, table, Text(f"  {self.scene.last}", style="dim", no_wrap=True, overflow="ellipsis"))


def can_draw(to: TextIO) -> bool:
    """Whether a picture can stay in its place there: on a terminal that can move its cursor, if rich is here."""
    if not to.isatty() or os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown", ""):
        return False
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def make_follower(*, follow: bool, json: bool, scene: Scene) -> Follower:
    """Whoever is to be told of a run that is driven here. People look at stderr: stdout is for what the run gives."""
    if not follow:
        return Silence()
    if json:
        return JsonLines()
    return Picture(scene, sys.stderr) if can_draw(sys.stderr) else Lines(sys.stderr)
