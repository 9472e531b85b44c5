"""Lines for the events of a run, and what shows them as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Self

from stepwell.admin.calls import calls_of
from stepwell.admin.run_events import TimedEvent
from stepwell.cli.views.text import format_moment, printable
from stepwell.declarative.conductor import CONDUCTOR
from stepwell.declarative.stored_run import find_node


def format_event(timed: TimedEvent) -> Iterator[str]:
    """Yield an event as a line for a person, and a line for each call that its handler made."""
    # Live progress has no commit, and shows that by a dash.
    number = "-" if timed.event.commit is None else timed.event.commit
    yield f"{number:>4}  {format_moment(timed.at)}  {timed.describe()}"
    yield from (f"{'':>8}{printable(call.describe())}" for call in calls_of(timed.steps))


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


def only_of_nodes(timed: TimedEvent) -> TimedEvent | None:
    """Return an event of a run of named agents with names of nodes; None if only the conductor was called."""
    event = timed.event
    if event.executor_id == CONDUCTOR and event.type.startswith(("executor_", "step_")) and event.details is None:
        return None
    return replace(timed, of_named_agents=True)
