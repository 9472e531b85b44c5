"""The live view of a run on a terminal, drawn with rich."""

from __future__ import annotations

from time import monotonic
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stepwell.admin.run_events import TimedEvent
from stepwell.cli.views.events import Follower, format_event
from stepwell.cli.views.live_view_state import CHATTER, Scene

_STYLES = {"failed": "red", "waiting": "yellow", "running": "cyan", "retrying": "magenta", "stopped": "magenta"}
_AROUND = 4  # lines of the view besides its rows


class Picture(Follower):
    """A follower that redraws one block of lines in place, and leaves it on the screen at the end.

    rich draws it from a thread, so it keeps moving while a handler blocks the event loop.
    """

    redraws = True

    def __init__(self, scene: Scene, to: TextIO, *, lines: bool = False) -> None:
        self.scene, self._lines = scene, lines
        self._console = Console(file=to, highlight=False)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=8, transient=False)

    def show(self, timed: TimedEvent) -> None:
        self.scene.apply(timed, monotonic())
        if self._lines and timed.event.type not in CHATTER:
            # Through the same console, which prints the line above the block.
            for line in format_event(timed):
                self._console.print(Text(line), soft_wrap=True)

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
        now = monotonic()
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        # Fixed minimum widths, so that the columns do not jump when a word changes.
        for width in (8, 9, 8, 6, 0):
            table.add_column(no_wrap=True, overflow="ellipsis", min_width=width)
        for name, state, calls, time, doing in self.scene.rows(now, max(self._console.height - _AROUND, 3)):
            style = _STYLES.get(state, "dim" if state == "-" else "")
            table.add_row(Text(f"  {name}"), Text(state, style=style), Text(calls), Text(time), Text(doing))
        heading = Text(self.scene.heading(now), style="bold", no_wrap=True, overflow="ellipsis")
        return Group(heading, table, Text(f"  {self.scene.last}", style="dim", no_wrap=True, overflow="ellipsis"))
