"""Lines for the events of a run, and what shows them as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from stepwell.admin.run_events import TimedEvent, only_of_nodes
from stepwell.cli.views.text import format_moment
from stepwell.declarative.stored_run import find_node


def format_event(timed: TimedEvent, *, full: bool = False) -> Iterator[str]:
    """Yield an event as a line for a person, and a line for each call that its handler made."""
    yield from format_lines(timed.event.commit, timed.at, timed.to_lines(full=full))


def format_lines(commit: int | None, at: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an event, the first with its commit and its time."""
    # Live progress has no commit, and shows that by a dash.
    yield f"{'-' if commit is None else commit:>4}  {format_moment(at)}  {lines[0]}"
    yield from (f"{'':>8}{line}" for line in lines[1:])


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


class NodesOnly(Follower):
    """Shows what the nodes of named agents do with another follower, and not what their conductor does."""

    def __init__(self, follower: Follower) -> None:
        self._follower, self.redraws = follower, follower.redraws

    def show(self, timed: TimedEvent) -> None:
        if (of_nodes := only_of_nodes(timed)) is not None:
            self._follower.show(of_nodes)

    def expect(self, names: list[str]) -> None:
        self._follower.expect([node for name in names if (node := find_node(name)) is not None])

    def end(self, status: str) -> None:
        self._follower.end(status)

    def __enter__(self) -> Self:
        self._follower.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._follower.__exit__(*exc)
