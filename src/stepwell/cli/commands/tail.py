"""`stepwell tail`: the last that a run has told, and what it tells from now on."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

import click

from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.output import print_note

if TYPE_CHECKING:
    from stepwell.cli.views.events import TimedEvent
    from stepwell.cli.views.follow import Follower
    from stepwell.model.superstep import Checkpoint, RoutedMessage
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.storage.run_list import RunInfo

SILENCE = 15.0  # seconds after which it is said, once, that nothing happens


@click.command("tail")
@click.argument("run")
@click.option("-n", "--lines", "count", type=click.IntRange(min=0), default=10, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Then tell what happens, until the run rests.")
@click.option("--wait", is_flag=True, help="With --follow: stay also while it waits for an answer.")
@json_option
@common_options
def command(run: str, count: int, follow: bool, wait: bool, json: bool) -> None:
    """The last events of RUN, and with --follow those that come, while any process drives it.

    It only looks: nothing is moved on by it. With --json, one JSON document on each line.

    With --follow it ends when the run rests, with 0 if it is done, 1 if it failed or was cancelled, and 4 if it waits
    for an answer. Without, it ends with 0.
    """
    if wait and not follow:
        raise click.UsageError("--wait goes with --follow")

    async def work(storage: BuiltInStorage) -> tuple[str, str] | None:
        from stepwell.admin.lookup import find_run

        info = await find_run(storage, run)
        if not follow:
            _show_events(await _read_last(storage, info, count), _make_plain(json))
            return None
        reader, upcoming = await _make_reader(storage, info, json)
        with reader:
            _show_events(await _read_last(storage, info, count), reader)
            reader.expect(upcoming)
            return info.run_id, await _follow_run(storage, info, wait, reader)

    rests = run_on_store(work, patient=follow)
    if rests is not None:
        _exit(*rests)


async def _read_last(storage: BuiltInStorage, run: RunInfo, count: int) -> list[TimedEvent]:
    from stepwell.cli.views.events import read_latest

    return await read_latest(storage, run.run_id, run.number, count)


def _show_events(events: list[TimedEvent], reader: Follower) -> None:
    for event in events:
        reader.show(event)


def _make_plain(json: bool) -> Follower:
    """Events are the data of this command: they go to stdout."""
    from stepwell.cli.views.follow import JsonLines, Lines

    return JsonLines() if json else Lines(sys.stdout)


async def _make_reader(storage: BuiltInStorage, run: RunInfo, json: bool) -> tuple[Follower, list[str]]:
    """Whoever sees what comes, and who is called next. Only a picture needs to know that, and the graph."""
    from stepwell.cli.views.follow import Picture, can_draw
    from stepwell.cli.views.scene import Scene

    if json or not can_draw(sys.stdout):
        return _make_plain(json), []
    at = await _read_checkpoint(storage, run)
    executors = [str(id) for id in at.header.signature.get("executors", ())]
    scene = Scene(run.run_id, run.workflow_name, executors, monotonic(), run.status.value, run.iteration_count)
    return Picture(scene, sys.stdout, lines=True), _find_takers(at.messages)


async def _read_checkpoint(storage: BuiltInStorage, run: RunInfo) -> Checkpoint:
    from stepwell.admin.lookup import NotFound
    from stepwell.codec.codec import DEFAULT_CODEC
    from stepwell.storage.archive import StoreArchive

    at = await StoreArchive(storage._store, DEFAULT_CODEC).head(run.run_id)
    if at is None:
        raise NotFound(f"run {run.run_id!r} has gone meanwhile")
    return at


async def _follow_run(storage: BuiltInStorage, run: RunInfo, wait: bool, reader: Follower) -> str:
    """Until the run rests; its status then."""
    from stepwell.cli.views.events import events_of, follow_commits

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


def _exit(run_id: str, status: str) -> None:
    from stepwell.cli.failures import FAILED, WAITING, exit_with
    from stepwell.cli.views.text import status_word

    if status == "IDLE":
        return
    print_note(f"run {run_id!r} is {status_word(status)}")
    exit_with(FAILED if status in ("FAILED", "CANCELLED") else WAITING)
