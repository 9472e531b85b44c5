"""The last events of a run, and those that come while another process drives it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from stepwell.cli.stores.history import events_of, follow_commits, read_head, read_latest
from stepwell.cli.views.follow import Follower, JsonLines, Lines, draw_on
from stepwell.cli.views.output import print_note
from stepwell.cli.views.scene import Scene

if TYPE_CHECKING:
    from stepwell.cli.views.events import TimedEvent
    from stepwell.model.superstep import RoutedMessage
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.storage.run_list import RunInfo

SILENCE = 15.0  # seconds after which it is said, once, that nothing happens


async def show_latest(storage: BuiltInStorage, run: RunInfo, count: int, *, json: bool) -> None:
    """Print the last events of a run."""
    _show_events(await read_latest(storage, run.run_id, run.number, count), _make_plain(json))


async def follow_run(storage: BuiltInStorage, run: RunInfo, count: int, *, wait: bool, json: bool) -> str:
    """Print the last events of a run and those that come, until it rests; its status then."""
    reader, upcoming = await _make_reader(storage, run, json)
    with reader:
        _show_events(await read_latest(storage, run.run_id, run.number, count), reader)
        reader.expect(upcoming)
        return await _follow_run(storage, run, wait, reader)


def _show_events(events: list[TimedEvent], reader: Follower) -> None:
    for event in events:
        reader.show(event)


def _make_plain(json: bool) -> Follower:
    """Events are the data of this command: they go to stdout."""
    return JsonLines() if json else Lines(sys.stdout)


async def _make_reader(storage: BuiltInStorage, run: RunInfo, json: bool) -> tuple[Follower, list[str]]:
    """Whoever sees what comes, and who is called next. Only a picture needs to know that, and the graph."""
    scene = Scene(run.run_id, run.workflow_name, (), monotonic(), run.status.value, run.iteration_count)
    picture = None if json else draw_on(sys.stdout, scene, lines=True)
    if picture is None:
        return _make_plain(json), []
    at = await read_head(storage, run.run_id)
    scene.add(str(id) for id in at.header.signature.get("executors", ()))
    return picture, _find_takers(at.messages)


async def _follow_run(storage: BuiltInStorage, run: RunInfo, wait: bool, reader: Follower) -> str:
    """Until the run rests; its status then."""
    status, news = run.status.value, monotonic()
    async for commit in follow_commits(storage, run.run_id, run.number):
        if commit is not None:
            status, news = commit.status.value, monotonic()
            for event in events_of(run.run_id, commit):
                reader.show(event)
            reader.expect(_find_takers(commit.messages or ()))
        elif _is_at_rest(status, wait):
            reader.end(status)
            break
        elif monotonic() - news > SILENCE and status != "IDLE_WITH_PENDING_REQUESTS":
            print_note(f"nothing new for {SILENCE:.0f} s; if no process drives it, `stepwell resume` goes on with it")
            news = math.inf
    return status


def _find_takers(messages: Sequence[RoutedMessage]) -> list[str]:
    return [taker for message in messages for taker in message.takers]


def _is_at_rest(status: str, wait: bool) -> bool:
    return status in ("IDLE", "FAILED", "CANCELLED") or (status == "IDLE_WITH_PENDING_REQUESTS" and not wait)
